"""Each wall holds on its own: the namespaces without the filters, the filters on their own."""

import ast
import os
import platform
import re
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandbox_host import SHORT, needs_bubblewrap

from groupwise.sandbox import Limits, control_groups, run_python
from groupwise.sandbox.bubblewrap import build_command
from groupwise.sandbox.control_groups import find_place, make_group
from groupwise.sandbox.seccomp import (
    BY_ARGUMENT,
    NEVER,
    NOT_ROOTS,
    NOT_THE_PROGRAM,
    build_outer_filter,
    build_program_filter,
)

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


IN_GROUP = {"group_memory", "group_processes"}


@pytest.fixture
def looked_for_again() -> Iterator[None]:
    find_place.cache_clear()
    yield
    find_place.cache_clear()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a group with both controllers."""
    monkeypatch.setattr(control_groups, "find_place", lambda _: tmp_path)
    return tmp_path


@pytest.fixture
def real_place(looked_for_again: None, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A real group, with the controllers that it happens to have."""
    if find_place(os.getpid()) is None:
        monkeypatch.setattr(control_groups, "_CONTROLLERS", frozenset())
        monkeypatch.setattr(control_groups, "_list_limits", lambda limits: {})
        find_place.cache_clear()
    found = find_place(os.getpid())
    if found is None:
        pytest.skip("no control group of version 2 can be made here")
    return found


def list_groups(place: Path) -> list[Path]:
    return list(place.glob(f"groupwise-{os.getpid()}-*"))


def test_a_group_bounds_memory_and_processes_and_is_full_when_the_kernel_says_so(
    place: Path,
) -> None:
    group = make_group(Limits(memory_mib=100, file_mib=10, num_threads=4))
    assert group is not None
    (folder,) = list_groups(place)
    assert (folder / "memory.max").read_text() == str((2 * 100 + 10 + 64) << 20)
    assert (folder / "pids.max").read_text() == "10"
    assert not group.was_full()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 0\n")
    assert not group.was_full()
    (folder / "memory.events").write_text("low 0\noom 1\noom_kill 2\n")
    assert group.was_full()
    group.remove()


def test_what_the_kernel_ended_for_want_of_memory_was_over_its_memory(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_groups.Group, "was_full", lambda self: True)
    result = run_python("import ctypes\nctypes.CDLL(None).raise_(9)", limits=SHORT)
    assert (result.status, set(result.in_force) >= IN_GROUP) == ("memory", True)
    assert [(folder / "cgroup.procs").read_text() for folder in list_groups(place)] == ["0"]


def test_program_and_checker_are_in_the_group_and_it_is_gone_with_them(real_place: Path) -> None:
    def look() -> Any:
        return [len((f / "cgroup.procs").read_text().split()) for f in list_groups(real_place)]

    result = run_python("look()", functions={"look": look}, limits=SHORT)
    assert (result.value, set(result.in_force) >= IN_GROUP) == ([2], True)
    assert run_python("while True: pass", limits=Limits(timeout_s=0.3)).status == "timeout"
    control_groups._sweep()
    assert list_groups(real_place) == []


@pytest.mark.usefixtures("looked_for_again")
def test_without_a_group_the_result_does_not_claim_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_groups, "_list_above", lambda: iter(()))
    result = run_python("6 * 7", limits=SHORT)
    assert result.value == 42
    assert set(result.in_force) >= {"clock", "output", "processor_time", "address_space", "files"}
    assert not set(result.in_force) & IN_GROUP


def test_a_group_that_cannot_be_entered_is_not_claimed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = control_groups.Group.__init__

    def open_for_reading(self: Any, folder: Path) -> None:
        real(self, folder)
        os.close(self.entry)
        self.entry = os.open(folder / "cgroup.procs", os.O_RDONLY | os.O_CLOEXEC)

    monkeypatch.setattr(control_groups.Group, "__init__", open_for_reading)
    result = run_python("6 * 7", limits=SHORT)
    assert (result.value, set(result.in_force) & IN_GROUP) == (42, set())


