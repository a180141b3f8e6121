"""The process that becomes programs, from outside: one for each process that runs any.

Where it cannot be had, each program is given bubblewrap and an interpreter of its own, which
takes several times the processor time and gives the same results.
"""

import os
import socket
import subprocess
import threading
import warnings
from concurrent.futures import Future
from contextlib import suppress

from groupwise.core import SandboxError
from groupwise.sandbox import bubblewrap

_START_S = 20.0


class Forked:
    """A sandbox that is forked from the template.

    Args:
        template: where to ask for it.
        size: bytes of its temporary folder.
        files: descriptors of its input, the conversation, calls and the control group; -1 for
            what there is not.
        has_user: whether it is another user's than this process.

    Attributes:
        stdout: what it prints.
        stderr: its errors.

    Raises:
        OSError: if the template has just ended, or has too much to do.
    """

    def __init__(
        self, template: socket.socket, size: int, files: list[int], *, has_user: bool
    ) -> None:
        self.has_user = has_user
        self._line, inside = socket.socketpair()
        self._line.setblocking(False)
        pipes = os.pipe(), os.pipe()
        self.stdout, self.stderr = (os.fdopen(reader, "rb", buffering=0) for reader, _ in pipes)
        writers = [writer for _, writer in pipes]
        try:
            given = [fd for fd in files if fd >= 0]
            sent = [inside.fileno(), given[0], *writers, *given[1:]]
            has = [fd >= 0 for fd in files[2:]]
            socket.send_fds(template, [b"%d %d %d" % (size, *has)], sent)
        except OSError:
            for end in (self._line, self.stdout, self.stderr):
                end.close()
            raise
        finally:
            inside.close()
            for writer in writers:
                os.close(writer)

    def is_lost(self) -> bool:
        """Say whether the template has ended, as it does before what it forked, or let go of it."""
        return _is_closed(self._line)

    def kill(self) -> None:
        """Let the template kill it, with everything inside."""
        with suppress(OSError):  # the template has ended, and with it all that it forked
            # Closing would do nothing while a fork of this process has it open, too.
            self._line.shutdown(socket.SHUT_RDWR)

    def wait(self) -> None:
        """Leave it to the template, which waits for it."""
        self._line.close()


class _Template:
    """The template of this process, or why it has none."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.end: socket.socket | None = None
        self.has_user = False
        self.why_not: str | None = None

    def find(self) -> socket.socket | None:
        """Return where to ask it to fork; None if there cannot be one."""
        with self.lock:
            if self.end is not None and _is_closed(self.end):
                self.forget()
            if self.end is None and self.why_not is None:
                try:
                    self.end, self.has_user = _start_any()
                except SandboxError as error:
                    self.why_not = str(error)
                    warnings.warn(f"every program starts an interpreter: {error}", stacklevel=2)
            return self.end

    def forget(self) -> None:
        """Have none; who asks next starts another."""
        if self.end is not None:
            self.end.close()
        self.end = None

    def leave_to_parent(self) -> None:
        """Have none in a process that was forked from the one that has."""
        self.lock = threading.Lock()
        self.forget()


_template = _Template()
os.register_at_fork(after_in_child=_template.leave_to_parent)


def explain_slow() -> str | None:
    """Return why every program starts an interpreter of its own here; None if none has to."""
    return None if _template.find() is not None else _template.why_not


def is_roots(process: Forked | subprocess.Popen[bytes]) -> bool:
    """Say whether a program is root's outside: the kernel counts none of its threads."""
    return os.geteuid() == 0 and not (isinstance(process, Forked) and process.has_user)


def start_guest(
    *, file_mib: int, stdin: int, control_fd: int, calls_fd: int, group_fd: int
) -> Forked | subprocess.Popen[bytes]:
    """Start a sandbox: forked from the template if there can be one.

    It takes what ``bubblewrap.start_guest`` takes.
    """
    template = _template.find()
    if template is not None:
        files = [stdin, control_fd, calls_fd, group_fd]
        with suppress(OSError):
            return Forked(template, file_mib << 20, files, has_user=_template.has_user)
    return bubblewrap.start_guest(
        file_mib=file_mib, stdin=stdin, control_fd=control_fd, calls_fd=calls_fd, group_fd=group_fd
    )


def _start_any() -> tuple[socket.socket, bool]:
    """Return the end of a conversation with a template, and if it has a user for programs."""
    users_fd = bubblewrap.open_users()
    if users_fd >= 0:
        try:
            return _start(users_fd), True
        except SandboxError:
            pass  # it is so where nobody but root may read the interpreter
        finally:
            os.close(users_fd)
    return _start(-1), False


def _start(users_fd: int) -> socket.socket:
    """Return the end of a conversation with a template that is ready."""
    end, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end.settimeout(_START_S)
    errors: Future[bytes] = Future()
    threading.Thread(target=_hold, args=(inside, users_fd, errors), daemon=True).start()
    try:
        if end.recv(16) == b"ready":
            end.setblocking(False)
            return end
        why = " ".join(errors.result(_START_S).decode("utf-8", "replace").split())
    except OSError as error:
        why = str(error)
    except BaseException:
        end.close()
        raise
    end.close()
    raise SandboxError(f"it cannot fork here ({why})")


def _hold(inside: socket.socket, users_fd: int, errors: "Future[bytes]") -> None:
    """Start a template and stay to its end: bubblewrap ends with the thread that started it."""
    with inside:
        try:
            process = bubblewrap.start_template(inside.fileno(), users_fd)
        except SandboxError as error:
            errors.set_exception(error)
            return
    errors.set_result(process.communicate()[1])


def _is_closed(end: socket.socket) -> bool:
    try:
        return end.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
