"""A ready federation folder: one for the coordinator, and one to hand to each organisation."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from heterophony.base import toml
from heterophony.deploy import keys
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.plan import FILE as PLAN
from heterophony.deploy.plan import Plan
from heterophony.kernel.topology import form_of_roles

HOME = "/srv/heterophony"  # where units expect a participant's folder and the environment
# Where each file of a template goes, and whether it is a program.
COORDINATOR = {
    "coordinator.toml": False,
    "coordinator-README.md": False,
    "serve.sh": True,
    "heterophony-coordinator.service": False,
    "nginx.conf": False,
}
PARTICIPANT = {
    "organisation.toml": False,
    "participant-README.md": False,
    "start.sh": True,
    "heterophony-node.service": False,
}
COMMENTS = {
    "id": "everyone's state is kept under this name",
    "address": "where nodes find the coordinator",
    "participants": "each has a folder, a key and a file of its own",
}
APP = {"app-pyproject.toml": "pyproject.toml", "app-server.txt": "heterophony_app/server_app.py",
       "app-client.txt": "heterophony_app/client_app.py"}  # fmt: skip


def write(
    folder: Path,
    method: str,
    participants: Sequence[str],
    *,
    address: str = "127.0.0.1:8000",
    listen: str = "127.0.0.1:8000",
    rounds: int = 10,
    seed: int = 0,
    common: str | None = None,
    options: Mapping[str, Any] | None = None,
    ports: Sequence[int] | None = None,
    more: Path | None = None,
) -> Plan:
    """Write the folder; an existing one is refused. `more` is a file of what else stands in the plan."""
    if folder.exists() and any(folder.iterdir()):
        raise DeployError(f"{folder} is not empty: choose a new folder")
    made: dict[str, Any] = {"id": f"{method}-{secrets.token_hex(8)}", "method": method, "rounds": rounds, "seed": seed}
    made |= {"address": address, "participants": list(participants), "options": dict(options or {})}
    if common is not None:
        made["networks"] = {"common": common}
    if more is not None:
        made = _with_more(made, more)
    plan = checked(made, more)
    prepare(folder, plan, ports, listen, made)
    return plan


def _with_more(made: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return a plan with what else a file says of it. Nothing may be said twice."""
    found = toml.parsed(toml.text(path, DeployError), path, DeployError)
    said = [name for name, value in made.items() if name in found and value not in ({}, None)]
    if said:
        raise DeployError(f"{path}: {said[0]}: the command says that; leave it out of one of the two")
    return {**made, **found}


def prepare(
    folder: Path,
    plan: Plan,
    ports: Sequence[int] | None = None,
    listen: str | None = None,
    text: Mapping[str, Any] | None = None,
) -> None:
    """Write the folders of a plan."""
    coordinator, address = folder / "coordinator", plan.address
    server, outer = _place("address", address)
    host, port = _place("listen", listen or address)
    coordinator.mkdir(parents=True, mode=0o700)  # keys, and Flower's database of everybody's messages
    (coordinator / "keys").mkdir()
    written = dict(text or plan.model_dump(mode="json"))
    for name in plan.everyone:
        here = folder / "participants" / name
        here.mkdir(parents=True, mode=0o700)
        keys.node(here)
        if plan.secure is not None:
            written["members"] = {**written.get("members", {}), name: (here / "node.pub").read_text().strip()}
    (coordinator / PLAN).write_text(toml.written(written, COMMENTS))
    keys.authority(coordinator, plan.id)
    keys.server(coordinator, server)
    kinds = ", ".join(f'"{kind.name}"' for kind in plan.build_method().kinds)
    words = {
        "home": HOME,
        "id": plan.id,
        "method": plan.method,
        "address": address,
        "host": host,
        "port": port,
        "kinds": kinds,
    }
    words |= {"server": server, "outer": outer, "tables": _tables(plan, _coordinators(plan))}
    _fill(coordinator, COORDINATOR, {**words, "folder": str(coordinator.resolve())})
    _app(coordinator, {**words, "folder": str(coordinator.resolve())})
    for place, name in enumerate(plan.everyone):
        here = folder / "participants" / name
        shutil.copy(here / "node.pub", coordinator / "keys" / f"{name}.pub")
        shutil.copy(coordinator / "ca.crt", here / "ca.crt")
        shutil.copy(coordinator / PLAN, here / PLAN)
        local = ports[place] if ports else 9094 + place
        own = {"name": name, "local": str(local), "folder": f"{HOME}/{name}", "own": _own_lines(plan, name)}
        own["tables"] = _tables(plan, plan.held_by(name))
        _fill(here, PARTICIPANT, {**words, **own})
    (folder / "README.md").write_text(_template("README.md", words))


