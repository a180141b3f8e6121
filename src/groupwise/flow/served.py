"""What a loop folder serves: its file ``served.json`` names one policy of one finished run."""

from dataclasses import dataclass
from pathlib import Path

from groupwise.core import DataError, RunError, read_json, write_json
from groupwise.flow.finished import open_run
from groupwise.flow.prediction import name_version
from groupwise.serving import Predictor

_NAME = "served.json"
_FIELDS = ("run", "policy", "version")


@dataclass(frozen=True, slots=True)
class Served:
    """A policy that is to be served.

    Attributes:
        run: folder of a finished run.
        policy: of the run.
        version: what ``name_version`` gives for its predictor.
    """

    run: Path
    policy: str
    version: str


def is_loop(folder: Path) -> bool:
    """Return whether a folder says what it serves."""
    return (folder / _NAME).is_file()


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
