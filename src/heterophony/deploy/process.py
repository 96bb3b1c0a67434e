"""Programs that we keep running: they end with us, and begin again when they end by themselves."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from heterophony.compute.workers import die_with_parent

log = logging.getLogger("heterophony.deploy")
PAUSE = 5.0  # seconds before a program that has ended begins again


class Program:
    """A program that is to be there all the time."""

    def __init__(
        self, name: str, command: Sequence[str], environment: dict[str, str], again: Callable[[int], None]
    ) -> None:
        self.name, self.command, self.environment = name, list(command), environment
        self.again = again  # called with the exit code before it begins again
        self.child: subprocess.Popen[bytes] | None = None
        self.ended = 0.0

    def start(self) -> None:
        self.child = subprocess.Popen(self.command, env=self.environment, stdin=subprocess.DEVNULL, preexec_fn=_bound)
        log.info("%s started, process %d", self.name, self.child.pid)

    def tend(self) -> bool:
        """Say whether it is running; start it again a while after it has ended."""
        if self.child is not None and (code := self.child.poll()) is not None:
            log.warning("%s ended (exit %d); it begins again in %g s", self.name, code, PAUSE)
            self.child, self.ended = None, time.monotonic()
            self.again(code)
        if self.child is None and time.monotonic() - self.ended >= PAUSE:
            self.start()
        return self.child is not None

    def stop(self, patience: float = 5.0) -> None:
        if self.child is None:
            return
        self.child.terminate()
        try:
            self.child.wait(patience)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
        self.child = None


def forkable() -> None:
    """Keep torch to one thread in this process, which will be forked.

    Threads of OpenMP are not there in a child. If its parent has used several, a child waits for them for ever. What
    runs in a child takes as many as its federation says.
    """
    import torch

    torch.set_num_threads(1)


def forked(work: Callable[..., Any], *arguments: Any) -> Any:
    """Start a child process with all that is loaded here; its exit code is that of `work`."""
    child = multiprocessing.get_context("fork").Process(target=_work, args=(work, *arguments), daemon=True)
    child.start()
    return child


def _work(work: Callable[..., Any], *arguments: Any) -> None:
    die_with_parent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    sys.exit(work(*arguments))


def _bound() -> None:
    """Let Flower's programs end with us, also when we are killed; Ctrl-C is ours to hand on."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def wait_while(trouble: Callable[[], str | None], log: logging.Logger, pause: float = 1.0) -> None:
    """Wait until nothing is in the way any more. What is, is said once, and when it changes."""
    said = None
    while (text := trouble()) is not None:
        if text != said:
            log.warning("waits: %s", text)
        said = text
        time.sleep(pause)


class Stopped(Exception):
    """A signal asked us to stop."""


def stop_on_signals() -> None:
    """Raise `Stopped` at the first signal; a second must not disturb what is being put away."""

    def stop(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        raise Stopped

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
