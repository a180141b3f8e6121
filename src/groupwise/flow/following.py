"""What a process that trains says, passed on as if its work were done here."""

import sys
from pathlib import Path


class LogFollower:
    """Passes on whole lines of a log; the first is a title, which only the log has.

    Args:
        log: which may not be there yet.
        start: where the process begins in it, bytes.
    """

    def __init__(self, log: Path, start: int) -> None:
        self._log, self._place, self._has_title = log, start, False

    def __call__(self) -> None:
        """Pass on what has been said since the last call."""
        if not self._log.is_file():
            return
        with self._log.open("rb") as stream:
            stream.seek(self._place)
            said = stream.read()
        whole = said[: said.rfind(b"\n") + 1]
        self._place += len(whole)
        lines = whole.decode(errors="replace").splitlines(keepends=True)
        if lines and not self._has_title:
            self._has_title, lines = True, lines[1:]
        sys.stderr.write("".join(lines))
        sys.stderr.flush()
