"""The stages from candidates to trained selectors: lists are drawn, tried and learned from."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from groupwise.core import (
    ConfigError,
    Example,
    ProgressLine,
    derive_seed,
    digest_json,
    read_json,
    write_jsonl,
)
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.model import Sampling
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import StreamSettings
from groupwise.judges import ReplyCache
from groupwise.models.identity import digest_base
from groupwise.models.policy import load_policy
from groupwise.run.steps import StepContext
from groupwise.training.checkpoints import Workspace
from groupwise_recipes.demo_selection.asking import Answerer
from groupwise_recipes.demo_selection.candidate_audit import (
    audit_candidates,
    write_candidate_audit,
)
from groupwise_recipes.demo_selection.candidate_files import read_candidates
from groupwise_recipes.demo_selection.candidate_groups import make_groups
from groupwise_recipes.demo_selection.choosing import PooledQueries
from groupwise_recipes.demo_selection.data_stages import RECORDED, open_features, read_items
from groupwise_recipes.demo_selection.features import FeatureTable
from groupwise_recipes.demo_selection.given_lists import GIVEN
from groupwise_recipes.demo_selection.items import list_contents
from groupwise_recipes.demo_selection.pointwise import fit_pointwise, write_pointwise
from groupwise_recipes.demo_selection.pools import draw_pools
from groupwise_recipes.demo_selection.recorded_groups import RecordedGroups
from groupwise_recipes.demo_selection.recording import draw_lists, record_candidates
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.settings import SelectorSettings
from groupwise_recipes.demo_selection.training import (
    measure_rce,
    train_selector_grpo,
    train_selector_rce,
)

SELECTOR = "selector.safetensors"
ANSWERS = "answers.sqlite"
"""All answers of a run. It is in no stage's folder: what a finished stage wrote must not change."""
TRAINED_ON = ("anchors", "validation")


@dataclass(frozen=True)
class Material:
    """Items and features of a run.

    Attributes:
        items: train items and queries, by split.
        tables: their features, by split.
    """

    items: dict[str, list[Example]]
    tables: dict[str, FeatureTable]

    def pool(self, config: Any, split: str) -> PooledQueries:
        """Return the queries of a split with their pools."""
        queries, train = self.tables[split], self.tables["train"]
        return PooledQueries(
            tuple(self.items[split]), queries, train, draw_run_pools(config, queries, train)
        )


def read_material(config: Any, run: Path) -> Material:
    """Return the items and features of a run that has both."""
    items = read_items(run / "prepare")
    clip = open_features(config, run)
    return Material(items, {n: clip.tabulate(list_contents(rows)) for n, rows in items.items()})


def draw_run_pools(config: Any, queries: FeatureTable, train: FeatureTable) -> Any:
    """Return the pools of queries as the settings of a run draw them."""
    settings = config.pools
    return draw_pools(
        queries,
        train,
        sampler=settings.sampler,
        size=settings.size,
        seed=config.seed,
    )


def open_answerer(
    config: Any,
    base: str | Path,
    train: Sequence[Example],
    *,
    cache: Path | None = None,
    device: str | None = None,
) -> Answerer:
    """Return the frozen answerer of a run, in this process or behind its server."""
    model, server = config.model, config.server
    if server is not None:
        backend = ServerModel(server, max_pixels=model.max_pixels)
        identity = digest_json(ServerModel(server).identity)
    else:
        place = None if device is None else torch.device(device)
        policy = load_policy(
            base,
            dtype=model.dtype,
            max_pixels=model.max_pixels,
            device=place,
            quantization=model.quantization,
        )
        backend = LocalStream(LocalModel(policy))
        identity = digest_json([str(digest_base(base)), model.dtype, model.quantization])
    return Answerer(
        backend,
        identity=identity,
        train=train,
        form=config.form.make(),
        sampling=Sampling(max_new_tokens=config.asking.max_new_tokens),
        stream=StreamSettings(batch_size=config.asking.batch_size, max_pixels=model.max_pixels),
        cache=None if cache is None else ReplyCache(cache),
    )


def run_candidates(task: Any, context: StepContext) -> None:
    """Record candidates with a selector that has learned nothing."""
    config = context.config
    selector = _make_selector(config, read_material(config, context.run))
    _record(task, context, selector)


def run_given(task: Any, context: StepContext) -> None:
    """Take the lists of ``data.recorded``, and audit those of anchors."""
    del task
    given = context.output_of("prepare") / RECORDED
    for split in TRAINED_ON:
        shutil.copyfile(given / f"{split}.jsonl", context.folder / f"{split}.jsonl")
    told = read_json(given / GIVEN, dict)
    drops = "".join(f", {n} x {reason}" for reason, n in told["drops"]["counts"].items())
    context.say(
        f"{told['file']}: {told['num_lists']:,} lists of {told['num_queries']:,} queries{drops}; "
        f"its ids are {told['ids']}"
    )
    _audit(context, told["file"])