OWN = """\
# Functions of your own, from modules in this folder or installed ones:
data = "my_data:load"      # () -> heterophony.Data, or {"train": Data, "test": Data}; "test" is a private test
# model = "my_model:build"   # () -> torch.nn.Module, where the method lets you have one of your own"""
TABLE = """

[nodes.$node]              # an inner node of the tree, which is held here
data = "my_data:proxy"     # () -> heterophony.Data: it trains, as links.proxy in federation.toml says"""


def _own_lines(plan: Plan, organisation: str) -> str:
    """Return the lines of an organisation's file that name what is its own as a participant."""
    return OWN if organisation in plan.participants else f"# Held here: {', '.join(plan.held_by(organisation))}."


def _tables(plan: Plan, nodes: Sequence[str]) -> str:
    """Return the tables of those nodes that train and are held at a place."""
    if plan.links.tree is None:
        return ""
    roles = plan.topology(plan.build_method()).roles
    proxy = {n for n, role in roles.items() if {n, role} & set(plan.links.proxy)}
    return "".join(Template(TABLE).substitute(node=node) for node in nodes if node in proxy)


def _coordinators(plan: Plan) -> list[str]:
    """Return the nodes of a tree that the coordinator holds."""
    if plan.links.tree is None:
        return []
    remote = set(plan.remote)
    return [node for node in plan.topology(plan.build_method()).roles if node not in remote]


def _place(name: str, address: str) -> tuple[str, str]:
    """Return host and port; refuse wrong ones before anything is written."""
    host, _, port = address.rpartition(":")
    if not host or set(host) & set("/ \t\n") or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise DeployError(f"{name} is HOST:PORT, such as 0.0.0.0:8000, with a port from 1 to 65535, got {address!r}")
    try:
        keys.alternative(host)
    except ValueError:
        raise DeployError(f"{name}: no certificate can name {host!r}: write it in ASCII, as in DNS") from None
    return host, port


def checked(made: Mapping[str, Any], more: Path | None = None) -> Plan:
    """Return a plan that makes sense as far as it goes: its method has these options, its participants a place.

    What is wrong with it is said of the file `more`, if some of it stands there.
    """
    from pydantic import ValidationError

    try:
        plan = Plan.model_validate(made)
    except ValidationError as error:
        first = error.errors()[0]
        said = f"{'.'.join(map(str, first['loc']))}: {first['msg'].removeprefix('Value error, ')}"
        raise DeployError(said if more is None else f"{more}: {said}") from None
    method = plan.build_method()
    if form_of_roles(method.roles) != "tree" or plan.links.tree is not None:
        plan.topology(method)
    return plan


def _fill(folder: Path, files: Mapping[str, bool], words: Mapping[str, str]) -> None:
    for name, runs in files.items():
        path = folder / ("README.md" if name.endswith("README.md") else name)
        path.write_text(_template(name, words))
        if runs:
            path.chmod(0o755)


def _app(folder: Path, words: Mapping[str, str]) -> None:
    """Write what Flower wants to be submitted. Nobody runs it: both ends work with the installed package."""
    (folder / "app" / "heterophony_app").mkdir(parents=True)
    (folder / "app" / "heterophony_app" / "__init__.py").write_text("")
    for name, place in APP.items():
        (folder / "app" / place).write_text(_template(name, words))
    home = folder / "flwr-home"
    home.mkdir()
    (home / "config.toml").write_text(_template("flwr-config.toml", words))


def _template(name: str, words: Mapping[str, str]) -> str:
    text = (resources.files("heterophony.deploy") / "templates" / name).read_text()
    return Template(text).substitute(words)
