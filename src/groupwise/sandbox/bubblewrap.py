"""The bubblewrap command: what CPython sees inside, and whether this machine can do it.

Inside there is the interpreter with its standard library, read-only, the system's libraries and
time zones, read-only, and an empty temporary folder of a limited size; no /proc, no /etc, no home,
no network, no environment.
"""

import marshal
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from groupwise.core import SandboxError
from groupwise.sandbox import guest
from groupwise.sandbox.seccomp import build_outer_filter

INSTALL = "apt-get install -y bubblewrap (Debian, Ubuntu) or dnf install bubblewrap (Fedora)"

_NOBODY = "65534"
_MODULES = (
    *("codec", "values", "channel", "tasks", "host_calls", "containers", "actions", "surroundings"),
    *("program", "proxy", "checker"),
    *("confine", "start", "template"),
)
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
# Reads the modules from a sealed file that all runs share, so from a place of its own. At the end
# nothing is torn down: that takes an eighth of a run, and the kernel does it.
_BOOT = """
import marshal, os, sys
data, bundle, numbers = b"", int(sys.argv[2]), map(int, sys.argv[3:])
while part := os.pread(bundle, 1 << 20, len(data)):
    data += part
for name, code in marshal.loads(data):
    module = sys.modules[name] = type(sys)(name)
    exec(code, vars(module))
    if name == sys.argv[1]:
        break
module.main(*numbers)
os._exit(0)
"""


def build_command(
    *,
    file_mib: int,
    filter_fd: int,
    arguments: Sequence[str],
    is_template: bool = False,
    users_fd: int = -1,
) -> list[str]:
    """Return the command that runs ``python -c CODE ARGUMENTS`` inside."""
    program = shutil.which("bwrap")
    if program is None:
        raise SandboxError("bubblewrap is not installed", fix=f"run {INSTALL}")
    options = [f"--unshare-{kind}" for kind in ("ipc", "pid", "net", "uts", "cgroup-try")]
    if users_fd >= 0:
        options += ["--userns", str(users_fd)]
    else:
        options += ["--unshare-user", "--uid", _NOBODY, "--gid", _NOBODY]
    options += ["--die-with-parent", "--new-session", "--as-pid-1", "--hostname", "sandbox"]
    options += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0", "--setenv", "LANG", "C.UTF-8"]
    options += [*_list_binds(), "--size", str(file_mib << 20), "--tmpfs", "/tmp"]
    options += ["--chdir", "/tmp", "--remount-ro", "/"]
    if filter_fd >= 0:
        options += ["--seccomp", str(filter_fd)]
    if is_template:
        options += ["--cap-drop", "ALL", "--cap-add", "CAP_SYS_ADMIN"]
        if users_fd >= 0:
            for right in ("CAP_SETUID", "CAP_SETGID", "CAP_KILL"):
                options += ["--cap-add", right]
    return [program, *options, "--", _find_python(), "-S", "-s", "-B", "-P", "-c", *arguments]


def _find_python() -> str:
    """Return the interpreter itself, not that of a virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@lru_cache(maxsize=1)
def _list_binds() -> list[str]:
    """Return the options that show the interpreter, its library and what it is linked to."""
    python = _find_python()
    home = os.path.realpath(sys.base_prefix)
    wanted = [*_LIBRARIES, python, f"{home}/lib"]
    # Folders that it makes by itself are for their owner alone.
    above = dict.fromkeys(
        p for path in (*wanted, *_DEVICES) for p in reversed(Path(path).parents[:-1])
    )
    options = [part for folder in above for part in ("--dir", str(folder))]
    for path in dict.fromkeys(wanted):
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        elif os.path.exists(path):
            options += ["--ro-bind", path, path]
    for path in _list_packages(home):
        options += ["--tmpfs", path, "--remount-ro", path]
    for device in _DEVICES:
        options += ["--dev-bind", device, device]
    return options


def _list_packages(home: str) -> list[str]:
    """Return the folders of packages that do not belong to the standard library."""
    found = [
        os.path.realpath(folder)
        for place in dict.fromkeys(("/usr", home))
        for name in ("site-packages", "dist-packages")
        for folder in Path(place).glob(f"lib/python3*/{name}")
    ]
    return sorted(set(found))


@lru_cache(maxsize=1)
def _open_bundle(process: int) -> int:
    """Return a sealed file with the guest's modules; one for each process that forks."""
    folder = Path(guest.__file__).parent
    modules = []
    for name in _MODULES:
        path = folder / f"{name}.py"
        code = compile(path.read_text(encoding="utf-8"), f"<sandbox {name}>", "exec", optimize=2)
        modules.append((f"{guest.__name__}.{name}", code))
    return make_sealed_file("groupwise-guest", marshal.dumps(modules))