@pytest.mark.usefixtures("looked_for_again")
def test_only_a_group_whose_children_have_both_controllers_is_a_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.setattr(control_groups, "_list_above", lambda: iter((inner, tmp_path)))
    monkeypatch.setattr(control_groups.Path, "rmdir", lambda self: None)
    (inner / "cgroup.subtree_control").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory pids\n")
    assert find_place(os.getpid()) == tmp_path
    assert not (inner / f"groupwise-{os.getpid()}-trial").exists()


HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
ALLOWED, REFUSED, MISSING, KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


def run_filter(code: bytes, architecture: int, number: int, *arguments: int) -> int:
    """Return what the kernel would answer: the instructions of ``struct sock_filter`` by hand."""
    padded = [*arguments, 0, 0, 0, 0, 0, 0][:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    place, held = 0, 0
    instructions = list(struct.iter_unpack("=HBBI", code))
    while True:
        kind, when_true, when_false, value = instructions[place]
        place += 1
        if kind == 0x20:
            held = int.from_bytes(data[value : value + 4], "little")
        elif kind == 0x06:
            return value
        else:
            is_true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[kind]
            place += when_true if is_true else when_false


@pytest.mark.parametrize(("column", "machine"), list(enumerate(HEADERS)))
def test_the_numbers_are_those_of_the_kernel(column: int, machine: str) -> None:
    header = HEADERS[machine]
    if not header.is_file():
        pytest.skip(f"no kernel header at {header}")
    found = re.findall(r"#define\s+__NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    numbers = {name: int(number) for name, number in found}
    for name, pair in {**NEVER, **NOT_THE_PROGRAM, **NOT_ROOTS, **BY_ARGUMENT}.items():
        number = pair[column]
        if name in numbers:
            assert number == numbers[name], name
        else:  # this machine has no such call, or the header is older than it
            assert number is None or number > max(numbers.values()), name


@pytest.mark.parametrize(("column", "machine"), list(enumerate(HEADERS)))
def test_what_is_refused_is_refused_and_the_rest_is_not(column: int, machine: str) -> None:
    architecture = ARCHITECTURES[machine]
    for code, names in (
        (build_outer_filter(machine), NEVER),
        (build_program_filter(machine), NOT_THE_PROGRAM),
    ):
        numbers = {pair[column] for pair in names.values()} - {None}
        asked = {pair[column] for pair in BY_ARGUMENT.values()}
        for number in range(470):
            if number not in asked:
                wanted = REFUSED if number in numbers else ALLOWED if number < 449 else MISSING
                assert run_filter(code, architecture, number) == wanted, number
        assert run_filter(code, 0, 1) == KILLED
        assert run_filter(code, architecture, 0x40000001) == REFUSED


@pytest.mark.parametrize(("column", "machine"), list(enumerate(HEADERS)))
@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("clone", (0x00010000,), ALLOWED),
        ("clone", (0,), REFUSED),
        ("clone3", (0,), MISSING),
        ("fcntl", (3, 1031), REFUSED),
        ("fcntl", (3, 2), ALLOWED),
        ("prctl", (22, 2), REFUSED),
        ("prctl", (15,), ALLOWED),
        ("prlimit64", (0, 1), ALLOWED),
        ("prlimit64", (1, 1), REFUSED),
        ("prlimit64", (0, 4), REFUSED),
        ("setrlimit", (4,), REFUSED),
        ("setrlimit", (1,), ALLOWED),
        ("socketpair", (1, 1), ALLOWED),
        ("socketpair", (2, 1), REFUSED),
    ],
)
def test_some_are_refused_by_their_arguments(
    name: str, arguments: tuple[int, ...], answer: int, column: int, machine: str
) -> None:
    number = BY_ARGUMENT[name][column]
    assert number is not None
    code = build_program_filter(machine)
    assert run_filter(code, ARCHITECTURES[machine], number, *arguments) == answer


def test_there_is_none_for_other_machines() -> None:
    assert (build_outer_filter("riscv64"), build_program_filter("riscv64")) == (b"", b"")
