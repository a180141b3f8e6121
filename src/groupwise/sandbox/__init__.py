"""Run Python that nobody has read, under limits.

One call, ``run_python``. A program is run by CPython under bubblewrap, and only there; without
bubblewrap it is refused. Each has a sandbox of its own, forked from one that is started once.

Covered: the program sees no file of the machine but the interpreter and its libraries, no
environment, no network and no other process; time, processor time, memory, temporary files,
threads and output are limited; nothing of it is left at the end. ``passed`` is decided in a
process that the program cannot reach, by tests that the program never sees.

Not covered: errors of the kernel or of bubblewrap that let a program out; the processor's
side channels; what host functions do with what they are given; objects of the program's own
classes, which may say of each other that they are equal. docs/decisions/0007-sandbox.md has more.
"""

from groupwise.sandbox.bubblewrap import explain_missing
from groupwise.sandbox.guest.values import Described
from groupwise.sandbox.host_functions import HostFunction
from groupwise.sandbox.result import Limits, ProgramTests, Result, Status
from groupwise.sandbox.run import run_python, run_python_async
from groupwise.sandbox.template import explain_slow

__all__ = [
    "Described",
    "HostFunction",
    "Limits",
    "ProgramTests",
    "Result",
    "Status",
    "explain_missing",
    "explain_slow",
    "run_python",
    "run_python_async",
]
