"""What a run has left, held against the digests that it wrote down when it was made.

A digest tells what was changed, torn or mixed up since. It proves nothing against somebody who
writes the digests, too: what a folder from elsewhere says stays what somebody says.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter

from groupwise.core.digests import digest_file, digest_json
from groupwise.core.errors import DataError, RunError
from groupwise.core.jsonl import read_json, write_json
from groupwise.core.shapes import parse_value

STEP_DONE = "step.json"
"""The marker of a finished step, with the digests of its outputs."""
_SEAL = "digest"
_RECORDS = (".json", ".jsonl", ".yaml")
_DIGESTS = TypeAdapter(dict[str, str])
_TAKE = "take the whole run from where it was made, or let it do that step again (run --resume)"


def seal(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the digest of all that is in it."""
    return {**values, _SEAL: digest_json(dict(values))}


def read_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest in a file; one of an earlier version, without a digest, as it is.

    Of a torn one, what the run wrote at its last start into ``history.jsonl`` beside it.

    Raises:
        DataError: if it cannot be read, and there is no whole row of a start.
        RunError: if it is not what its run wrote.
    """
    try:
        manifest = read_json(path, dict)
    except DataError as error:
        manifest = _find_last_start(path.with_name("history.jsonl"))
        if manifest is None:
            raise DataError(
                f"{path} is torn", fix="take it from a copy, or start anew with --out DIR"
            ) from error
    check_sealed(manifest, path)
    return manifest


def _find_last_start(history: Path) -> dict[str, Any] | None:
    """Return the last row that is whole, by its own digest."""
    lines = history.read_bytes().splitlines() if history.is_file() else []
    for line in reversed(lines):
        with suppress(ValueError):
            row: Any = json.loads(line)
            if isinstance(row, dict):
                told = cast("dict[str, Any]", row)
                if seal(_unseal(told)) == told:
                    return told
    return None


def _unseal(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != _SEAL}


def check_sealed(values: Mapping[str, Any], path: Path) -> None:
    """Refuse a JSON object that was changed since it got its digest.

    Raises:
        RunError: if it was.
    """
    if _SEAL in values and digest_json(_unseal(values)) != values[_SEAL]:
        raise RunError(
            f"{path} was changed since its run wrote it",
            got="another digest than it names",
            fix="take the whole run from where it was made",
        )


def check_records(run: Path, *steps: str) -> None:
    """Refuse a run whose finished steps' JSON and YAML files are not what the steps wrote.

    A file that is gone is left to whoever reads it. A step that writes for people only, such as
    the report, is left out: what it wrote is written again by others.

    Args:
        run: the run folder.
        steps: whose files are looked at; all if none is named.

    Raises:
        RunError: if one was changed or added.
        DataError: if a marker cannot be read.
    """
    names = steps or sorted(path.parent.name for path in run.glob(f"[!.]*/{STEP_DONE}"))
    for name in names:
        known = _read_outputs(run, name)
        if not known or not all(path.startswith(f"{name}/") for path in known):
            continue
        for path in dict.fromkeys((*_list_records(run, name), *known)):
            file = run / path
            is_record = file.suffix in _RECORDS and ".." not in file.parts[len(run.parts) :]
            if is_record and file.is_file() and known.get(path) != digest_file(file):
                _refuse(run, path, "was changed" if path in known else "was added")


def check_folder(run: Path, folder: str) -> None:
    """Refuse a folder of a finished step that is not file by file what the step wrote.

    Args:
        run: the run folder.
        folder: below it, such as ``grpo/policy``.

    Raises:
        RunError: if a file was changed, added or removed.
        DataError: if the marker cannot be read.
    """
    known = _read_outputs(run, folder.partition("/")[0])
    if not known:
        return
    here = {path: digest for path, digest in known.items() if path.startswith(f"{folder}/")}
    found = {f"{folder}/{path}": digest for path, digest in digest_files(run / folder).items()}
    for path in sorted(here.keys() | found.keys()):
        if here.get(path) != found.get(path):
            missing = "is gone" if path in here else "was added"
            _refuse(run, path, "was changed" if path in here.keys() & found.keys() else missing)


def digest_files(folder: Path) -> dict[str, str]:
    """Return the digests of all files below a folder by their path in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): digest_file(path) for path in files}


def write_digests(marker: Path) -> None:
    """Write a marker with the digests of all other files of its folder: it is whole."""
    found = digest_files(marker.parent)
    found.pop(marker.name, None)
    write_json(marker, found)


def find_unlike(marker: Path) -> str | None:
    """Return the first file beside a marker of digests that is not what it was; None: all are."""
    try:
        known = _DIGESTS.validate_json(marker.read_bytes())
    except (OSError, ValueError):
        return marker.name
    found = digest_files(marker.parent)
    found.pop(marker.name, None)
    names = sorted(known.keys() | found.keys())
    return next((name for name in names if known.get(name) != found.get(name)), None)


def _read_outputs(run: Path, step: str) -> dict[str, str]:
    """Return the digests that a finished step wrote down; empty where it wrote none."""
    path = run / step / STEP_DONE
    done: dict[str, Any] = read_json(path, dict) if path.is_file() else {}
    return parse_value(
        done.get("outputs", {}), _DIGESTS, f"{path} is damaged", error=RunError, fix=_TAKE
    )


def _list_records(run: Path, step: str) -> Iterator[str]:
    """Yield the records that lie in a step's folder itself, without its markers."""
    for path in sorted((run / step).iterdir()):
        if path.suffix in _RECORDS and not path.name.startswith(".") and path.name != STEP_DONE:
            yield f"{step}/{path.name}"


def _refuse(run: Path, path: str, how: str) -> None:
    raise RunError(f"{run} is not what its steps wrote", got=f"{path}, which {how}", fix=_TAKE)
