"""A loop: a served run, what people say of its answers, and the rounds that learn from it.

The folder has ``loop.json`` (what it began with), ``log.jsonl`` (every promotion and roll back; its
last line says what is served), ``served.json`` (the same for the server), ``snapshots`` (what each
round was given), ``rounds`` (run folders) and ``certificates`` (one for each look at a candidate).
Whatever kills it, the next start goes on: a round is a run, and all else follows from the log.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from groupwise.core import (
    ConfigError,
    RunError,
    append_jsonl,
    digest_file,
    dump_config,
    load_config,
    parse_value,
    read_json,
    read_jsonl,
    replace_file,
    take_lock,
    write_json,
    write_jsonl,
)
from groupwise.feedback.sides import Sides
from groupwise.learning.settings import LoopSettings
from groupwise.run.predict import Served, name_version, open_run, write_served

_FIXED = ("seed", "test_share", "asked_per_session", "level", "margin")
"""Settings that hold for the whole loop: certificates rest on them."""
_BEGUN, _LOG = "loop.json", "log.jsonl"
Event = Literal["began", "promoted", "rolled back"]


@dataclass(frozen=True, slots=True)
class LogLine:
    """A change of what is served.

    Attributes:
        at: when, in UTC.
        event: what happened.
        run: folder of the version's run, relative to the loop folder where it is inside.
        policy: of the run.
        version: that is served from now on.
        certificate: digest of the certificate behind a promotion, else empty.
    """

    at: str
    event: Event
    run: str
    policy: str
    version: str
    certificate: str = ""


_LINES = TypeAdapter(list[LogLine])


class Loop:
    """A loop folder, held by one process at a time.

    Args:
        folder: of the loop, which was begun.

    Raises:
        ConfigError: if there is none.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / _BEGUN).is_file():
            raise ConfigError(f"{folder} holds no loop", fix="begin one: groupwise learn RUN --out")
        self.folder = folder
        begun = read_json(folder / _BEGUN, dict)
        self.origin = Path(begun["origin"])
        self.settings = load_config(LoopSettings, begun["settings"])

    @property
    def sides(self) -> Sides:
        """How its sessions are divided."""
        return Sides(self.settings.seed, self.settings.test_share)

    @property
    def rounds(self) -> list[Path]:
        """The run folders of its rounds, in order."""
        return sorted((self.folder / "rounds").glob("[0-9]*"))

    @property
    def certificates(self) -> Path:
        """The folder of all certificates, one for each look."""
        return self.folder / "certificates"

    @contextmanager
    def lock(self) -> Generator[None]:
        """Hold the loop; nothing else trains or promotes in it.

        Raises:
            RunError: if another process holds it.
        """
        busy = RunError(f"another process learns in {self.folder}", fix="wait for it, or end it")
        descriptor = take_lock(self.folder / ".loop.lock", busy=busy)
        try:
            with self._change_log():
                self._serve(self.read_log()[-1])
            yield
        finally:
            os.close(descriptor)

    def read_log(self) -> list[LogLine]:
        """Return every change of what is served.

        Raises:
            DataError: if the log is damaged.
        """
        path = self.folder / _LOG
        return parse_value(read_jsonl(path), _LINES, f"{path} is damaged")

    def record(
        self, event: Event, run: str, policy: str, version: str, certificate: str = ""
    ) -> LogLine:
        """Write a change of what is served into the log, then for the server; return the line.

        Args:
            event: what happens.
            run: folder of the version's run, relative to the loop folder where it is inside.
            policy: of the run.
            version: that is served from now on.
            certificate: digest of the one behind a promotion.
        """
        line = LogLine(_name_now(), event, run, policy, version, certificate)
        with self._change_log():
            append_jsonl(self.folder / _LOG, asdict(line))
            self._serve(line)
        return line

    def keep_certificate(self, path: Path) -> str:
        """Keep a copy of a certificate, also when its candidate is looked at again; its digest."""
        digest, number = digest_file(path), path.parent.parent.name
        kept = self.certificates
        if not list(kept.glob(f"{number}-*-{digest[:8]}.json")):
            kept.mkdir(exist_ok=True)
            look = len(list(kept.glob(f"{number}-*.json"))) + 1
            replace_file(kept / f"{number}-{look:03}-{digest[:8]}.json", [path.read_bytes()])
        return digest

    def roll_back(self) -> LogLine:
        """Serve again what was served before the present version came; also while rounds go on.

        Raises:
            RunError: if nothing was.
        """
        log = self.read_log()
        first = next(i for i, line in enumerate(log) if line.version == log[-1].version)
        if first == 0:
            raise RunError(f"nothing was served in {self.folder} before the present version")
        before = log[first - 1]
        return self.record("rolled back", before.run, before.policy, before.version)

    def _serve(self, line: LogLine) -> None:
        """Let the server find what a line of the log says."""
        write_served(self.folder, Served(self.folder / line.run, line.policy, line.version))

    @contextmanager
    def _change_log(self) -> Generator[None]:
        descriptor = take_lock(self.folder / ".log.lock", busy=lambda: None)
        try:
            yield
        finally:
            os.close(descriptor)


def find_loop(folder: Path) -> "Loop | None":
    """Return the loop of a folder; None if it has none."""
    return Loop(folder) if (folder / _BEGUN).is_file() else None


def begin_loop(
    folder: Path, run: Path, settings: LoopSettings, *, policy: str | None = None
) -> "Loop":
    """Begin a loop with a finished run, or change how the rounds of one train; return it.

    Args:
        folder: new, or that of the loop.
        run: the run.
        settings: of the loop.
        policy: of the run; None: the main one.

    Raises:
        RunError: if the folder holds something else or another loop, or the run is not finished.
        ConfigError: if a setting is another one on which certificates rest.
    """
    if (folder / _BEGUN).is_file():
        return _change(Loop(folder), run, settings)
    own = {_LOG, "served.json", "rounds", "snapshots"}  # of a beginning that was interrupted
    if folder.exists() and any(p.name not in own and p.name[0] != "." for p in folder.iterdir()):
        raise RunError(f"{folder} has files but holds no loop", fix="use an empty or new --out")
    found = open_run(run)
    name = found.choose_policy(policy)
    version = name_version(found.open_predictor(name))
    for part in ("rounds", "snapshots"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    origin = str(run.resolve())
    line = LogLine(_name_now(), "began", origin, name, version)
    write_jsonl(folder / _LOG, [asdict(line)])
    write_served(folder, Served(Path(origin), name, version))
    write_json(folder / _BEGUN, {"origin": origin, "settings": dump_config(settings)})
    return Loop(folder)


def read_loop_settings(folder: Path) -> dict[str, Any]:
    """Return the settings of the loop in a folder; nothing if there is none yet."""
    path = folder / _BEGUN
    return read_json(path, dict)["settings"] if path.is_file() else {}


def _change(loop: "Loop", run: Path, settings: LoopSettings) -> "Loop":
    if loop.origin != run.resolve():
        raise RunError(f"{loop.folder} began with {loop.origin}", fix="use another --out")
    old, new = dump_config(loop.settings), dump_config(settings)
    changed = [name for name in _FIXED if old[name] != new[name]]
    if changed:
        raise ConfigError(
            f"{', '.join(changed)}: certificates rest on it, so it holds for the whole loop",
            got=[new[name] for name in changed],
            expected=[old[name] for name in changed],
        )
    write_json(loop.folder / _BEGUN, {"origin": str(loop.origin), "settings": new})
    return Loop(loop.folder)


def _name_now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
