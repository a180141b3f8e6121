"""CPython under bubblewrap: start it, talk to it, end it at a limit.

The verdict comes from the checker, the sandbox's first process, over a socket that the program's
process does not have; see ``guest``.
"""

import asyncio
import math
import os
import socket
import subprocess
import time
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from groupwise.sandbox.bubblewrap import make_sealed_file
from groupwise.sandbox.calls import Caller
from groupwise.sandbox.control_groups import Group, make_group
from groupwise.sandbox.guest.values import (
    MAX_MESSAGE_LENGTH,
    MAX_NAME_LENGTH,
    clean_text,
    read_value,
)
from groupwise.sandbox.host_functions import HostFunctions
from groupwise.sandbox.messages import receive, send
from groupwise.sandbox.result import Job, Result, Status
from groupwise.sandbox.seccomp import build_program_filter
from groupwise.sandbox.template import Forked, is_roots, start_guest

_START_S = 20.0
_END_S = 1.0
_MAX_VERDICT_BYTES = 1 << 24  # the longest text of a value, each character an escape
_STATUSES: dict[Any, Status] = {status: status for status in get_args(Status)}
_FIRST = asyncio.FIRST_COMPLETED


@dataclass
class Output:
    """What the sandbox prints, up to a limit for both streams together."""

    max_bytes: int
    parts: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    async def read(self, number: int, stream: asyncio.StreamReader) -> None:
        """Read one stream to its end; after the limit, without keeping anything."""
        while part := await stream.read(1 << 16):
            room = self.max_bytes - sum(map(len, self.parts.values()))
            self.parts[number] += part[: max(room, 0)]
            if len(part) > room:
                self.is_over.set()

    def get_text(self, number: int) -> str:
        """Return what was kept of one stream."""
        return self.parts[number].decode("utf-8", "replace")


async def run_cpython(job: Job, functions: HostFunctions) -> Result:
    """Run a job in CPython under bubblewrap."""
    group = make_group(job.limits)
    output = Output(job.limits.output_kib << 10)
    try:
        verdict, in_force = await _run(job, functions, output, group)
        if group is not None and group.was_full():
            verdict = {**verdict, "status": "memory", "message": "over its group's memory"}
    finally:
        if group is not None:
            group.remove()
    return replace(read_verdict(verdict, output), in_force=in_force)


