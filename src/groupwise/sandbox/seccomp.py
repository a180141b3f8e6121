"""Filters of system calls, as the kernel takes them; none for machines other than x86-64.

One is for everything inside the sandbox: no tracing, mounting, namespaces or kernel interfaces.
The other is for the program alone: also no new processes, no other programs, no sockets, no
signals to others, no memory that its limits do not count.
Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/linux/{bpf_common,seccomp}.h.
"""

import platform
import struct

_X86_64 = 0xC000003E
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_EPERM, _ENOSYS = 1, 38
_X32_CALLS = 0x40000000
_CLONE, _CLONE3 = 56, 435
_CLONE_NEW_USER, _CLONE_THREAD = 0x10000000, 0x00010000

# ptrace, syslog, personality, acct, mounts, swap, reboot, modules, quota, keys, namespaces,
# kexec, perf, foreign memory, handles, bpf, userfaultfd, io_uring, pidfds
_NEVER = (
    *(101, 103, 135, 154, 155, 161, 163, 165, 166, 167, 168, 169, 172, 173, 175, 176, 179, 246),
    *(248, 249, 250, 272, 298, 303, 304, 308, 310, 311, 312, 313, 320, 321, 323, 424, 425, 426),
    *(427, 428, 429, 430, 431, 432, 433, 434, 438, 440, 442),
)
# sockets, fork, vfork, execve, kill, shared memory, semaphores, message queues, tkill, execveat,
# memfd_create, memfd_secret
_NOT_THE_PROGRAM = (
    *(29, 30, 41, 42, 43, 49, 50, 57, 58, 59, 62, 64, 68, 69, 200, 240, 288, 319, 322, 447),
)


def build_outer_filter() -> bytes:
    """Return the filter for everything inside, as an array of ``struct sock_filter``."""
    return _build(_NEVER, [_check_clone(_CLONE_NEW_USER, when_set=_EPERM)])


def build_program_filter() -> bytes:
    """Return the filter that the program's process adds to itself."""
    # clone3 has its flags in memory, where a filter cannot look: the C library falls back.
    no_clone3 = [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ERROR | _ENOSYS)]
    return _build(_NOT_THE_PROGRAM, [no_clone3, _check_clone(_CLONE_THREAD, when_clear=_EPERM)])


_Instruction = tuple[int, int, int, int]


def _check_clone(bit: int, *, when_set: int = 0, when_clear: int = 0) -> list[_Instruction]:
    """Return instructions that answer clone by whether a flag is set: an error, or go on."""
    yes = _ERROR | when_set if when_set else _ALLOW
    no = _ERROR | when_clear if when_clear else _ALLOW
    return [
        (_EQUAL, 0, 4, _CLONE),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 0, 1, bit),
        (_RETURN, 0, 0, yes),
        (_RETURN, 0, 0, no),
    ]


def _build(refused: tuple[int, ...], checks: list[list[_Instruction]]) -> bytes:
    if platform.machine() != "x86_64" or struct.calcsize("P") != 8:
        return b""
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _X86_64),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32_CALLS),
        (_RETURN, 0, 0, _ERROR | _EPERM),
    ]
    for check in checks:
        code += check
    for number in refused:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | _EPERM)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
