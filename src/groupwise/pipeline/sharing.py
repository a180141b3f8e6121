"""Taking over a step that another run has finished with the very same key.

The runs stand in one folder. A key is locked while a run does its step, so that two runs beside
one another never do the same work: the second waits and takes over what the first made.
"""

import os
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from groupwise.core import RunError, RunFolder, digest_file, take_lock, write_json
from groupwise.pipeline.step_files import DONE, read_marker, wipe

# Written once and never changed in place, and large; all else is copied.
_LINKED = (".safetensors", ".bin", ".png", ".jpg", ".jpeg")
_LOCKS = ".locks"


@dataclass(frozen=True, slots=True)
class Siblings:
    """The runs whose finished steps may be taken over.

    Attributes:
        folder: the run folders stand directly in it; the locks are kept there, too.

    Raises:
        RunError: if the folder is itself a run, or a file.
    """

    folder: Path

    def __post_init__(self) -> None:
        """Refuse what cannot hold runs: no step would ever be found there."""
        if self.folder.is_file() or RunFolder(self.folder).manifest_path.is_file():
            raise RunError(
                "runs can only be shared from a folder of runs",
                got=f"{self.folder}, which is {'a file' if self.folder.is_file() else 'a run'}",
                fix=f"give {self.folder.absolute().parent}",
            )

    @contextmanager
    def reserve(self, key: str, *, report_wait: Callable[[], object]) -> Generator[None]:
        """Hold ``key`` among all runs here; wait while another run holds it.

        Args:
            key: of a step.
            report_wait: called once if another run has it.
        """
        locks = self.folder / _LOCKS
        locks.mkdir(parents=True, exist_ok=True)
        descriptor = take_lock(locks / key, busy=report_wait)
        try:
            yield
        finally:
            os.close(descriptor)

    def take_over(self, name: str, key: str, run: Path) -> dict[str, str] | None:
        """Bring the outputs of the step ``name`` from a sibling that has finished it with ``key``.

        What was copied is digested and compared with the sibling's marker before it counts, and
        it appears in ``run`` with its marker at once.

        Returns:
            The digests of the outputs, or None if no sibling has them whole.
        """
        stage = run / f".{name}.taken"
        for donor in self._find_donors(name, key, run):
            wipe(stage)
            outputs = _copy_outputs(donor / name, stage)
            if outputs is not None:
                wipe(run / name)
                os.replace(stage, run / name)
                return outputs
        wipe(stage)
        return None

    def _find_donors(self, name: str, key: str, run: Path) -> Iterator[Path]:
        for marker in sorted(self.folder.glob(f"*/{name}/{DONE}")):
            donor = marker.parent.parent
            if donor.resolve() != run.resolve() and _has_key(marker, key):
                yield donor


def _has_key(marker: Path, key: str) -> bool:
    """Look into the first bytes: a key stands first, and the outputs behind it may be many."""
    try:
        with marker.open("rb") as stream:
            return f'"key": "{key}"'.encode() in stream.read(200)
    except OSError:
        return False


def _copy_outputs(source: Path, stage: Path) -> dict[str, str] | None:
    """Copy what the marker in ``source`` lists, and the marker; None if it is not whole."""
    marker = read_marker(source / DONE)
    if marker is None or "outputs" not in marker:
        return None
    for path, digest in marker["outputs"].items():
        target = stage / Path(path).relative_to(source.name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _copy_file(source.parent / path, target)
        except FileNotFoundError:
            return None
        if digest_file(target) != digest:
            return None
    write_json(stage / DONE, {**marker, "taken_from": source.parent.name})
    return marker["outputs"]


def _copy_file(source: Path, target: Path) -> None:
    if source.suffix in _LINKED:
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise
        except OSError:  # another disk, or one without links
            pass
        else:
            return
    shutil.copyfile(source, target)