@lru_cache(maxsize=1)
def _open_filter(process: int) -> int:
    code = build_outer_filter()
    return make_sealed_file("groupwise-filter", code) if code else -1


def make_sealed_file(name: str, data: bytes) -> int:
    """Return a file in memory, at its start, that nobody who is given it can change."""
    import fcntl

    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(descriptor, 0, os.SEEK_SET)
    fcntl.fcntl(descriptor, 1033, 0x0F)  # F_ADD_SEALS: seal, shrink, grow, write
    return descriptor


def start_guest(
    *, file_mib: int, stdin: int, control_fd: int, calls_fd: int, group_fd: int
) -> subprocess.Popen[bytes]:
    """Start a sandbox whose first process waits for its request on ``control_fd``."""
    filter_fd = _copy_filter()
    try:
        descriptors = (control_fd, calls_fd, group_fd)
        return _start("start", descriptors, stdin=stdin, file_mib=file_mib, filter_fd=filter_fd)
    finally:
        if filter_fd >= 0:
            os.close(filter_fd)


def start_template(requests_fd: int, users_fd: int) -> subprocess.Popen[bytes]:
    """Start the process that becomes programs, which reads of them on ``requests_fd``.

    It is ended when the thread ends that started it.
    """
    descriptors = (requests_fd, _open_filter(os.getpid()))
    return _start("template", descriptors, stdin=subprocess.DEVNULL, users_fd=users_fd)


def open_users() -> int:
    """Return a new user namespace with root and nobody in it; -1 unless this is root.

    The kernel counts no threads of root, whatever a program's limit is: its programs are to run as
    nobody.
    """
    if os.geteuid() != 0:
        return -1
    try:
        command = ["unshare", "--user", "cat"]
        helper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    except OSError:
        return -1
    with helper:
        try:
            assert helper.stdin is not None
            assert helper.stdout is not None
            helper.stdin.write(b"\n")
            helper.stdin.flush()
            helper.stdout.read(1)  # it has its namespace by then
            for kind in ("uid", "gid"):
                table = f"0 0 1\n{_NOBODY} {_NOBODY} 1\n"
                Path(f"/proc/{helper.pid}/{kind}_map").write_text(table)
            return os.open(f"/proc/{helper.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return -1
        finally:
            helper.kill()


def _start(
    module: str,
    descriptors: tuple[int, ...],
    *,
    stdin: int,
    file_mib: int = 1,
    filter_fd: int = -1,
    users_fd: int = -1,
) -> subprocess.Popen[bytes]:
    bundle = _open_bundle(os.getpid())
    is_template = module == "template"
    numbers = (bundle, *descriptors, *([int(users_fd >= 0)] if is_template else []))
    arguments = [_BOOT, f"{guest.__name__}.{module}", *map(str, numbers)]
    command = build_command(
        file_mib=file_mib,
        filter_fd=filter_fd,
        arguments=arguments,
        is_template=is_template,
        users_fd=users_fd,
    )
    passed = (bundle, *descriptors, filter_fd, users_fd)
    try:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[fd for fd in passed if fd >= 0],
            cwd="/",
            env={},
        )
    except OSError as error:
        raise SandboxError(f"bubblewrap cannot be started ({error.strerror})") from error


def _copy_filter() -> int:
    """Return the filter, opened again: bubblewrap reads it from its start and moves on in it."""
    shared = _open_filter(os.getpid())
    if shared < 0:
        return -1
    return os.open(f"/proc/self/fd/{shared}", os.O_RDONLY | os.O_CLOEXEC)


@lru_cache(maxsize=1)
def explain_missing() -> str | None:
    """Return why CPython cannot run under bubblewrap here, with what to do; None if it can.

    It is tried once for each process.
    """
    if not sys.platform.startswith("linux"):
        return f"bubblewrap needs Linux, and this is {sys.platform}"
    try:
        command = build_command(file_mib=1, filter_fd=-1, arguments=["print(6 * 7)"])
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=20, env={}, check=False
        )
    except SandboxError as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap cannot be started ({error})"
    if done.stdout.strip() == "42":
        return None
    why = " ".join(done.stderr.split())[:300] or f"it exited with {done.returncode}"
    return (
        f"bubblewrap is installed but cannot make a sandbox here ({why}); allow user namespaces; "
        "in a container that may take --security-opt seccomp=unconfined or --privileged"
    )
