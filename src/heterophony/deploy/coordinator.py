"""The coordinator's process: keeps a SuperLink running, submits the run, and works on it until it is finished.

The run itself (clock, mailboxes, server roles) lives in a child of this process. When the SuperLink dies, and Flower's
run with it, another one is submitted, and a new child goes on from the snapshot.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from heterophony.base.disk import Disk
from heterophony.deploy import keys, preflight
from heterophony.deploy.audit import FOLDER as RECEIPTS
from heterophony.deploy.holders import CoordinatorsOwn
from heterophony.deploy.named_function import DeployError, beside, one_line
from heterophony.deploy.plan import FILE as PLAN
from heterophony.deploy.plan import Plan, parsed
from heterophony.deploy.process import PAUSE, Program, Stopped, forked, stop_on_signals, wait_while
from heterophony.deploy.receipts import Receipts
from heterophony.deploy.remote_host import RemoteHost
from heterophony.engines.engine import Engine, Stalled
from heterophony.federation import Federation
from heterophony.kernel.compute import Compute
from heterophony.runs.run import Run
from heterophony.runs.summary import Summary, finish

FILE = "coordinator.toml"
STATUS = "status.json"
PUT_OUT = "put-out.json"  # the nodes that a person at the coordinator has put out
GIVE_UP, BROKEN = 2, 1  # exit codes of the child: it makes no sense to try again; it may
SETTLED = 600.0  # seconds after which a run that ends does not count as one that cannot begin
log = logging.getLogger("heterophony.coordinator")


def public_keys(folder: Path, plan: Plan) -> dict[str, Any]:
    """Return organisations' public keys by name. They are known by their keys alone, so no two may be the same."""
    found = {name: keys.public(folder / "keys" / f"{name}.pub") for name in plan.everyone}
    owners: dict[bytes, str] = {}
    for name, key in found.items():
        other = owners.setdefault(keys.public_bytes(key), name)
        if other != name:
            raise DeployError(f"{folder / 'keys'}: {other}.pub and {name}.pub are the same key")
    return found


def superlink(folder: Path, listen: CoordinatorsOwn, secret: Path) -> list[str]:
    """Return the command that starts a SuperLink: TLS only, registered nodes only, and nobody's code but ours."""
    from heterophony.deploy import flower

    command = [flower.program("flower-superlink"), "--isolation", "process"]
    command += ["--superexec-auth-secret-file", str(secret), "--disable-runtime-dependency-installation"]
    command += ["--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile", str(folder / "server.pem")]
    command += ["--ssl-keyfile", str(folder / "server.key"), "--enable-supernode-auth"]
    return [*command, "--host", listen.host, "--port", str(listen.port), "--database", str(folder / "flower.db")]


