"""What a server answers with: a policy of one run for good, or what a loop folder serves.

A loop folder's file ``served.json`` names one policy of one finished run.
"""

from dataclasses import dataclass
from pathlib import Path

from groupwise.core import (
    ConfigError,
    DataError,
    RunError,
    RunFolder,
    ServingError,
    load_config,
    read_config,
    read_json,
    write_json,
)
from groupwise.flow.finished import FinishedRun, open_run
from groupwise.flow.prediction import name_version
from groupwise.judges import Judge
from groupwise.serving import Opened, Predictor

_NAME = "served.json"
_FIELDS = ("run", "policy", "version")


@dataclass(frozen=True, slots=True)
class Served:
    """A policy of a finished run that is to be served, with its ``name_version``."""

    run: Path
    policy: str
    version: str


def read_served(folder: Path) -> Served:
    """Return what a loop folder serves; the path of the run is absolute.

    Raises:
        DataError: if the file is missing or damaged, or has other fields than it should.
    """
    path = folder / _NAME
    found = read_json(path, dict)
    texts = [found.get(name) for name in _FIELDS]
    run, policy, version = (value if isinstance(value, str) else "" for value in texts)
    if found.keys() != {*_FIELDS} or not (run and policy and version):
        raise DataError(f"{path} does not say what is served", expected=f"{_FIELDS}, all texts")
    if ".." in Path(run).parts or "\0" in run:
        raise DataError(f"{path} names a run outside its folder by a relative path", got=repr(run))
    return Served(folder.absolute() / run, policy, version)


def write_served(folder: Path, served: Served) -> None:
    """Replace what a loop folder serves, atomically.

    A run inside the folder is named relative to it, so that the folder may be moved.
    """
    home, run = folder.absolute(), served.run.absolute()
    if ".." in run.parts:
        raise RunError(f"{served.run} leads upwards", fix="name the run by its plain path")
    named = run.relative_to(home) if run.is_relative_to(home) else run
    values = {"run": named.as_posix(), "policy": served.policy, "version": served.version}
    write_json(folder / _NAME, values)


def open_served(folder: Path) -> tuple[Served, Predictor]:
    """Return what a loop folder serves, and what answers for it."""
    served = read_served(folder)
    predictor = open_run(served.run).open_predictor(served.policy)
    found = name_version(predictor)
    if found != served.version:
        raise RunError(
            f"{served.run} does not have the version that {folder / _NAME} names",
            got=found,
            expected=served.version,
        )
    return served, predictor


class RunSource:
    """A policy of a finished run, which stays the same; None: the main one."""

    def __init__(self, run: FinishedRun, policy: str | None) -> None:
        self.run, self._policy = run, policy

    def open(self) -> Opened:
        """Open the policy."""
        predictor = self.run.open_predictor(self._policy)
        return Opened(predictor, name_version(predictor))

    def find_version(self) -> str:
        """Refuse: there is no other version."""
        raise ServingError(
            f"this server serves the run {self.run.folder} alone",
            fix="serve a loop folder, whose served.json may name another version later",
        )


class LoopSource:
    """What the file ``served.json`` of a loop folder names, whenever it is asked.

    ``run`` is that whose task and judge are behind it: of a round, the one its loop began with.
    """

    def __init__(self, folder: Path) -> None:
        run = open_run(read_served(folder).run)
        self.run = run.task.find_origin(run.config) or run
        self._folder = folder

    def open(self) -> Opened:
        """Open what is named now."""
        served, predictor = open_served(self._folder)
        return Opened(predictor, served.version)

    def find_version(self) -> str:
        """Return the version that is named now."""
        return read_served(self._folder).version


def find_source(folder: Path, policy: str | None) -> RunSource | LoopSource:
    """Return what the folder of a run or a loop answers with; ``policy`` None: the run's main one.

    A ConfigError if a policy of a loop is named, or its recipe answers no new rows; DataError and
    RunError if there is no run.
    """
    if not (folder / _NAME).is_file():
        return RunSource(open_run(folder), policy)
    if policy is not None:
        raise ConfigError(f"{folder} itself says which policy it serves", fix=f"leave out {policy}")
    return LoopSource(folder)


def open_judge(run: FinishedRun, settings: Path | None, *, folder: Path) -> Judge | None:
    """Return the judge behind a policy, by its run's config; None if there is none.

    It does not give up for good where it fails often: it is asked again with the next screen.
    ``settings`` is YAML to be taken instead of the section ``judge``; replies are kept in
    ``folder``.
    """
    values = dict(RunFolder(run.folder).read_manifest().get("config", {}))
    if settings is not None:
        values["judge"] = read_config(settings)
    if not values.get("judge"):
        return None
    patient = "judge.settings.stop.max_no_verdict_rate=1.0"
    config = load_config(type(run.config), values, overrides=[patient])
    return run.task.judge_of_screens(config, folder)
