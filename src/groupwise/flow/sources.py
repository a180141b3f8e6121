"""What a server answers with: a policy of one run for good, or what a loop folder serves."""

from pathlib import Path

from groupwise.core import ConfigError, RunFolder, ServingError, load_config, read_config
from groupwise.flow.finished import FinishedRun, open_run
from groupwise.flow.prediction import name_version
from groupwise.flow.served import is_loop, open_served, read_served
from groupwise.judges import Judge
from groupwise.serving import Opened


class RunSource:
    """A policy of a finished run, which stays the same.

    Args:
        run: the run.
        policy: None: the main one.
    """

    def __init__(self, run: FinishedRun, policy: str | None) -> None:
        self.run = run
        self._policy = policy

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

    Attributes:
        run: whose task and judge are behind it: of a round, the one that its loop began with.

    Args:
        folder: with the file.
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
    """Return what a folder answers with.

    Args:
        folder: of a run or a loop.
        policy: of the run; None: the main one.

    Raises:
        ConfigError: if a policy of a loop is named, or its recipe answers no new rows.
        DataError, RunError: if there is no run.
    """
    if not is_loop(folder):
        return RunSource(open_run(folder), policy)
    if policy is not None:
        raise ConfigError(f"{folder} itself says which policy it serves", fix=f"leave out {policy}")
    return LoopSource(folder)


def open_judge(run: FinishedRun, settings: Path | None, *, folder: Path) -> Judge | None:
    """Return the judge behind a policy; None if there is none.

    It does not give up for good where it fails often: it is asked again with the next screen.

    Args:
        run: whose config has the judge.
        settings: YAML to be taken instead of its section ``judge``.
        folder: for its replies.
    """
    values = dict(RunFolder(run.folder).read_manifest().get("config", {}))
    if settings is not None:
        values["judge"] = read_config(settings)
    if not values.get("judge"):
        return None
    patient = "judge.settings.stop.max_no_verdict_rate=1.0"
    config = load_config(type(run.config), values, overrides=[patient])
    return run.task.judge_of_screens(config, folder)