async def _run(
    job: Job, functions: HostFunctions, output: Output, group: Group | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the verdict, and which limits were in force."""
    control, control_inside = socket.socketpair()
    calls, calls_inside = socket.socketpair() if job.functions else (None, None)
    sockets = [s for s in (control, control_inside, calls, calls_inside) if s is not None]
    try:
        process = _start(job, control_inside, calls_inside, group)
        for inside in (control_inside, calls_inside):
            if inside is not None:
                inside.close()
        async with _Readers(process, output) as readers:
            talk = asyncio.ensure_future(_talk(job, control, readers))
            tasks: list[asyncio.Future[Any]] = [talk]
            if calls is not None:
                tasks.append(asyncio.ensure_future(Caller(calls, functions).answer_all()))
            try:
                verdict = await _watch(talk, readers.started, job, output, functions)
            except (OSError, EOFError, ValueError, RecursionError) as error:
                # What never started says nothing about the program.
                status = "crashed" if readers.started.is_set() else "refused"
                verdict = {"status": status, "message": str(error)}
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await readers.end(talk.done() and not talk.cancelled())
            if readers.is_lost:
                verdict = {"status": "refused", "message": "what it was forked from has ended"}
        return verdict, readers.in_force
    finally:
        for end in sockets:
            end.close()


def _start(
    job: Job, control: socket.socket, calls: socket.socket | None, group: Group | None
) -> Forked | subprocess.Popen[bytes]:
    text = (job.stdin or "").encode("utf-8", "surrogatepass")
    stdin = make_sealed_file("groupwise-input", text)
    try:
        return start_guest(
            file_mib=job.limits.file_mib,
            stdin=stdin,
            control_fd=control.fileno(),
            calls_fd=-1 if calls is None else calls.fileno(),
            group_fd=-1 if group is None else group.entry,
        )
    finally:
        os.close(stdin)


class _Readers:
    """The process and the tasks that read its streams; nothing of it is left at the end."""

    def __init__(self, process: Any, output: Output) -> None:
        self.process = process
        self.output = output
        self.started = asyncio.Event()
        self.is_lost = False  # by no fault of the program
        self.in_force: tuple[str, ...] = ()
        self.transports: list[asyncio.ReadTransport] = []
        self.tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "_Readers":
        loop = asyncio.get_running_loop()
        for number, pipe in ((1, self.process.stdout), (2, self.process.stderr)):
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(lambda p=protocol: p, pipe)
            self.transports.append(transport)
            self.tasks.append(asyncio.ensure_future(self.output.read(number, reader)))
        return self

    async def end(self, is_orderly: bool) -> None:
        """Wait for the sandbox's end; kill it unless it ends by itself."""
        self.is_lost = isinstance(self.process, Forked) and self.process.is_lost()
        if not is_orderly:
            self.process.kill()
        # The streams are closed when the last process inside is gone.
        _, late = await asyncio.wait(self.tasks, timeout=_END_S)
        if late:
            self.process.kill()
            await asyncio.wait(late, timeout=_END_S)

    async def __aexit__(self, *_: object) -> None:
        self.process.kill()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for transport in self.transports:
            transport.close()
        await asyncio.sleep(0)
        self.process.wait()


async def _talk(job: Job, control: socket.socket, readers: _Readers) -> dict[str, Any]:
    """Send the request, the tests when the program's body has run, and return the verdict."""
    control.setblocking(False)
    request = _describe(job)
    roots = is_roots(readers.process)
    request["filter"] = build_program_filter(is_roots=roots).hex()
    await send(control, request)
    answer = await receive(control, max_bytes=_MAX_VERDICT_BYTES)
    if "started" not in answer:
        raise ValueError("it did not start")
    readers.in_force = _list_limits(
        is_roots=roots, is_filtered=request["filter"] != "", is_in_group=answer.get("group") is True
    )
    readers.started.set()
    message = await receive(control, max_bytes=_MAX_VERDICT_BYTES)
    if "body" in message:
        tests = job.tests
        source, entry_point = (tests.source, tests.entry_point) if tests else ("", None)
        await send(control, {"source": source, "entry_point": entry_point})
        message = await receive(control, max_bytes=_MAX_VERDICT_BYTES)
    return message


def _list_limits(*, is_roots: bool, is_filtered: bool, is_in_group: bool) -> tuple[str, ...]:
    always = ("clock", "output", "processor_time", "address_space", "files")
    return (
        *always,
        *(() if is_roots else ("threads",)),  # the kernel counts none of root
        *(("system_calls",) if is_filtered else ()),
        *(("group_memory", "group_processes") if is_in_group else ()),
    )


def _describe(job: Job) -> dict[str, Any]:
    limits = job.limits
    return {
        "program": job.program,
        "has_tests": job.tests is not None,
        "functions": dict(job.functions),
        "in_order": job.is_in_order,
        "limits": {
            "cpu_s": math.ceil(limits.cpu_s or limits.timeout_s),
            "memory_bytes": limits.memory_mib << 20,
            "file_bytes": limits.file_mib << 20,
            "num_threads": limits.num_threads,
        },
    }


async def _watch(
    talk: asyncio.Task[dict[str, Any]],
    started: asyncio.Event,
    job: Job,
    output: Output,
    functions: HostFunctions,
) -> dict[str, Any]:
    """Return the verdict, or the limit that was passed before there was one."""
    over = asyncio.ensure_future(output.is_over.wait())
    start = asyncio.ensure_future(started.wait())
    try:
        await asyncio.wait({talk, start}, timeout=_START_S, return_when=_FIRST)
        if not started.is_set() and not talk.done():
            return {"status": "refused", "message": f"it did not start within {_START_S:g} s"}
        start_s, waited_s = time.monotonic(), functions.budget.measure()
        while not talk.done() and not over.done():
            waiting_s = functions.budget.measure()
            left_s = job.limits.timeout_s - (time.monotonic() - start_s) + waiting_s - waited_s
            if left_s <= 0:
                return {"status": "timeout", "message": f"over {job.limits.timeout_s:g} s"}
            host_left_s = job.limits.host_timeout_s - waiting_s
            if host_left_s <= 0:
                return {"status": "timeout", "message": "the host functions took too long"}
            await asyncio.wait({talk, over}, timeout=min(left_s, host_left_s), return_when=_FIRST)
    finally:
        over.cancel()
        start.cancel()
    return talk.result() if talk.done() else {"status": "output"}


def read_verdict(verdict: dict[str, Any], output: Output) -> Result:
    """Return the result that a message says; whatever it is, there is one."""
    stdout = output.get_text(1)
    if output.is_over.is_set():
        message = f"it printed more than {output.max_bytes >> 10} KiB"
        return Result("output", stdout=stdout, message=message)
    try:
        value = read_value(verdict.get("value"))
        status = _STATUSES[verdict.get("status")]
    except (TypeError, ValueError, LookupError):
        message = "its verdict cannot be read"
        return Result("crashed", stdout=stdout, message=message)
    message = _read_text(verdict.get("message"), max_length=MAX_MESSAGE_LENGTH)
    if status in ("crashed", "refused"):
        message = " ".join([message, *output.get_text(2).split()])[:1000]
    return Result(
        status,
        value=value,
        stdout=stdout,
        error=_read_text(verdict.get("error"), max_length=MAX_NAME_LENGTH),
        message=message,
        in_tests=verdict.get("in_tests") is True,
    )


def _read_text(text: object, *, max_length: int) -> str:
    return clean_text(text, max_length=max_length) if isinstance(text, str) else ""
