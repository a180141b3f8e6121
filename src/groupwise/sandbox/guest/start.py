"""The first process of a sandbox: it forks the program, then checks it.

It is process 1 of its own namespace: the program cannot kill it, and when it ends the kernel ends
everything else there.
"""

from __future__ import annotations

import os
import sys
import time

from groupwise.sandbox.guest.channel import Channel
from groupwise.sandbox.guest.checker import Main, Program, ProgramGoneError, TestNames
from groupwise.sandbox.guest.confine import (
    close_files,
    filter_calls,
    hide_memory,
    limit_resources,
)
from groupwise.sandbox.guest.program import describe_error, run_code, run_program
from groupwise.sandbox.guest.surroundings import Surroundings
from groupwise.sandbox.guest.values import (
    MAX_MESSAGE_LENGTH,
    MAX_NAME_LENGTH,
    clean_text,
    read_value,
    write_value,
)

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from typing import Any

_CPU_SIGNALS = (9, 24)
_MAX_DEPTH, _FRAMES_OF_A_LEVEL = 1200, 5
# What the tests see with these is only in their own process.
_UNSEEN = ("assertWarns", "assertLogs", "assertNoLogs", "catch_warnings", "tracemalloc")


def main(control_fd: int, calls_fd: int, group_fd: int) -> None:
    """Hold one program, and one conversation with the host about it.

    Args:
        control_fd: socket to the host.
        calls_fd: socket for calls of host functions; -1 if there are none.
        group_fd: entry of a control group; -1 if there is none.
    """
    is_in_group = _enter(group_fd)
    control = Channel(control_fd, control_fd)
    request = control.receive()
    hide_memory()
    sys.argv[:] = ["program.py"]
    from_checker, to_program = os.pipe()
    from_program, to_checker = os.pipe()
    child = os.fork()
    if child == 0:
        kept = {from_checker, to_checker, calls_fd} - {-1}
        _become_program(request, Channel(from_checker, to_checker), calls_fd, kept)
    close_files({control_fd, to_program, from_program})
    limit_resources(request["limits"])
    # All that the program may send can be sent back: what could not would be refused, not failed.
    sys.setrecursionlimit(_MAX_DEPTH * _FRAMES_OF_A_LEVEL)
    program = Program(Channel(from_program, to_program, max_depth=_MAX_DEPTH))
    control.send({"started": True, "group": is_in_group})
    verdict = _judge(program, control, child)
    control.send(verdict)


def _enter(group_fd: int) -> bool:
    """Say whether this process is in its control group now, and what it forks will be."""
    if group_fd < 0:
        return False
    try:
        return os.write(group_fd, b"0") > 0
    except OSError:  # older kernels ask who writes, and not who has opened it
        return False
    finally:
        os.close(group_fd)


def _become_program(request: dict[str, Any], channel: Channel, calls: int, kept: set[int]) -> None:
    code = 1
    try:
        close_files(kept)
        limit_resources(request["limits"])
        filter_calls(bytes.fromhex(request["filter"]))
        run_program(request, channel, Channel(calls, calls) if calls >= 0 else None)
        code = 0
    except OSError as error:
        os.write(2, str(error).encode())
    finally:
        os._exit(code)


def _judge(program: Program, control: Channel, child: int) -> dict[str, Any]:
    """Return the verdict on the program; the tests come from the host after the body has run."""
    in_tests = False
    verdict: dict[str, Any] = {}
    tests: dict[str, Any] = {"source": ""}
    try:
        verdict = _read_body(program)
        if verdict["status"] != "passed":
            return {**verdict, "in_tests": False}
        control.send({"body": True})
        tests = control.receive()
        in_tests = tests["source"] != ""
        run_tests(program, tests["source"], tests["entry_point"])
        _end(program)
    except ProgramGoneError:
        pass
    except BaseException as error:  # noqa: BLE001 (whatever the tests raise decides)
        verdict = _blame(describe_error(error))
        unseen = next((word for word in _UNSEEN if word in tests["source"]), None)
        if unseen is not None:
            program.refuse(f"{unseen} to see into the program's process")
    verdict["in_tests"] = in_tests
    if program.is_gone:
        return {**_explain_end(child), "in_tests": in_tests}
    if program.not_passable:
        return {"status": "refused", "message": program.not_passable, "in_tests": True}
    return verdict


def _read_body(program: Program) -> dict[str, Any]:
    """Return how the program's body ended: with its value, or with its error.

    Raises:
        ProgramGoneError: if it does not say so in a message that can be read.
    """
    body = program.receive()
    try:
        if "error" in body:
            return _blame(body["error"])
        return {"status": "passed", "value": write_value(read_value(body["ok"]))}
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise program.leave("its answer cannot be read") from error


def run_tests(program: Program, source: str, entry_point: str | None) -> None:
    """Run tests against the program.

    Raises:
        BaseException: what the tests raise.
    """
    code = compile(source, "<tests>", "exec", 0x2000, dont_inherit=True)
    names = TestNames(program, entry_point)
    sys.modules["__main__"] = Main(names)  # pyright: ignore[reportArgumentType]
    program.surroundings = Surroundings(source, program)
    run_code(code, names)


def _end(program: Program) -> None:
    """Let the program write out what it printed, and wait until it has."""
    try:
        program.channel.send({"do": "end"})
        program.channel.receive()
    except OSError:
        program.is_gone = True
    except (EOFError, ValueError):
        return


def _blame(error: dict[str, Any]) -> dict[str, Any]:
    status = "memory" if error["class"] == "MemoryError" else "failed"
    return {
        "status": status,
        "error": clean_text(error["class"], max_length=MAX_NAME_LENGTH),
        "message": clean_text(error["text"], max_length=MAX_MESSAGE_LENGTH),
    }


def _explain_end(child: int) -> dict[str, Any]:
    """Return why the program's process is no more."""
    for _ in range(100):  # its files are closed a moment before it is gone
        gone, code = os.waitpid(child, os.WNOHANG)
        if gone:
            break
        time.sleep(0.002)
    if os.WIFSIGNALED(code) and os.WTERMSIG(code) in _CPU_SIGNALS:
        return {"status": "timeout", "message": "it used up its processor time"}
    if os.WIFSIGNALED(code):
        return {"status": "crashed", "message": f"signal {os.WTERMSIG(code)} ended its process"}
    return {"status": "crashed", "message": "its process ended or went silent before its end"}
