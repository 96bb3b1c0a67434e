"""A rehearsal: a setting's federation on this machine as it would run between organisations.

A SuperLink, and a SuperNode for each participant and each inner node of a tree, over TLS with node keys, in folders
that are removed afterwards. Each builds its own node from the setting, as an organisation would from its own files.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from typing import Any

from heterophony.base import toml
from heterophony.compute.workers import die_with_parent
from heterophony.deploy import folder as folders
from heterophony.deploy import keys
from heterophony.deploy.coordinator import public_keys, superlink
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.named_function import DeployError
from heterophony.deploy.organisation import FILE, SPLITS
from heterophony.deploy.plan import REAL_TIME, Pace, Plan
from heterophony.deploy.remote_host import Courier, RemoteHost
from heterophony.engines.engine import Engine
from heterophony.federation import Federation
from heterophony.tables.result import Result

MOST = 16  # organisations: each takes two processes with torch or Flower in them
START = 300.0  # seconds until everyone must be there


class Nobody:
    """The courier before the rehearsal has begun."""

    def present(self) -> tuple[str, ...]:
        return ()

    def send(self, questions: dict[str, bytes]) -> dict[str, str]:
        return {}

    def collect(self, tickets: Any) -> dict[str, bytes | None]:
        return {}


class Rehearsal(Engine):
    """The engine for `--engine flower`. It keeps no run folder: participants' state is theirs, and gone with them."""

    def __init__(self, federation: Federation, **options: Any) -> None:
        if federation.recipe is None:
            raise DeployError("a rehearsal needs a federation from a setting: other processes must build it too")
        if options.get("record") is not None:
            raise DeployError("--engine flower rehearses, without --out; for a run that lasts: heterophony deploy init")
        static = federation.topology.static
        own = [n for n, links in static.items() if not links.children]
        inner = [n for n, links in static.items() if links.children and links.parent]
        if (count := len(own) + len(inner)) > MOST:
            who = f"{count} participants{' and edge servers' if inner else ''}"
            raise DeployError(f"--engine flower starts two processes for each of {who}; {MOST} at most")
        ports = _free_ports(2 + count)
        about: dict[str, Any] = {"id": f"rehearsal-{secrets.token_hex(8)}", "method": federation.recipe["method"]}
        about |= {"rounds": 1, "seed": federation.seed, "participants": own, "address": f"127.0.0.1:{ports[0]}"}
        about["organisations"] = {node: [node] for node in inner}  # each on its own
        self.plan = Plan.model_validate({**about, "recipe": json.dumps(federation.recipe), "pace": Pace(poll=0.2)})
        self.ports = ports
        made = replace(federation, profiles={"": REAL_TIME})
        super().__init__(made, RemoteHost(self.plan, made, Nobody()), **options)

    def run(self, rounds: int | None = None) -> Result:
        plan = self.plan.model_copy(update={"rounds": max(self.rounds, rounds or 1)})  # nodes go no further than theirs
        with (
            TemporaryDirectory(prefix="heterophony-") as place,
            _started(plan, Path(place), self.ports) as courier,
        ):
            assert isinstance(self.host, RemoteHost)
            self.host.courier, self.host.origin = courier, self.host.clock()  # time begins when everyone is there
            result = super().run(rounds)
            _ = result.digest  # while there is somebody to ask
        return result


@contextmanager
def _started(plan: Plan, place: Path, ports: list[int]) -> Iterator[Courier]:
    """Start all processes of the federation; yield the way to its nodes."""
    from heterophony.deploy import flower

    with ExitStack() as stack:
        folders.prepare(place, plan, ports[1:])
        coordinator, listen = place / "coordinator", CoordinatorsOwn(port=ports[0])
        secret = coordinator / "executor.secret"
        keys.write_secret(secret, secrets.token_bytes(32))
        log = stack.enter_context(open(place / "log", "wb"))

        def start(command: list[str], environment: dict[str, str]) -> None:
            child = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
            stack.callback(_end, child)

        start(superlink(coordinator, listen, secret), flower.environment(coordinator / "flwr-home"))
        for name, port in zip(plan.everyone, ports[1:], strict=False):
            home = place / "participants" / name
            own: dict[str, Any] = {"name": name, "federation": plan.id, "port": port, "rehearsal": True}
            own["egress"] = {"metrics": list(SPLITS)}
            (home / FILE).write_text(toml.written(own))
            start([sys.executable, "-m", "heterophony", "deploy", "node", str(home)], dict(os.environ))
        ca = (coordinator / "ca.crt").read_bytes()
        control = flower.Control(listen.address, ca)
        stack.callback(control.close)
        executor = flower.TaskWorker(listen.address, secret.read_bytes(), ca, server=True)
        stack.callback(executor.close)
        _wait(control.reachable, place)
        known = {name: flower.key_bytes(key) for name, key in public_keys(coordinator, plan).items()}
        for name, key in known.items():
            control.register(name, key)
        control.submit(coordinator / "app")
        grid = stack.enter_context(flower.grid_of(listen.address, _wait(executor.acquire, place), ca))
        post = flower.Post(grid, {key: plan.held_by(name) for name, key in known.items()}, plan.limit)
        _wait(lambda: len(post.present()) == len(plan.remote), place)
        yield post


def _wait(condition: Callable[[], Any], place: Path) -> Any:
    end = time.monotonic() + START
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.2)
    tail = " | ".join((place / "log").read_text(errors="replace").splitlines()[-3:])
    raise DeployError(f"the rehearsal did not come to its start within {START:g} s: {tail}")


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(10)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _free_ports(count: int) -> list[int]:
    held = [socket() for _ in range(count)]
    try:
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
    finally:
        for each in held:
            each.close()
