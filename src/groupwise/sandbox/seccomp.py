"""Filters of system calls, as the kernel takes them, for x86-64 and aarch64.

One is for everything inside the sandbox: no tracing, mounting, namespaces or kernel interfaces.
The other is for the program alone: also no new processes, no other programs, no sockets but pairs,
no signals to others, nothing that is done to other processes or to the whole machine (its locks,
caches and logs among it), and no memory that its limits do not count: that of the kernel for
attributes, queues, watches, timers and large pipes.
What a kernel got after these tables were written does not exist in either.
Source: Linux, arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h (aarch64);
include/uapi/linux/{audit,bpf_common,seccomp}.h.
"""

import platform
import struct
from collections.abc import Callable, Mapping

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT, _ARGUMENT_BYTES = 0, 4, 16, 8
_EPERM, _ENOSYS = 1, 38
_X32_CALLS = 0x40000000
_FIRST_UNKNOWN = 449  # on both; C libraries do without, as on an older kernel
_CLONE_NEW_USER, _CLONE_THREAD = 0x10000000, 0x00010000
_SET_PIPE_SIZE, _LEASE, _NOTIFY = 1031, 1024, 1026
_CORE_SIZE, _SET_SECCOMP = 4, 22
_UNIX = 1

# The number of each call on x86-64 and on aarch64; None where there is none.
NEVER: dict[str, tuple[int | None, int | None]] = {
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "personality": (135, 92),
    "modify_ldt": (154, None),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "acct": (163, 89),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "iopl": (172, None),
    "ioperm": (173, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "process_madvise": (440, 440),
    "mount_setattr": (442, 442),
    "quotactl_fd": (443, 443),
    "process_mrelease": (448, 448),
}
NOT_THE_PROGRAM: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "accept": (43, 202),
    "accept4": (288, 242),
    "bind": (49, 200),
    "listen": (50, 201),
    "sendmsg": (46, 211),
    "sendmmsg": (307, 269),
    "recvmsg": (47, 212),
    "recvmmsg": (299, 243),
    "setsockopt": (54, 208),
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "mq_notify": (244, 184),
    "mq_timedsend": (242, 182),
    "mq_timedreceive": (243, 183),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "timer_create": (222, 107),
    "timerfd_create": (283, 85),
    "eventfd": (284, None),
    "eventfd2": (290, 19),
    "signalfd": (282, None),
    "signalfd4": (289, 74),
    "io_setup": (206, 0),
    "vmsplice": (278, 75),
    "flock": (73, 32),
    "fadvise64": (221, 223),
    "readahead": (187, 213),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "seccomp": (317, 277),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "mbind": (237, 235),
    "set_mempolicy": (238, 237),
}
# Where programs are root's, devices are theirs, too, as files: these would change the machine's.
NOT_ROOTS: dict[str, tuple[int | None, int | None]] = {
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
}
BY_ARGUMENT: dict[str, tuple[int | None, int | None]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "fcntl": (72, 25),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "setrlimit": (160, 164),
    "socketpair": (53, 199),
}

_Instruction = tuple[int, int, int, int]


def build_outer_filter(machine: str | None = None) -> bytes:
    """Return the filter for everything inside, as an array of ``struct sock_filter``."""
    return _build(
        NEVER, machine, lambda at: [_check_clone(at("clone"), _CLONE_NEW_USER, when_set=_EPERM)]
    )


def build_program_filter(machine: str | None = None, *, is_roots: bool = False) -> bytes:
    """Return the filter that the program's process adds to itself."""
    refused = {**NOT_THE_PROGRAM, **NOT_ROOTS} if is_roots else NOT_THE_PROGRAM
    return _build(refused, machine, _check_arguments)


def _check_arguments(at: Callable[[str], int]) -> list[list[_Instruction]]:
    fcntl = at("fcntl")
    return [
        # clone3 has its flags in memory, where a filter cannot look: the C library falls back.
        [(_EQUAL, 0, 1, at("clone3")), (_RETURN, 0, 0, _ERROR | _ENOSYS)],
        _check_clone(at("clone"), _CLONE_THREAD, when_clear=_EPERM),
        *(_refuse_argument(fcntl, 1, value) for value in (_SET_PIPE_SIZE, _LEASE, _NOTIFY)),
        # A filter of its own could write each of its calls to the log of the machine.
        _refuse_argument(at("prctl"), 0, _SET_SECCOMP),
        # A dump of memory may be handed to a program of the machine unless its limit is 1.
        _refuse_argument(at("setrlimit"), 0, _CORE_SIZE),
        _refuse_argument(at("prlimit64"), 1, _CORE_SIZE),
        _want_argument(at("prlimit64"), 0, 0),  # of itself
        _want_argument(at("socketpair"), 0, _UNIX),  # event loops wake themselves with one
    ]


def _check_clone(
    number: int, bit: int, *, when_set: int = 0, when_clear: int = 0
) -> list[_Instruction]:
    """Return instructions that answer clone by whether a flag is set: an error, or go on."""
    yes = _ERROR | when_set if when_set else _ALLOW
    no = _ERROR | when_clear if when_clear else _ALLOW
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_ANY_BIT, 0, 1, bit),
        (_RETURN, 0, 0, yes),
        (_RETURN, 0, 0, no),
    ]


def _refuse_argument(number: int, place: int, value: int) -> list[_Instruction]:
    """Return instructions that refuse a call with this value, and go on with any other."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + place * _ARGUMENT_BYTES),
        (_EQUAL, 0, 1, value),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_LOAD, 0, 0, _NUMBER_AT),
    ]


def _want_argument(number: int, place: int, value: int) -> list[_Instruction]:
    """Return instructions that allow a call with this value, and refuse any other."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT + place * _ARGUMENT_BYTES),
        (_EQUAL, 0, 1, value),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _ERROR | _EPERM),
    ]


def _build(
    refused: Mapping[str, tuple[int | None, int | None]],
    machine: str | None,
    make_checks: Callable[[Callable[[str], int]], list[list[_Instruction]]],
) -> bytes:
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES or struct.calcsize("P") != 8:
        return b""
    column = list(_ARCHITECTURES).index(machine)
    code: list[_Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_EQUAL, 1, 0, _ARCHITECTURES[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32_CALLS),
        (_RETURN, 0, 0, _ERROR | _EPERM),
        (_AT_LEAST, 0, 1, _FIRST_UNKNOWN),
        (_RETURN, 0, 0, _ERROR | _ENOSYS),
    ]
    for check in make_checks(lambda name: BY_ARGUMENT[name][column] or 0):
        code += check
    for number in (numbers[column] for numbers in refused.values()):
        if number is not None:
            code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ERROR | _EPERM)]
    code.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
