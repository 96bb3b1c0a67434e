"""Three hospitals and a coordinator on this machine, over TLS, each in a folder of its own: python three_hospitals.py

Needs `pip install 'heterophony[flower]'`. Each process here would be a machine of its own in earnest, with nginx before
the coordinator; the page "Train between organisations" says how.
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from hospitals import HOSPITALS

HERE = Path(__file__).resolve().parent
ORGANISATION = """name = "{name}"
federation = "{federation}"
model = "hospitals:net"
data = {{ call = "hospitals:patients", arguments = {{ name = "{name}" }} }}
port = {port}

[egress]
kinds = ["update"]          # all that may leave
metrics = ["private-test"]  # figures that the coordinator hears of
"""


def heterophony(*words, **options):
    return subprocess.Popen([sys.executable, "-m", "heterophony", *map(str, words)], **options)


def free_ports(count):
    """Return ports that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def start(stack, what, folder):
    """Start one end of the federation in its folder; it ends with the stack."""
    log = stack.enter_context((folder / "log").open("w"))
    process = heterophony("deploy", what, ".", cwd=folder, stdout=log, stderr=log)
    stack.callback(process.wait)
    stack.callback(process.terminate)
    return process


def federate(ward, rounds):
    """Make the folders, start everybody, wait for the end, and return the coordinator's result."""
    port, *others = free_ports(1 + len(HOSPITALS))
    at = f"127.0.0.1:{port}"
    words = ["--method", "ditto", "--participants", ",".join(HOSPITALS), "--common", "hospitals:net"]
    made = heterophony("deploy", "init", ward, *words, "--address", at, "--listen", at, "--rounds", rounds)
    if made.wait():
        raise SystemExit(made.returncode)
    coordinator, folders = ward / "coordinator", [ward / "participants" / name for name in HOSPITALS]
    shutil.copy(HERE / "hospitals.py", coordinator)
    plan = (coordinator / "federation.toml").read_text()
    federation = next(line.split('"')[1] for line in plan.splitlines() if line.startswith("id"))
    with ExitStack() as stack:
        for name, folder, own in zip(HOSPITALS, folders, others, strict=True):
            shutil.copy(HERE / "hospitals.py", folder)
            told = ORGANISATION.format(name=name, federation=federation, port=own)
            (folder / "organisation.toml").write_text(told)
            start(stack, "node", folder)
        serving = start(stack, "serve", coordinator)
        while serving.poll() is None:
            time.sleep(0.5)
        if serving.returncode:
            raise SystemExit((coordinator / "log").read_text())
    return json.loads((coordinator / "run" / "result.json").read_text())


def main(rounds=3):
    with tempfile.TemporaryDirectory() as place:
        result = federate(Path(place) / "ward", rounds)
    print(f"{result['rounds']} rounds; bytes by kind: {result['bytes']}")
    for name, figures in result["metrics"]["participants"].items():
        print(f"{name}: {100 * figures['private']:.1f} % right on its own test patients")
    return result


if __name__ == "__main__":
    main()
