"""The filters name calls as the kernel does, on both machines, and answer as they should."""

import re
import struct
from pathlib import Path

import pytest

from groupwise.sandbox.seccomp import (
    BY_ARGUMENT,
    NEVER,
    NOT_ROOTS,
    NOT_THE_PROGRAM,
    build_outer_filter,
    build_program_filter,
)

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
