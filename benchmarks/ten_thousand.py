"""What the commands that read results take for a run of 10,000 participants: seconds, memory, and lines on the screen.

python benchmarks/ten_thousand.py FOLDER [--participants 10000] [--rounds 2]

It makes FOLDER/ditto/seed-0 with a real run of tiny participants, unless it is there: with Ditto, so that each has a
model of its own, and a figure. Then it times each command in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

    from heterophony import Participants


def world() -> Participants:
    """Return participants with four rows each, and one test set for all."""
    import torch  # late, as all of these: what a command takes is then its own

    from heterophony import Data, Participants

    count = int(os.environ["PARTICIPANTS"])
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(count, 4, 3, generator=draw)
    y = (x.sum(-1) > 0).long()
    data = {f"c{i:05}": Data(x=x[i], y=y[i], classes=2) for i in range(count)}
    tests = Data(x=torch.randn(20, 3, generator=draw), y=torch.arange(20) % 2, classes=2)
    return Participants(data=data, models=net, tests=tests)


def net() -> nn.Module:
    """Return a network of eight numbers."""
    from torch import nn

    return nn.Linear(3, 2)


def timed(*command: str, where: Path) -> tuple[float, float, int]:
    """Return the CPU seconds and the megabytes of a command, and how many lines it says."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as wrong:
        child = subprocess.Popen([sys.executable, "-m", "heterophony", *command], cwd=where, stdout=out, stderr=wrong)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        wrong.seek(0)
        if child.returncode:
            raise SystemExit(f"{' '.join(command)}: {wrong.read()[-2000:]}")
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, len(out.read().splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--participants", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=2)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    os.environ["PARTICIPANTS"] = str(args.participants)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    compare = ("compare", "ditto", "--on", "ten_thousand:world", "--seeds", "1", "--rounds", str(args.rounds))
    compare = (*compare, "--out", ".", "--set", f"evaluate={args.rounds}")
    made, _, _ = timed(*compare, where=args.folder)
    print(f"{date.today()}, {platform.machine()}, {args.participants} participants; made in {made:.0f} CPU seconds\n")
    print("| command | CPU seconds | memory, MB | lines |\n|---|---|---|---|")
    run = "ditto/seed-0"
    for command in (
        ("methods",),
        ("show", run),
        ("show", run, "--json"),
        ("ledger", run),
        ("ledger", run, "--json"),
        compare,
        ("report", ".", "--to", "report.html"),
    ):
        spent, peak, lines = timed(*command, where=args.folder)
        name = " ".join([*command[:2], *(["--json"] if "--json" in command else [])])
        print(f"| {name} | {spent:.1f} | {peak:.0f} | {lines} |", flush=True)


if __name__ == "__main__":
    main()
