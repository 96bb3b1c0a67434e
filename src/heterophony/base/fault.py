"""Where an exception rose, told in terms of the user's own files: not of ours, nor of a library's."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).parent.parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def told(error: Exception) -> str:
    """The error in one line; with the file and line of the user's code that led to it, if any did."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _foreign(frame.filename)]
    place = f" ({Path(own[-1].filename).name}, line {own[-1].lineno}, in {own[-1].name})" if own else ""
    return f"{type(error).__name__}: {error}{place}"


def trace(error: BaseException) -> str:
    """Its traceback from the first line of the user's own code on; the whole where none is theirs."""
    where = error.__traceback__
    while where is not None and _foreign(where.tb_frame.f_code.co_filename):
        where = where.tb_next
    return "".join(traceback.format_exception(type(error), error, where or error.__traceback__, chain=False))


def _foreign(filename: str) -> bool:
    return filename.startswith((OURS, *LIBRARIES, "<frozen"))
