"""Judging new groups with a finished run, into a file that a later call continues."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from groupwise.core import (
    ConfigError,
    ResultFile,
    RunError,
    RunFolder,
    digest_json,
    load_config,
)
from groupwise.data import DropLog
from groupwise.pipeline.recipe import Recipe, find_recipe
from groupwise.serving import GroupPredictor, GroupRequest, GroupVerdict

ReportProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FoundGroups:
    """The groups of a folder.

    Attributes:
        requests: one for each group, with ids of their own.
        drops: files and folders that are in none, with reasons.
    """

    requests: tuple[GroupRequest, ...]
    drops: DropLog


@dataclass(frozen=True, slots=True)
class PredictionSummary:
    """What was made of a folder of groups; ``verdicts`` and ``failures`` add up to all groups.

    Attributes:
        num_groups: groups found.
        num_kept: of them, those with a verdict from an earlier call.
        verdicts: groups by verdict.
        failures: groups without a verdict by reason; the next call tries them again.
        for_people: ids of the groups that a person should look at.
        drops: what is in no group.
    """

    num_groups: int
    num_kept: int
    verdicts: dict[str, int]
    failures: dict[str, int]
    for_people: tuple[str, ...]
    drops: DropLog


def open_predictor(run: Path) -> tuple[GroupPredictor, Recipe[Any], Any]:
    """Return the predictor of a finished run, its recipe and its config.

    Raises:
        ConfigError: if its recipe judges no groups.
        RunError: if there is no run, or it has no trained policy yet.
    """
    manifest = RunFolder(run).read_manifest()
    recipe = find_recipe(manifest["recipe"])
    if recipe.prediction is None:
        raise ConfigError(f"the recipe {recipe.name} judges no groups of pictures")
    config = load_config(recipe.load_config_type(), manifest["config"])
    return recipe.prediction.open_predictor(config, run), recipe, config


def predict_folder(
    run: Path,
    photos: Path,
    *,
    out: Path,
    batch_size: int,
    report_progress: ReportProgress = lambda done, total: None,
) -> PredictionSummary:
    """Judge every group of a folder, and append its verdict to ``out`` as soon as it is there.

    Args:
        run: folder of a finished run.
        photos: folder of groups, as the recipe takes them.
        out: JSONL; groups that have a verdict in it are not judged again.
        batch_size: groups judged together.
        report_progress: called with the numbers of finished and of all groups.

    Raises:
        ConfigError: if the recipe judges no groups, or ``photos`` is no folder.
        RunError: if ``out`` is in use, or holds verdicts of another model.
    """
    if not photos.is_dir():
        raise ConfigError(f"there is no folder {photos}")
    predictor, recipe, config = open_predictor(run)
    assert recipe.prediction is not None
    found = recipe.prediction.list_groups(config, photos)
    model = digest_json(dict(predictor.describe()))
    with ResultFile(out, key="id") as results:
        _check_model(results, model)
        num_kept = sum(request.id in results.finished for request in found.requests)
        waiting = [r for r in found.requests if r.id not in results.finished]
        for start in range(0, len(waiting), batch_size):
            report_progress(num_kept + start, len(found.requests))
            batch = waiting[start : start + batch_size]
            for request, verdict in zip(batch, predictor.predict(batch), strict=True):
                results.append(_make_row(request, verdict, model))
        report_progress(len(found.requests), len(found.requests))
        rows = list(results.rows())
    return _sum_up(rows, found, num_kept)


def _check_model(results: ResultFile, model: str) -> None:
    if any(row["model"] != model for row in results.rows()):
        raise RunError(
            f"{results.path} holds verdicts of another model", fix="write to another file"
        )


def _make_row(request: GroupRequest, verdict: GroupVerdict, model: str) -> dict[str, Any]:
    row = asdict(verdict)
    failure = row.pop("failure")
    return {**row, "task": request.task, "failed": failure, "model": model}


def _sum_up(rows: Sequence[dict[str, Any]], found: FoundGroups, num_kept: int) -> PredictionSummary:
    asked = {request.id for request in found.requests}
    mine = [row for row in rows if row["id"] in asked]
    return PredictionSummary(
        num_groups=len(found.requests),
        num_kept=num_kept,
        verdicts=dict(Counter(row["verdict"] for row in mine if not row["failed"])),
        failures=dict(Counter(row["failed"] for row in mine if row["failed"])),
        for_people=tuple(row["id"] for row in mine if row["needs_person"]),
        drops=found.drops,
    )
