"""Programs that are forked from one process are as far apart as if each had its own."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from sandbox_host import MISSING, SHORT, read_host_state
from waiting import wait_until

from groupwise.sandbox import Limits, Result, bubblewrap, run_python, run_python_async, template
from groupwise.sandbox.template import explain_slow

SLOW = MISSING or explain_slow()
# What stops the template otherwise than by the kernel's refusal is a fault, and fails every test.
IS_REFUSED = SLOW is not None and (SLOW == MISSING or "ermission" in SLOW or "permitted" in SLOW)
pytestmark = pytest.mark.skipif(IS_REFUSED, reason=str(SLOW))
PATIENT = Limits(timeout_s=30, memory_mib=192, file_mib=4)


@pytest.fixture
def no_filters(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Namespaces, limits and capabilities alone."""
    monkeypatch.setattr(bubblewrap, "build_outer_filter", lambda: b"")
    monkeypatch.setattr("groupwise.sandbox.cpython.build_program_filter", lambda **_: b"")
    template._template.forget()
    bubblewrap._open_filter.cache_clear()
    yield
    template._template.forget()
    bubblewrap._open_filter.cache_clear()


def find_templates() -> list[int]:
    """Return the templates that are children of this process's bubblewraps."""
    children = [child for held in read_host_state().children for child in list_children(held)]
    return [child for child in children if b"guest.template" in read_command(child)]


def list_children(process: int) -> list[int]:
    """Return the children of a process, none if it is gone."""
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    return found


def list_descendants(process: int) -> list[int]:
    """Return all that come from a process."""
    children = list_children(process)
    return [*children, *(found for child in children for found in list_descendants(child))]


