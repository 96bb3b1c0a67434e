"""Runs a Python program so that its process ends when its main thread does, whatever other threads are left.

    python -m heterophony.deploy.whole_end PROGRAM ...

Flower's SuperNode gives up when a TLS handshake takes too long, as with a SuperLink that stands still. Its main thread
is over then. A thread that serves its port would keep the process, and nobody could see that it is connected no more.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> None:
    code = 1
    try:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
