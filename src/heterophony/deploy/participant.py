"""An organisation's process: keeps a SuperNode connected to the coordinator, and answers the questions it brings."""

from __future__ import annotations

import importlib
import logging
import secrets
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from heterophony.base import codec
from heterophony.base.disk import Disk
from heterophony.deploy import keys, preflight
from heterophony.deploy.budget import Budget
from heterophony.deploy.named_function import DeployError, beside, permit
from heterophony.deploy.node_server import Household, NodeServer
from heterophony.deploy.node_store import NodeStore
from heterophony.deploy.organisation import FILE, Organisation
from heterophony.deploy.plan import FILE as PLAN
from heterophony.deploy.plan import Plan
from heterophony.deploy.process import Program, Stopped, forkable, forked, stop_on_signals, wait_while
from heterophony.deploy.receipts import Signer
from heterophony.federation import Federation
from heterophony.kernel.fields import Refused

log = logging.getLogger("heterophony.node")


def household(folder: Path, signer: Signer | None = None) -> Household:
    """Build the nodes of the organisation whose folder this is, with their data loaded.

    Only what answers signs receipts: looking needs no key.
    """
    beside(folder)
    plan, own = Plan.load(folder / PLAN), Organisation.load(folder / FILE)
    if plan.recipe is not None and not own.rehearsal:
        raise DeployError(f"{folder / PLAN}: recipe is for rehearsals: organisations have data of their own")
    permit(plan.functions(), own.modules, folder)
    own.check(plan)
    key = None if plan.secure is None else keys.private(folder / "node.key")
    return Household({node: _node_server(plan, own, node, key, signer) for node in plan.held_by(own.name)})


def _node_server(plan: Plan, own: Organisation, node: str, key: Any, signer: Signer | None) -> NodeServer:
    federation = own.build(plan, node)
    # Its model can be built, or we say so now. On the CPU: once a process has used a GPU, its children cannot.
    federation.computed(device="cpu").node(node)
    store, budget = NodeStore(own.place(node), plan.id), own.account(node)
    if budget is not None and not store.peek().applied:  # one that has begun goes on, and is absent
        _check_budget(federation, node, budget)
    vault = own.vault(plan, node, federation.topology, key)
    return NodeServer(plan, node, federation, store, own.policy(node), budget, vault, signer)


def _check_budget(federation: Federation, node: str, budget: Budget) -> None:
    """Raise where a node that begins could tell nothing: other federations have spent the budget."""
    privacy, links = federation.private(node), federation.topology.static[node]
    assert privacy is not None
    kinds = [k for k in federation.method.told if privacy.protects(k.name) and links.group(k.to)]
    charges = [charge for kind in kinds if (charge := privacy.charge(kind)) is not None]
    if charges and not any(map(budget.affords, charges)):
        raise DeployError(f"{budget.file}: the privacy budget is spent: no message of {node} could leave")
    steps = federation.step_charges(node)
    if steps and not any(map(budget.affords, steps)):
        raise DeployError(f"{budget.file}: the privacy budget is spent: {node} could not train a step")


def participate(folder: Path, poll: float = 0.3) -> None:
    """Take part until a signal comes."""
    from heterophony.deploy import flower

    own = Organisation.load(folder / FILE)
    key, ca = keys.private(folder / "node.key"), keys.certificate(folder / "ca.crt")  # before anything is loaded
    importlib.import_module("torch._dynamo")  # optimisers import it: once here, not with every question
    forkable()  # before data are loaded and a model is built
    here = household(folder, Signer(key))
    plan = here.first.plan
    own.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = FileLock(str(own.folder / "running"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise DeployError(f"{folder} takes part already, in another process") from None
    secret = own.folder / "executor.secret"
    keys.write_secret(secret, secrets.token_bytes(32))
    number = own.folder / "flower-node"  # a file with the SuperNode's number at the SuperLink

    def announce() -> None:
        """Tell the SuperLink that our SuperNode is gone: one that was killed has not said so itself."""
        with suppress(FileNotFoundError, ValueError):  # without its number the next one is let in after a minute
            flower.deactivate(plan.address, ca, key, int(number.read_text()))

    def ended(code: int) -> None:
        announce()
        why = preflight.complaint(plan.address, folder / "ca.crt")
        hint = f"if this goes on, ask whether the coordinator has this node.pub as keys/{own.name}.pub"
        log.warning("%s: %s", own.name, why or hint)

    command = _supernode_command(folder, plan, own, secret)
    supernode = Program("SuperNode", command, flower.environment(own.folder / "flwr"), ended)
    address = f"127.0.0.1:{own.port}"
    executor = flower.TaskWorker(address, secret.read_bytes(), None, server=False)
    stop_on_signals()
    busy: list[Any] = []  # children; as many as there are nodes, so that none waits for another's training
    try:
        wait_while(lambda: preflight.taken("127.0.0.1", own.port), log)  # `port` in organisation.toml
        wait_while(lambda: preflight.complaint(plan.address, folder / "ca.crt"), log)
        announce()
        supernode.start()
        while True:
            supernode.tend()
            busy = [child for child in busy if child.is_alive()]  # which also joins those that have ended
            if len(busy) < len(here.nodes) and (task := executor.acquire()) is not None:
                busy.append(forked(_answer, address, task, here, number))
            time.sleep(poll)
    except Stopped:
        log.info("%s stops", own.name)
    finally:
        supernode.stop()
        executor.close()
        lock.release()


def _supernode_command(folder: Path, plan: Plan, own: Organisation, secret: Path) -> list[str]:
    """Return the command that connects the organisation to the coordinator's SuperLink."""
    from heterophony.deploy import flower

    command = [sys.executable, "-P", "-m", "heterophony.deploy.whole_end"]  # so that we see when it has given up
    command += [flower.program("flower-supernode"), "--isolation", "process"]
    command += ["--superexec-auth-secret-file", str(secret), "--host", "127.0.0.1", "--port", str(own.port)]
    command += ["--superlink", plan.address, "--root-certificates", str(folder / "ca.crt")]
    return [*command, "--auth-supernode-private-key", str(folder / "node.key")]


def _answer(address: str, task: Any, here: Household, number: Path) -> int:
    """Answer one question, in a process of its own."""
    from heterophony.deploy import flower

    def reply(node: int, kind: str, data: bytes | Refused) -> bytes:
        with suppress(OSError):  # a full disk: the number only saves a minute after the SuperNode was killed
            if not number.exists() or number.read_text() != str(node):
                Disk().replace(number, str(node).encode())
        if kind != flower.QUESTION:
            data = Refused("no question of ours")
        if isinstance(data, Refused):
            here.first.store.note("refused", f"a message of type {kind!r:.60}: {data}")
            return codec.pack({"refused": str(data)})
        return here.answer(data)

    flower.answer(address, task, here.limit, reply)
    return 0