def run_candidates_again(task: Any, context: StepContext) -> None:
    """Record candidates with the selector after RCE."""
    _record(task, context, PointerSelector.load(context.output_of("rce") / "policy" / SELECTOR))


def _record(task: Any, context: StepContext, selector: PointerSelector) -> None:
    """Try lists for anchors and validation queries, and audit what came of those of anchors."""
    config, folder = context.config, context.folder
    material = read_material(config, context.run)
    base = task.find_base(config, context.run)
    answerer = open_answerer(config, base, material.items["train"], cache=context.run / ANSWERS)
    for split in TRAINED_ON:
        asked = material.pool(config, split)
        drawn = draw_lists(
            selector, asked, config.recording, seed=derive_seed(config.seed, context.name)
        )
        record_candidates(
            folder / f"{split}.jsonl",
            answerer,
            asked,
            drawn,
            correct_above=config.recording.correct_above,
            report_progress=ProgressLine("items", context.say),
        )
    _audit(context)


def _audit(context: StepContext, file: str | None = None) -> None:
    config, folder = context.config, context.folder
    anchors = read_candidates(folder / "anchors.jsonl")
    audit = audit_candidates(anchors, mode=config.reward, limits=config.limits, name=file)
    write_candidate_audit(audit, folder).refuse_errors()


def run_rce(task: Any, context: StepContext) -> None:
    """Train a new selector by RCE."""
    del task
    config = context.config
    material = read_material(config, context.run)
    groups = _read_groups(context.output_of("candidates"), material, config)
    if config.rce.weights is not None:
        _take_weights(config, context, material, groups["validation"])
        return
    selector = train_selector_rce(
        _make_selector(config, material),
        groups["anchors"],
        config.rce,
        workspace=Workspace(context.folder, config.seed),
        validation=groups["validation"],
    )
    selector.save(context.folder / "policy" / SELECTOR)


def _take_weights(
    config: Any, context: StepContext, material: Material, validation: RecordedGroups
) -> None:
    """Keep a selector that was given as RCE's first epoch, with its validation loss."""
    selector = PointerSelector.load(config.rce.weights)
    _check_size(selector.settings, material)
    selector.save(context.folder / "epoch-1.safetensors")
    selector.save(context.folder / "policy" / SELECTOR)
    row = {"step": 0, "epoch": 1.0, "eval_loss": measure_rce(selector, validation)}
    write_jsonl(context.folder / "metrics.jsonl", [row])


def run_grpo(task: Any, context: StepContext) -> None:
    """Train the selector of RCE by GRPO."""
    del task
    config = context.config
    material = read_material(config, context.run)
    groups = _read_groups(context.run / find_recorded(context), material, config)
    start = context.output_of("rce") / "policy" / SELECTOR
    selector = train_selector_grpo(
        PointerSelector.load(start),
        groups["anchors"],
        config.grpo,
        workspace=Workspace(context.folder, config.seed),
        validation=groups["validation"],
    )
    selector.save(context.folder / "policy" / SELECTOR)
    shutil.copyfile(start, context.folder / "start.safetensors")


def run_pointwise(task: Any, context: StepContext) -> None:
    """Fit the rival of the selector to all lists that were recorded for anchors."""
    del task
    config = context.config
    material = read_material(config, context.run)
    recorded = [name for name in ("candidates", "candidates_again") if name in context.uses]
    groups = [_read_groups(context.output_of(one), material, config) for one in recorded]
    write_pointwise(fit_pointwise(one["anchors"] for one in groups), context.folder)


def find_recorded(context: StepContext) -> str:
    """Return the stage whose candidates GRPO is trained on."""
    return "candidates_again" if "candidates_again" in context.uses else "candidates"


def _read_groups(folder: Path, material: Material, config: Any) -> dict[str, RecordedGroups]:
    tables = material.tables
    return {
        split: make_groups(
            read_candidates(folder / f"{split}.jsonl"),
            queries=tables[split],
            train=tables["train"],
            mode=config.reward,
        )
        for split in TRAINED_ON
    }


def _make_selector(config: Any, material: Material) -> PointerSelector:
    """Return a new selector for the features that there are."""
    settings: SelectorSettings = config.selector
    _check_size(settings, material)
    return PointerSelector(settings, seed=derive_seed(config.seed, "selector"))


def _check_size(settings: SelectorSettings, material: Material) -> None:
    size = material.tables["train"].pictures.shape[1]
    if settings.feature_size != size:
        raise ConfigError(
            "selector.feature_size is not that of the features",
            got=settings.feature_size,
            expected=size,
        )
