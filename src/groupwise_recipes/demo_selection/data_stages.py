"""The stages ``prepare``, ``answerer`` and ``features``: items, and what answers them."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from groupwise.core import (
    DataError,
    Example,
    derive_seed,
    read_json,
    write_json,
)
from groupwise.data.audit import audit_data, write_audit
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.inference.local import LocalModel
from groupwise.models.policy import load_policy
from groupwise.run.steps import StepContext
from groupwise_drawn.dialects import SPLITS, Split, read_dialects, write_dialects
from groupwise_recipes.demo_selection.answerer import plan_teaching, teach_answerer
from groupwise_recipes.demo_selection.config import (
    DrawnDialects,
    VqaFiles,
    VqaQuestions,
)
from groupwise_recipes.demo_selection.demonstration_use import measure_demonstration_use
from groupwise_recipes.demo_selection.features import ClipFeatures
from groupwise_recipes.demo_selection.given_lists import read_given, write_given
from groupwise_recipes.demo_selection.items import list_contents, make_dialect_example
from groupwise_recipes.demo_selection.tiny_clip import write_tiny_clip
from groupwise_recipes.demo_selection.vqa import LoadedVqa, VqaRow, load_vqa, make_vqa_example

_WORLD = "world"
_SOURCE = "source.json"
_CAPTIONS = "captions.json"
_NUM_ASKED = 100
RECORDED = "recorded"
"""Folder of the lists of ``data.recorded``, one file for each side."""
USE = "use.json"
"""How the answerer uses demonstrations."""


def run_prepare(task: Any, context: StepContext) -> None:
    """Write the train items and the queries of each split."""
    del task
    config, folder = context.config, context.folder
    drawn, vqa = config.data.drawn, config.data.vqa
    if drawn is not None:
        splits, is_whole = _draw(drawn, folder, seed=config.seed), True
    else:
        train, test = load_files(vqa.train), load_files(vqa.test)
        rows = split_vqa(train, test, vqa, seed=config.seed)
        splits = {name: [make_vqa_example(row) for row in own] for name, own in rows.items()}
        is_whole = not train.drops.total
        found = {
            name: {"num_rows": loaded.num_rows, "drops": loaded.drops.to_json()}
            for name, loaded in (("train", train), ("test", test))
        }
        write_json(folder / _SOURCE, found)
    if config.data.recorded is not None:
        splits = _take_given(config, splits, folder, is_whole=is_whole)
    for name, examples in splits.items():
        write_examples(folder / f"{name}.jsonl", examples)


def _take_given(
    config: Any, splits: Mapping[str, Sequence[Example]], folder: Path, *, is_whole: bool
) -> dict[str, Sequence[Example]]:
    """Return the splits with the queries of the recorded file, whose lists are written."""
    data = config.data
    # Queries of the drawn world are no demonstrations; of official files they are train items.
    known = {one.id: one for name, own in splits.items() if name != "test" for one in own}
    given = read_given(data.recorded, list(known.values()), is_whole=is_whole)
    recorded = given.split(
        num_validation=data.questions.num_validation,
        num_anchors=data.questions.num_anchors,
        seed=derive_seed(config.seed, "recorded queries"),
    )
    write_given(given, recorded, folder / RECORDED, data.recorded)
    asked = {side: [known[one.query_id] for one in own.queries] for side, own in recorded.items()}
    return {**splits, **asked}


def run_audit(task: Any, context: StepContext) -> None:
    """Audit all that is shown or trained on against the test queries."""
    del task
    prepared = context.output_of("prepare")
    items = read_items(prepared)
    source = prepared / _SOURCE
    found = list(read_json(source, dict).values()) if source.is_file() else []
    audit = audit_data(
        {"train": list_shown(items), "test": items["test"]},
        drops=DropLog.from_json({"rows": [row for one in found for row in one["drops"]["rows"]]}),
        num_rows=sum(one["num_rows"] for one in found) if found else None,
    )
    write_audit(audit, context.folder)
    audit.refuse_errors()


def list_shown(items: Mapping[str, Sequence[Example]]) -> list[Example]:
    """Return the items that are shown or trained on, each once."""
    # Of official files, queries that are trained on are train items, too.
    seen = {one.id: one for name, rows in items.items() if name != "test" for one in rows}
    return list(seen.values())


def read_items(prepared: Path) -> dict[str, list[Example]]:
    """Return train items and queries by split."""
    return {name: read_examples(prepared / f"{name}.jsonl") for name in SPLITS}


def _draw(drawn: DrawnDialects, folder: Path, *, seed: int) -> dict[str, list[Example]]:
    sizes: dict[Split, int] = {
        "train": drawn.num_train,
        "anchors": drawn.num_anchors,
        "validation": drawn.num_validation,
        "test": drawn.num_test,
    }
    index = write_dialects(folder / _WORLD, seed=derive_seed(seed, "world"), sizes=sizes)
    splits: dict[str, list[Example]] = {name: [] for name in SPLITS}
    captions: dict[str, str] = {}
    for item in read_dialects(index):
        example = make_dialect_example(item)
        splits[item.split].append(example)
        captions[example.id] = item.scene.caption
    write_json(folder / _CAPTIONS, captions)
    return splits


def load_files(files: VqaFiles) -> LoadedVqa:
    """Load one split of official files."""
    return load_vqa(files.questions, annotations=files.annotations, pictures=files.pictures)


def split_vqa(
    train: LoadedVqa, test: LoadedVqa, wanted: VqaQuestions, *, seed: int
) -> dict[str, Sequence[VqaRow]]:
    """Return the rows of official files by split; no picture is read.

    Anchors and validation queries are among the train items; pools leave a query itself out.
    """
    num_queries = wanted.num_anchors + wanted.num_validation
    queries = _sample(train.rows, num_queries, seed=derive_seed(seed, "anchors"), name="train")
    return {
        "train": train.rows,
        "anchors": queries[: wanted.num_anchors],
        "validation": queries[wanted.num_anchors :],
        "test": _sample(test.rows, wanted.num_test, seed=derive_seed(seed, "test"), name="test"),
    }


def _sample(rows: Sequence[VqaRow], number: int, *, seed: int, name: str) -> list[VqaRow]:
    if number > len(rows):
        raise DataError(
            f"too few questions can be used for the queries from data.vqa.{name}",
            got=len(rows),
            expected=f"at least {number}",
        )
    return random.Random(seed).sample(rows, number)


def run_answerer(task: Any, context: StepContext) -> None:
    """Teach the tiny answerer to look words up in demonstrations, and measure how it does."""
    del task
    config = context.config
    folder = context.folder / "policy"
    teach_answerer(
        folder, plan_teaching(config.teach_steps), seed=derive_seed(config.seed, "teach")
    )
    figures = measure_demonstration_use(
        LocalModel(
            load_policy(folder, quantization=config.model.quantization),
            batch_size=config.asking.batch_size,
        ),
        read_dialects(context.output_of("prepare") / _WORLD / "items.jsonl"),
        form=config.form.make(),
        seed=config.seed,
        num_queries=_NUM_ASKED,
    )
    write_json(context.folder / USE, [asdict(one) for one in figures])


def run_features(task: Any, context: StepContext) -> None:
    """Embed all items, by a tiny CLIP model where none is given."""
    del task
    config, folder = context.config, context.folder
    prepared = context.output_of("prepare")
    items = read_items(prepared)
    if config.features.base is None:
        captions = read_json(prepared / _CAPTIONS, dict)
        shown = items["train"]
        write_tiny_clip(
            folder / "clip",
            [(one.pictures[0], captions[one.id]) for one in shown],
            texts=[str(one.fields["question"]) for one in shown],
            seed=derive_seed(config.seed, "clip"),
            num_steps=max(1, config.teach_steps // 2),
        )
    clip = open_features(config, context.run)
    for examples in items.values():
        clip.tabulate(list_contents(examples))


def open_features(config: Any, run: Path) -> ClipFeatures:
    """Return the CLIP model of a run.

    What it has embedded lies beside the stages: what a finished one wrote must not change.
    """
    base = run / "features" / "clip" if config.features.base is None else config.features.base
    return ClipFeatures(base, cache=run / "embedded")
