"""A process that becomes programs: it is started once, and forks for each of them.

It alone may make namespaces. What it forks makes its own (processes, files, network, and so on)
with an empty temporary folder, goes into a user namespace without any right to these, drops every
capability and takes the filter; only then does it read what it is to run. The template itself
never reads anything of a program.
"""

from __future__ import annotations

import _socket
import gc
import os
import select
import sys

from groupwise.sandbox.guest.confine import (
    call_system,
    close_files,
    drop_capabilities,
    filter_calls,
)
from groupwise.sandbox.guest.start import main as run_guest

TYPE_CHECKING = False  # typing takes as long to import as all the rest
if TYPE_CHECKING:
    from collections.abc import Callable

_NEW_USER, _NEW_PID = 0x10000000, 0x20000000
_NEW_OTHERS = 0x40000000 | 0x08000000 | 0x04000000 | 0x02000000 | 0x00020000
_NO_SUID_NO_DEVICES, _PRIVATE_BELOW = 2 | 4, 0x40000 | 0x4000
_NUM_FILES, _INT_BYTES = 7, 4
_SIGKILL = 9
_NUM_INODES = 4096
_NOBODY = 65534
_REAP_MS = 20


def main(requests_fd: int, filter_fd: int, has_nobody: int) -> None:
    """Fork for every request until there is nobody to ask.

    Args:
        requests_fd: socket on which the host asks; it is told when all is well.
        filter_fd: file with the filter for all that is forked; -1 for none.
        has_nobody: whether there is a user for programs beside the one that this process is.
    """
    outer = os.pread(filter_fd, 1 << 16, 0) if filter_fd >= 0 else b""
    requests = _socket.socket(fileno=requests_fd)
    close_files({requests_fd})
    me = os.pidfd_open(os.getpid())
    user = _NOBODY if has_nobody else None
    trial = _fork(me, lambda: _try(user, outer))
    if os.waitpid(trial, 0)[1] != 0:
        return
    null = os.open("/dev/null", os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    gc.freeze()
    requests.send(b"ready")
    _serve(requests, me, user, outer)


def _try(user: int | None, outer: bytes) -> None:
    _divide(1 << 20, user, outer)
    with open(os.__file__, "rb"):  # that user may read the interpreter
        return


def _serve(requests: _socket.socket, me: int, user: int | None, outer: bytes) -> None:
    """Start what is asked for, and end what the host has let go of."""
    running: dict[int, int] = {}
    dying: list[int] = []
    watched = select.poll()
    watched.register(requests.fileno(), select.POLLIN)
    while True:
        for descriptor, _ in watched.poll(_REAP_MS if dying else None):
            if descriptor in running:
                dying.append(running.pop(descriptor))
                os.kill(dying[-1], _SIGKILL)
                watched.unregister(descriptor)
                os.close(descriptor)
                continue
            request, (line, *files) = _receive(requests)
            try:
                running[line] = _fork(
                    me, lambda r=request, f=files: _become_guest(r, f, user, outer)
                )
                watched.register(line, select.POLLIN)
            except OSError:  # too many processes or namespaces, for now
                os.close(line)
            for given in files:
                os.close(given)
        dying = [child for child in dying if not os.waitpid(child, os.WNOHANG)[0]]


def _receive(requests: _socket.socket) -> tuple[list[int], list[int]]:
    """Return numbers and descriptors of the next request; end if there is none.

    The numbers are the size of the folder, and whether there are calls and a control group.
    """
    room = _socket.CMSG_SPACE(_NUM_FILES * _INT_BYTES)
    data, sent, _, _ = requests.recvmsg(64, room, _socket.MSG_CMSG_CLOEXEC)
    if not data:
        os._exit(0)
    packed = sent[0][2]
    places = range(0, len(packed), _INT_BYTES)
    numbers = [int(number) for number in data.split()]
    return numbers, [int.from_bytes(packed[at : at + _INT_BYTES], sys.byteorder) for at in places]


def _fork(me: int, work: Callable[[], None]) -> int:
    """Return the process, the first one of its namespace, that does some work and ends."""
    call_system("unshare", _NEW_PID)
    try:
        child = os.fork()
        if child == 0:
            _do(work)
    finally:
        call_system("setns", me, _NEW_PID)
    return child


def _do(work: Callable[[], None]) -> None:
    code = 1
    try:
        work()
        code = 0
    except BaseException as error:  # noqa: BLE001 (whatever it is, this is no template)
        os.write(2, f"{type(error).__name__}: {error}".encode())
    finally:
        os._exit(code)


def _become_guest(request: list[int], files: list[int], user: int | None, outer: bytes) -> None:
    size, has_calls, has_group = request
    for number in range(3):
        os.dup2(files[number], number)
    control, *others = files[3:]
    close_files({control, *others})
    calls = others[0] if has_calls else -1
    group = others[-1] if has_group else -1
    _divide(size, user, outer)
    run_guest(control, calls, group)


def _divide(size: int, user: int | None, outer: bytes) -> None:
    """Leave everything that is the template's, for good.

    Raises:
        OSError: if this machine does not allow it.
    """
    os.setsid()  # signals to a group reach all of it, whatever their namespaces
    call_system("unshare", _NEW_OTHERS)
    call_system("mount", None, b"/", None, _PRIVATE_BELOW, None)
    # An empty file takes no room in the folder, and some of the kernel's memory.
    options = b"mode=0755,size=%d,nr_inodes=%d" % (size, _NUM_INODES)
    if user is not None:
        options += b",uid=%d,gid=%d" % (user, user)
    call_system("mount", b"tmpfs", b"/tmp", b"tmpfs", _NO_SUID_NO_DEVICES, options)
    os.chdir("/tmp")
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    call_system("unshare", _NEW_USER)  # those before belong to the old one: it has no right to them
    drop_capabilities()
    filter_calls(outer)