def serve(folder: Path, poll: float = 0.3, attempts: int = 5) -> int:
    """Run the federation to its end; the exit code says how it went."""
    from heterophony.deploy import flower

    folder = folder.resolve()
    beside(folder)
    plan, listen = Plan.load(folder / PLAN), parsed(CoordinatorsOwn, folder / FILE)
    federation_of(plan, listen)  # what cannot be built is said before anything starts
    keys.check_server(folder)
    known = {name: flower.key_bytes(key) for name, key in public_keys(folder, plan).items()}
    lock = FileLock(str(folder / "running"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise DeployError(f"{folder} is served already, by another process") from None
    secret = folder / "executor.secret"
    keys.write_secret(secret, secrets.token_bytes(32))
    service = _Service(folder, listen, known, secret, attempts)
    stop_on_signals()
    try:
        wait_while(lambda: preflight.taken(listen.host, listen.port), log)  # as coordinator.toml says
        service.link.start()
        while (code := service.tend()) is None:
            time.sleep(poll)
        return code
    except Stopped:
        log.info("stopped; `heterophony deploy serve %s` goes on", folder)
        return 130
    finally:
        service.close()
        lock.release()


class _Service:
    """A SuperLink, the run that is submitted to it, and the child that works on the run."""

    def __init__(
        self, folder: Path, listen: CoordinatorsOwn, known: dict[str, bytes], secret: Path, attempts: int
    ) -> None:
        from heterophony.deploy import flower

        self.folder, self.listen, self.known, self.attempts = folder, listen, known, attempts
        self.ca = (folder / "ca.crt").read_bytes()
        self.lost: list[int] = []  # exit codes of SuperLinks
        environment = flower.environment(folder / "flwr-home")
        self.link = Program("SuperLink", superlink(folder, listen, secret), environment, self.lost.append)
        self.control = flower.Control(listen.address, self.ca)
        self.executor = flower.TaskWorker(listen.address, secret.read_bytes(), self.ca, server=True)
        self.run: int | None = None
        self.child: Any = None
        self.failures = 0
        self.began = 0.0  # when the child began, or may begin again

    def tend(self) -> int | None:
        """Do what there is to do now; return an exit code when there is nothing left."""
        if not self.link.tend() or self.lost:
            self.lost.clear()
            self.run = None
            self._end_child()  # its run is lost with the SuperLink; its snapshot is not
        elif self.run is None:
            self._submit()
        elif self.child is None:
            self._begin()
        elif not self.child.is_alive():
            return self._ended()
        return None

    def _submit(self) -> None:
        """Register the participants' keys and submit the run, as soon as the SuperLink can be reached."""
        from heterophony.deploy import flower

        if time.monotonic() < self.began or not self.control.reachable():
            return
        with suppress(*flower.OFFLINE):  # it has gone in the meantime: then it is tended, and we begin again
            for name, key in self.known.items():
                self.control.register(name, key)
            self.run = self.control.submit(self.folder / "app")
            log.info("run %d submitted", self.run)

    def _begin(self) -> None:
        """Let a child work on our run, once the SuperLink gives it out."""
        task = self.executor.acquire()
        if task is None:
            return
        if task.run != self.run:
            log.warning("run %d was not submitted here: nobody works on it", task.run)
            return
        self.began = time.monotonic()
        self.child = forked(_coordinate, self.folder, self.listen.address, task, self.ca)

    def _ended(self) -> int | None:
        """Return the exit code of a child that is done; let one that failed begin again, but not for ever."""
        self.child.join()
        code = self.child.exitcode
        if code in (0, GIVE_UP):
            return int(code)
        self.failures = 1 if time.monotonic() - self.began > SETTLED else self.failures + 1
        if self.failures >= self.attempts:
            log.error("the run ended %d times (exit %s); its folder is %s", self.failures, code, self.folder / "run")
            return 1
        pause = PAUSE * self.failures
        log.warning("the run ended (exit %s): it is submitted again in %g s", code, pause)
        self.run, self.child, self.began = None, None, time.monotonic() + pause
        return None

    def _end_child(self) -> None:
        if self.child is not None:
            self.child.kill()
            self.child.join()
            self.child = None

    def close(self) -> None:
        """Stop all that runs here."""
        self._end_child()
        self.link.stop()
        self.control.close()
        self.executor.close()


def _coordinate(folder: Path, address: str, task: Any, ca: bytes) -> int:
    from heterophony.deploy import flower

    plan = Plan.load(folder / PLAN)
    known = public_keys(folder, plan)
    held = {flower.key_bytes(key): plan.held_by(name) for name, key in known.items()}
    receipts = Receipts(folder / RECEIPTS, plan, known)
    try:
        federation = federation_of(plan, parsed(CoordinatorsOwn, folder / FILE))
        with flower.grid_of(address, task, ca) as grid:
            run(folder, plan, flower.Post(grid, held, plan.limit), federation, receipts)
    except (DeployError, Stalled, ValueError) as error:
        log.error("%s", one_line(str(error), 2000))  # it may quote what participants have sent
        return GIVE_UP
    except OSError as error:  # a full disk, most likely: it goes on from its snapshot when there is room
        log.error("%s: %s", error.filename or folder, (error.strerror or str(error)).lower())
        return BROKEN
    except Exception:
        log.exception("the run failed")
        return BROKEN
    return 0


def federation_of(plan: Plan, own: CoordinatorsOwn) -> Federation:
    """Build what the coordinator knows, with the data of its own nodes loaded."""
    held = {node: given.views(node) for node, given in own.nodes.items()}
    return plan.coordinator(held, compute=Compute(device=own.device, threads=own.threads))


def loaded(folder: Path) -> Federation:
    """Build what the coordinator knows whose folder this is."""
    beside(folder)
    return federation_of(Plan.load(folder / PLAN), parsed(CoordinatorsOwn, folder / FILE))


def run(
    folder: Path,
    plan: Plan,
    courier: Any,
    federation: Federation | None = None,
    receipts: Receipts | None = None,
) -> Summary:
    """Run the federation from its start, or from its snapshot, to its end; return its summary."""
    federation = federation or plan.coordinator()
    host = RemoteHost(plan, federation, courier, receipts=receipts)
    spec, place = federation.identity(), folder / "run"
    opened = Run.open(place, spec) if (place / "spec.json").exists() else Run.create(place, spec, plan.rounds)
    with opened as record:
        engine = Engine(federation, host, record=record)
        host.watch = lambda: _watch(folder, engine, host)
        result = engine.run(plan.rounds)
        finished = finish(spec, result, place)
        digests = {node: host.digest(node).hex() for node in result.nodes}
        Disk().replace(folder / "digests.json", (json.dumps(digests, indent=1) + "\n").encode())
    _report(folder, engine, host, finished=True)
    log.info("finished after %d rounds, models %s; results in %s", result.rounds, result.digest[:12], place)
    return finished


def put_out(folder: Path, node: str) -> None:
    """Have a participant put out of a run, whether it is in progress or not."""
    plan = Plan.load(folder / PLAN)
    if not (folder / FILE).exists():
        raise DeployError(f"{folder} is not a coordinator's folder")
    if node not in plan.participants:
        raise DeployError(f"no participant is called {node!r:.40}; there are {', '.join(plan.participants)}")
    Disk().replace(folder / PUT_OUT, json.dumps(sorted({*_put_out(folder), node})).encode())


def _put_out(folder: Path) -> list[str]:
    """Return who is to be put out."""
    path = folder / PUT_OUT
    try:
        return [str(node) for node in json.loads(path.read_text())] if path.exists() else []
    except (OSError, ValueError):
        log.warning("%s cannot be read: nobody is put out by it", path)
        return []


def _watch(folder: Path, engine: Engine, host: RemoteHost) -> None:
    """Do as a person at the coordinator has said since, and write how far the run is."""
    for node in _put_out(folder):
        engine.put_out(node, engine.clock, engine.leads[0], "the coordinator has put it out")
    _report(folder, engine, host)


def _report(folder: Path, engine: Engine, host: RemoteHost, finished: bool = False) -> None:
    """Write what `heterophony deploy status` shows."""
    lead = [box.round for box in engine.boxes.values() if box.role == engine.method.roles[0]]
    about: dict[str, Any] = {
        "round": min(lead, default=0),
        "rounds": engine.rounds,
        "finished": finished,
        "at": time.time(),
        "sent": engine.ledger.bytes(),
    }
    about |= {"waits_for": sorted(host.asked), "trouble": host.trouble, "incidents": len(engine.ledger.incidents)}
    about["latest"] = [f"{row['incident']} at {row['node']}: {row['detail']}" for row in engine.ledger.incidents[-5:]]
    try:
        Disk().replace(folder / STATUS, json.dumps(about).encode())
    except OSError as error:  # the run itself is not worse for it
        log.warning("%s: %s", folder / STATUS, (error.strerror or str(error)).lower())