def read_command(process: int) -> bytes:
    """Return the command of a process that runs, nothing of one that has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_programs_are_forked_where_the_machine_allows_it() -> None:
    assert explain_slow() is None


def run_side_by_side(first: str, second: str, *, limits: Limits = PATIENT) -> tuple[Result, Result]:
    """Run two programs, the second while the first waits in ``await meet()``."""

    async def run() -> tuple[Result, Result]:
        has_met, is_over = asyncio.Event(), asyncio.Event()

        async def meet() -> None:
            has_met.set()
            await is_over.wait()

        held = asyncio.ensure_future(
            run_python_async(first, functions={"meet": meet}, limits=limits, is_in_order=True)
        )
        met = asyncio.ensure_future(has_met.wait())
        await asyncio.wait({held, met}, return_when=asyncio.FIRST_COMPLETED)
        met.cancel()
        try:
            other = await run_python_async(second, limits=limits)
        finally:
            is_over.set()
        return await held, other

    return asyncio.run(run())


def test_programs_are_forked_from_one_process() -> None:
    template._template.forget()
    wait_until(lambda: not find_templates())
    with ThreadPoolExecutor(1) as thread:  # which is no more when the next one runs
        assert thread.submit(run_python, "6 * 7").result().value == 42
    (before,) = find_templates()
    assert run_python("6 * 7").value == 42
    assert find_templates() == [before]


def test_every_program_has_namespaces_of_its_own() -> None:
    kinds = ("user", "pid", "mnt", "ipc", "net", "uts", "cgroup")
    found: dict[int, list[str]] = {}

    async def run() -> None:
        both = asyncio.Barrier(2)

        async def look() -> None:
            await both.wait()
            (source,) = find_templates()
            for process in (os.getpid(), source, *list_descendants(source)):
                found[process] = [os.readlink(f"/proc/{process}/ns/{kind}") for kind in kinds]
            await both.wait()

        functions = {"look": look}
        runs = (run_python_async("await look()", functions=functions, limits=PATIENT) for _ in "12")
        assert {result.status for result in await asyncio.gather(*runs)} == {"passed"}

    asyncio.run(run())
    # This process, the template, and two times a checker and its program, which are together.
    assert len(found) == 6
    for kind in zip(*found.values(), strict=True):
        assert len(set(kind)) == 4


@pytest.mark.usefixtures("no_filters")
def test_a_program_sees_neither_files_nor_processes_of_another() -> None:
    first = "open('/tmp/mine', 'w').write('secret')\nawait meet()\nopen('/tmp/mine').read()"
    second = (
        "import os\nalive = []\nfor n in range(1, 400):\n"
        "    try:\n        os.kill(n, 0)\n        alive.append(n)\n"
        "    except ProcessLookupError: pass\n"
        "(os.listdir('/tmp'), alive, os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0))"
    )
    held, other = run_side_by_side(first, second)
    assert held.value == "secret"
    assert other.value == ([], [1, 2], 2, 1, 1, 1)


@pytest.mark.usefixtures("no_filters")
def test_programs_share_neither_memory_nor_queues_nor_network() -> None:
    make = (
        "import ctypes, os, socket\nl = ctypes.CDLL(None)\n"
        "ids = [l.shmget(7, 4096, 0o1600), l.msgget(7, 0o1600), l.semget(7, 1, 0o1600)]\n"
        "s = socket.socket(socket.AF_UNIX)\ns.bind('\\0one')\ns.listen()\n"
        "here = [n for _, n in socket.if_nameindex()]\n"
    )
    look = (
        "import ctypes, socket\nl = ctypes.CDLL(None)\n"
        "ids = [l.shmget(7, 4096, 0), l.msgget(7, 0), l.semget(7, 1, 0)]\n"
        "[*ids, socket.socket(socket.AF_UNIX).connect_ex('\\0one')]"
    )
    held, other = run_side_by_side(f"{make}await meet()\n[min(ids) >= 0, here]", look)
    assert held.value == [True, ["lo"]]
    assert other.value == [-1, -1, -1, 111]


@pytest.mark.usefixtures("no_filters")
@pytest.mark.parametrize("target", ["0", "-1", "1"])
def test_signals_of_a_program_reach_no_other(target: str) -> None:
    run_python("1")
    before = find_templates()
    kill = f"import os\ntry: os.kill({target}, 9)\nexcept OSError: pass\n'alive'"
    held, other = run_side_by_side("await meet()\n'well'", kill)
    assert held.value == "well"
    assert other.value == (None if target == "0" else "alive")
    assert run_python("6 * 7").value == 42
    assert find_templates() == before


@pytest.mark.usefixtures("no_filters")
def test_a_program_has_no_capability_and_no_way_back() -> None:
    program = (
        "import ctypes, os\nl = ctypes.CDLL(None, use_errno=True)\n"
        "h, d = (ctypes.c_uint * 2)(0x20080522, 0), (ctypes.c_uint * 6)()\nl.capget(h, d)\n"
        "calls = [lambda: l.mount(b't', b'/tmp', b'tmpfs', 0, b''),\n"
        "    lambda: l.umount2(b'/tmp', 2), lambda: l.unshare(0x20000),\n"
        "    lambda: l.unshare(0x20000000), lambda: l.setuid(0),\n"
        "    lambda: l.sethostname(b'x', 1)]\n"
        "bounding = [l.prctl(23, n, 0, 0, 0) for n in range(32)]\n"
        "(list(d), sum(bounding), l.prctl(39, 0, 0, 0, 0), [call() for call in calls])"
    )
    assert run_python(program).value == ([0] * 6, 0, 1, [-1] * 6)


@pytest.mark.usefixtures("no_filters")
def test_a_bomb_of_processes_hurts_itself_alone() -> None:
    fork = "    try: os.fork()\n    except OSError: pass\n"
    bomb = f"import os\nfor _ in range(6):\n{fork}while True: pass"
    held, other = run_side_by_side("await meet()\n'well'", bomb, limits=SHORT)
    assert held.value == "well"
    assert other.status == "timeout"
    (alive,) = find_templates()
    wait_until(lambda: not list_descendants(alive))


def test_threads_are_counted_for_each_program() -> None:
    start = (
        "import threading\nend = threading.Event()\n"
        "threads = [threading.Thread(target=end.wait, daemon=True) for _ in range(12)]\n"
        "for thread in threads: thread.start()\n"
    )
    first, second = f"{start}await meet()\nend.set()\n1", f"{start}end.set()\n2"
    held, other = run_side_by_side(first, second, limits=Limits(timeout_s=30, num_threads=16))
    assert (held.value, other.value) == (1, 2)


def test_each_program_has_a_folder_of_its_own_size() -> None:
    program = "import os\ns = os.statvfs('/tmp')\ns.f_blocks * s.f_frsize"
    sizes = [run_python(program, limits=Limits(file_mib=size)).value for size in (1, 3)]
    assert sizes == [1 << 20, 3 << 20]


def test_programs_do_not_draw_the_same_random_numbers() -> None:
    program = "import random, uuid\n(random.random(), uuid.uuid4().hex)"
    (first, one), (second, other) = (run_python(program).value for _ in range(2))
    assert first != second
    assert one != other


def test_what_a_program_changes_is_gone_with_it() -> None:
    run_python("import builtins, sys\nbuiltins.abs = None\nsys.modules.clear()\n1")
    assert run_python("abs(-1)", tests="assert abs(-2) == 2").value == 1


@pytest.mark.parametrize("is_outer", [False, True], ids=["template", "bubblewrap"])
def test_a_program_whose_template_is_killed_is_refused(is_outer: bool) -> None:
    run_python("1")
    (before,) = find_templates()
    victim = int(Path(f"/proc/{before}/stat").read_text().split()[3]) if is_outer else before

    async def meet() -> None:
        os.kill(victim, signal.SIGKILL)
        await asyncio.sleep(60)

    async def run() -> Result:
        return await run_python_async("await meet()", functions={"meet": meet}, limits=PATIENT)

    result = asyncio.run(run())
    assert (result.status, result.value) == ("refused", None)
    assert "forked from has ended" in result.message
    assert run_python("6 * 7").value == 42
    (after,) = find_templates()
    assert after != before


def test_a_template_that_hangs_makes_nothing_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupwise.sandbox.cpython._START_S", 0.5)
    run_python("1")
    (stopped,) = find_templates()
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert run_python("6 * 7").status == "refused"
    finally:
        os.kill(stopped, signal.SIGCONT)
    assert run_python("6 * 7").value == 42


def test_a_forked_process_has_a_template_of_its_own() -> None:
    run_python("1")
    mine = find_templates()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):
            is_fine = run_python("6 * 7").value == 42 and len(find_templates()) == 1
            os._exit(0 if is_fine else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run_python("6 * 7").value == 42
    assert find_templates() == mine


def test_a_program_ends_at_its_limit_though_a_fork_has_its_descriptors() -> None:
    async def run() -> Result:
        forks: list[int] = []

        async def fork() -> None:
            child = os.fork()
            if child == 0:
                time.sleep(60)
                os._exit(0)
            forks.append(child)

        program = "await fork()\nwhile True: pass"
        try:
            return await run_python_async(program, functions={"fork": fork}, limits=SHORT)
        finally:
            (alive,) = find_templates()
            try:
                wait_until(lambda: not list_descendants(alive), most_s=10)
            finally:
                os.kill(forks[0], signal.SIGKILL)
                os.waitpid(forks[0], 0)

    assert asyncio.run(run()).status == "timeout"


def become_host(told: int) -> None:
    """Run a program without an end, beside a fork that has all descriptors of this process."""
    with suppress(BaseException):
        run_python("1")
        if os.fork() > 0:
            os.write(told, b"forked")
            run_python("while True: pass", limits=Limits(timeout_s=60))
        time.sleep(60)
    os._exit(0)


def list_guests(host: int) -> list[int]:
    return [one for one in list_descendants(host) if b"guest.template" in read_command(one)]


def test_nothing_is_left_of_a_process_that_is_killed() -> None:
    reading, told = os.pipe()
    host = os.fork()
    if host == 0:
        become_host(told)
    everything: list[int] = []
    try:
        assert os.read(reading, 10) == b"forked"
        # bubblewrap, the template, a checker and its program; and the fork
        wait_until(lambda: len(list_guests(host)) == 4 < len(list_descendants(host)))
        everything, guests = list_descendants(host), list_guests(host)
        os.kill(host, signal.SIGKILL)
        os.waitpid(host, 0)
        wait_until(lambda: not any(read_command(process) for process in guests))
    finally:
        os.close(reading)
        os.close(told)
        for process in everything:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


def test_where_it_may_not_fork_each_program_has_an_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    build = bubblewrap.build_command

    def build_weaker(**given: Any) -> list[str]:
        return build(**{**given, "is_template": False})

    monkeypatch.setattr(bubblewrap, "build_command", build_weaker)
    monkeypatch.setattr(bubblewrap, "open_users", lambda: -1)
    monkeypatch.setattr(template, "_template", template._Template())
    with pytest.warns(UserWarning, match="every program starts an interpreter") as warned:
        results = [run_python("6 * 7", tests="assert True") for _ in range(2)]
    assert [result.value for result in results] == [42, 42]
    assert len(warned) == 1
    assert "unshare: Operation not permitted" in (explain_slow() or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has another user for its programs")
def test_programs_of_root_are_not_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's threads are not counted: 818 were started where 16 are allowed."""
    program = """
import threading, time
threading.stack_size(32768)
for _ in range(200): threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
"""
    result = run_python(program, limits=SHORT)
    assert (result.error, "threads" in result.in_force) == ("RuntimeError", True)
    monkeypatch.setattr(bubblewrap, "open_users", lambda: -1)
    monkeypatch.setattr(template, "_template", template._Template())
    roots = run_python("6 * 7", limits=SHORT)
    assert (roots.value, "threads" in roots.in_force) == (42, False)


@pytest.mark.skipif(os.geteuid() != 0, reason="nobody else owns the machine's devices")
@pytest.mark.parametrize("can_fork", [True, False], ids=["template", "interpreter"])
@pytest.mark.parametrize(
    "change",
    ["chmod('/dev/null', 0o666)", "utime('/dev/null')", "fchmod(os.open('/dev/zero', 0), 0o666)"],
)
def test_a_program_of_roots_changes_no_device_of_the_machine(
    change: str, can_fork: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nobody may not read the interpreter, ``chmod`` of /dev/null changed it for all."""
    monkeypatch.setattr(bubblewrap, "open_users", lambda: -1)
    monkeypatch.setattr(template, "_template", template._Template())
    if not can_fork:
        template._template.why_not = "it shall not"
    result = run_python(f"import os\nos.{change}", limits=SHORT)
    assert (result.status, result.error) == ("failed", "PermissionError")
