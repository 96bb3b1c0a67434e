"""Where an exception rose, in terms of the user's own files rather than ours or a library's."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

OURS = str(Path(__file__).parent.parent)
LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def in_one_line(error: Exception) -> str:
    """Return the error in one line, with the file and line of the user's code that led to it, if any did."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not _foreign(frame.filename)]
    said = f"{type(error).__name__}: {error}"
    if not own:
        return said
    last = own[-1]
    return f"{said} ({Path(last.filename).name}, line {last.lineno}, in {last.name})"


def trace(error: BaseException) -> str:
    """Return the traceback from the first line of the user's own code on; all of it if no line is the user's."""
    where = error.__traceback__
    while where is not None and _foreign(where.tb_frame.f_code.co_filename):
        where = where.tb_next
    return "".join(traceback.format_exception(type(error), error, where or error.__traceback__, chain=False))


def _foreign(filename: str) -> bool:
    """Tell whether a file is ours, or a library's."""
    return filename.startswith((OURS, *LIBRARIES, "<frozen"))
