"""Run the app on this machine: a SuperLink, two SuperNodes, and `flwr run`. Prints the figures: python rehearse.py"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def free_port():
    with closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def listens(port):
    with closing(socket.socket()) as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def ended(child):
    child.terminate()
    child.wait(30)


def main():
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="heterophony-")))
        link, results = f"127.0.0.1:{free_port()}", place / "results.json"
        environment = {**os.environ, **QUIET, "FLWR_HOME": str(place / "home"), "OMP_NUM_THREADS": "1"}
        environment["PATH"] = f"{BIN}{os.pathsep}{environment['PATH']}"  # Flower starts programs of its own by name
        (place / "home").mkdir()
        connection = f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "{link}"\ninsecure = true\n'
        (place / "home" / "config.toml").write_text(connection)
        log = stack.enter_context((place / "log").open("w"))

        def start(program, *words):
            child = subprocess.Popen([BIN / program, "--insecure", *words], env=environment, stdout=log, stderr=log)
            stack.callback(ended, child)

        host, port = link.split(":")
        start("flower-superlink", "--host", host, "--port", port, "--database", str(place / "state.db"),
              "--disable-runtime-dependency-installation")  # fmt: skip
        for _ in range(2):
            start("flower-supernode", "--superlink", link, "--host", host, "--port", str(free_port()),
                  "--node-config", f'state="{place / "state"}"')  # fmt: skip
        while not listens(int(port)):
            time.sleep(0.5)
        words = ["run", str(HERE), "here", "--stream", "--run-config", f'results="{results}"']
        subprocess.run([BIN / "flwr", *words], env=environment, stdout=log, stderr=log)
        if not results.exists():
            sys.exit((place / "log").read_text()[-3000:])
        print(results.read_text())


if __name__ == "__main__":
    main()
