"""A real federation on this machine: a SuperLink, four SuperNodes, TLS, node keys, and a process for each end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from heterophony.base.toml import written
from heterophony.compute.workers import die_with_parent
from heterophony.deploy.folder import prepare

ROOT = Path(__file__).parents[2]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Loopback:
    """The folders of a case, and the processes that were started in them; `with` ends them all."""

    def __init__(self, case, folder, own=None, proxy=False, host="127.0.0.1", pauses=None, **changes):
        self.case, self.folder, self.pauses = case, folder, pauses or {}
        everyone = case.plan().everyone
        self.port, outer, *ports = free_ports(2 + len(everyone))
        self.outer = outer if proxy else self.port
        address, listen = f"{host}:{self.outer}", f"{host}:{self.port}"
        self.plan = case.plan(**{"address": address, "pace": {"poll": 0.2, "again": 30.0}, **changes})
        prepare(folder, self.plan, ports, listen)
        self.coordinator = folder / "coordinator"
        self.homes = {name: folder / "participants" / name for name in everyone}
        if case.own:
            own = {"host": host, "port": self.port, **case.own}
            (self.coordinator / "coordinator.toml").write_text(written(own))
        for name, port in zip(everyone, ports, strict=True):
            made = case.organisation(name, port=port, folder="state", **(own or {}).get(name, {}))
            (self.homes[name] / "organisation.toml").write_text(written(made.model_dump(mode="json")))
        self.processes = {}

    def command(self, what, place):
        return [sys.executable, "-m", "heterophony", "deploy", what, str(place)]

    def environment(self, name=""):
        paths = [str(ROOT / "src"), str(ROOT / "tests")]
        known = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
        return {**os.environ, **known, "TOY_PAUSE": str(self.pauses.get(name, 0))}

    def start(self, *names, wrap=()):
        """Start nodes, or the coordinator under the name "serve"; each in a session of its own."""
        for name in names:
            what, place = ("serve", self.coordinator) if name == "serve" else ("node", self.homes[name])
            with open(self.log(name), "ab") as log:
                self.processes[name] = subprocess.Popen(
                    [*wrap, *self.command(what, place)], env=self.environment(name), cwd=self.folder, stdout=log,
                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                    preexec_fn=die_with_parent,
                )  # fmt: skip

    def log(self, name):
        return self.folder / f"{name}.log"

    def kill(self, name):
        """kill -9 the process and all that it has started."""
        child = self.processes.pop(name)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()

    def pids(self, name, program):
        """The processes of Flower's program that one of ours has started."""
        leader = self.processes[name].pid
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            try:
                text = (path / "cmdline").read_bytes().decode()
                group = int((path / "stat").read_text().rpartition(")")[2].split()[2])
            except (OSError, ValueError):
                continue
            if program in text and group == leader:
                found.append(int(path.name))
        return found

    def wait_for(self, condition, seconds, what):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if (found := condition()) is not None and found is not False:
                return found
            if "serve" in self.processes and self.processes["serve"].poll() not in (None, 0):
                raise AssertionError(f"the coordinator ended:\n{self.logs()}")
            time.sleep(0.2)
        raise AssertionError(f"{what} within {seconds} s:\n{self.logs()}")

    def finish(self, seconds=400):
        """Wait until the coordinator has ended well; the result that it wrote."""
        self.wait_for(lambda: self.processes["serve"].poll() == 0, seconds, "the federation did not finish")
        return json.loads((self.coordinator / "run" / "result.json").read_text())

    def state(self, node):
        """The folder of a node's state, at whoever holds it."""
        holder = self.case.holder(node)
        return self.homes[holder] / "state" / ("" if holder == node else f"nodes/{node}")

    def busy(self, name):
        """Whether the node is in the middle of a reaction: then it holds its store."""
        path = self.state(name) / "lock"
        if not path.exists():
            return False
        try:
            with FileLock(str(path), timeout=0):
                return False
        except Timeout:
            return True

    def round(self):
        """The coordinator's, as of its last report."""
        try:
            return json.loads((self.coordinator / "status.json").read_text())["round"]
        except (OSError, ValueError):
            return -1

    def incidents(self, name):
        path = self.state(name) / f"{self.plan.id}.incidents.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def ledger(self, name):
        path = self.state(name) / f"{self.plan.id}.ledger.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows(self):
        path = self.coordinator / "run" / "ledger.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def logs(self):
        return "\n".join(f"== {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log")))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for child in self.processes.values():
            if child.poll() is None:
                child.terminate()
        for child in self.processes.values():
            with suppress(subprocess.TimeoutExpired):
                child.wait(15)
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
