"""Each wall holds on its own: the namespaces without the filters, the filters on their own."""

import ast
import os
import platform
import socket
import subprocess

import pytest
from sandbox_host import needs_bubblewrap

from groupwise.sandbox import run_python
from groupwise.sandbox.bubblewrap import build_command
from groupwise.sandbox.seccomp import build_outer_filter, build_program_filter

pytestmark = needs_bubblewrap
needs_filters = pytest.mark.skipif(platform.machine() != "x86_64", reason="calls by their number")


def run_bare(code: str) -> object:
    """Return the value that code prints in the namespaces alone, without filters and limits."""
    command = build_command(file_mib=1, filter_fd=-1, arguments=[code])
    done = subprocess.run(command, capture_output=True, text=True, env={"SECRET": "1"}, check=False)
    assert done.returncode == 0, done.stderr
    return ast.literal_eval(done.stdout)


def test_there_is_no_network_but_an_empty_loopback() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = (
            "import socket\ns = socket.socket()\n"
            f"print(([n for _, n in socket.if_nameindex()], s.connect_ex(('127.0.0.1', {port}))))"
        )
        names, error = run_bare(code)  # pyright: ignore[reportGeneralTypeIssues]
    assert names == ["lo"]
    assert error != 0


def test_it_is_nobody_and_the_first_process() -> None:
    code = "import os\nprint((os.getpid(), os.getuid(), os.getgid(), os.uname().nodename))"
    assert run_bare(code) == (1, 65534, 65534, "sandbox")


def test_nothing_of_the_host_is_there() -> None:
    code = "import os\nprint((sorted(os.environ), os.listdir('/tmp'), os.path.exists('/proc')))"
    assert run_bare(code) == (["LANG", "PWD", "PYTHONHASHSEED"], [], False)


def test_it_has_no_capabilities() -> None:
    # PR_CAPBSET_READ says what could be had; capget (syscall 125) what there is.
    code = (
        "import ctypes\nl = ctypes.CDLL(None)\nh = (ctypes.c_uint * 2)(0x20080522, 0)\n"
        "d = (ctypes.c_uint * 6)()\nl.capget(h, d)\nprint(list(d)[:2] + list(d)[3:5])"
    )
    assert run_bare(code) == [0, 0, 0, 0]


def test_all_that_can_be_written_is_a_small_folder() -> None:
    code = (
        "import os\nfound = []\n"
        "for folder, _, _ in os.walk('/'):\n"
        "    if os.access(folder, os.W_OK): found.append(folder)\n"
        "s = os.statvfs('/tmp')\nprint((found, s.f_blocks * s.f_frsize))"
    )
    assert run_bare(code) == (["/tmp"], 1 << 20)


@needs_filters
@pytest.mark.parametrize(
    ("call", "arguments"),
    [(310, "os.getpid(), 0, 0, 0, 0, 0"), (135, "0xFFFFFFFF"), (312, "1, 1, 9, 0, 0")],
)
def test_the_outer_filter_holds_for_the_program(call: int, arguments: str) -> None:
    program = (
        "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
        f"[l.syscall({call}, {arguments}), ctypes.get_errno()]"
    )
    assert run_python(program).value == [-1, 1]


@needs_filters
def test_filters_are_whole_instructions_and_differ() -> None:
    outer, inner = build_outer_filter(), build_program_filter()
    assert outer != inner
    assert len(outer) % 8 == len(inner) % 8 == 0


def test_the_program_has_no_file_of_its_checker_or_of_the_host() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        program = (
            "import os, stat\nkinds = []\nfor n in range(64):\n"
            "    try: kinds.append((n, stat.S_IFMT(os.fstat(n).st_mode) >> 12))\n"
            "    except OSError: pass\nkinds"
        )
        value = run_python(program).value
    finally:
        os.close(reading)
        os.close(writing)
    # Input is a file (8); output, errors and the two ends of the talk with the checker are pipes.
    assert [kind for _, kind in value] == [8, 1, 1, 1, 1]
