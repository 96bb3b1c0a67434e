"""Write what every row of the conformance table ends on, or compare it with what was written before.

    python tools/digests.py write FILE
    python tools/digests.py compare FILE [ROW ...]

A change that should not change results is made between the two, on the same machine: other kinds of CPU round
otherwise. Each row has the digest of all nodes' states, the virtual clock, the bytes sent by kind, and a hash of the
evaluation table.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "tests"), str(HERE / "src")]

from heterophony.engines import local  # noqa: E402
from toys.federations import ROWS  # noqa: E402


def outcome(row):
    """Return what one row ends on, as plain values."""
    result = local(row.build(), **row.options).run(row.rounds)
    table = hashlib.sha256(repr(result.table.rows).encode()).hexdigest()[:16]
    return {"digest": result.digest, "clock": result.clock, "bytes": result.ledger.bytes(), "table": table}


def main(task, file, *names):
    torch.set_num_threads(1)
    chosen = [row for row in ROWS if not names or row.name in names]
    now = {row.name: outcome(row) for row in chosen}
    if task == "write":
        Path(file).write_text(json.dumps(now, indent=1) + "\n")
        print(f"{len(now)} rows written")
        return 0
    before = json.loads(Path(file).read_text())
    missing = [name for name in before if name not in now and not names]
    new = [name for name in now if name not in before]
    other = {n: [k for k in now[n] if now[n][k] != before[n][k]] for n in now if n in before}
    for name, parts in other.items():
        if parts:
            print(f"{name}: {', '.join(parts)} differ")
    print(f"{sum(not parts for parts in other.values())} rows equal, {sum(map(bool, other.values()))} differ,", end=" ")
    print(f"{len(missing)} gone{''.join(f' {n}' for n in missing)}, {len(new)} new{''.join(f' {n}' for n in new)}")
    return int(any(other.values()) or bool(missing))


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] not in ("write", "compare"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
