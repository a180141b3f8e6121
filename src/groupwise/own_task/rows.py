"""The user's rows as examples in files, with the targets that agree with their answers."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise import core
from groupwise.core import ROW_FIELD, DataError, Example, Finding
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.data.tables import LoadedTable, load_labelled, load_table
from groupwise.own_task.config import TaskConfig, is_whole
from groupwise.rewards import Parser
from groupwise.training.settings import RowsOfEpoch, SftRow

_SOURCE, _WARMUP = "source.json", "warmup.jsonl"


def load_rows(config: TaskConfig, folder: Path) -> LoadedTable:
    """Load and split the rows; answers are spelled as the parser spells them."""
    return load_table(
        config.data,
        folder,
        seed=config.seed,
        read_answer=_spell(config.answer),
        near=config.data.near_duplicates,
        mirrored=config.data.mirror_invariant,
    )


def read_labelled_rows(
    config: TaskConfig, path: Path, folder: Path
) -> tuple[list[Example], DropLog]:
    """Load the rows of other data with the same columns, their answers spelled the same way."""
    return load_labelled(config.data, path, folder, read_answer=_spell(config.answer))


def _spell(parser: Parser) -> Callable[[str], str | None]:
    def read_answer(text: str) -> str | None:
        try:
            return parser.parse(parser.write(text)).label
        except core.RewardError:
            return None

    return read_answer


def prepare_rows(config: TaskConfig, folder: Path) -> None:
    """Write ``{train,validation,test}.jsonl``, ``warmup.jsonl`` and ``source.json``."""
    loaded = load_rows(config, folder / "pictures")
    for split, examples in loaded.splits.items():
        write_examples(folder / f"{split}.jsonl", examples)
    given = list_targets(config, loaded)
    targets, wrong = check_targets(loaded.splits["train"], given, config.answer)
    core.write_jsonl(folder / _WARMUP, [{"id": key, "target": t} for key, t in targets.items()])
    findings = [*loaded.findings, *wrong, *_describe_sources(loaded)]
    core.write_json(
        folder / _SOURCE,
        {
            "num_rows": loaded.num_rows,
            "drops": loaded.drops.to_json(),
            "sources": loaded.sources,
            "findings": [finding.to_json() for finding in findings],
        },
    )


def read_findings(folder: Path) -> list[Finding]:
    """Return what there is to know of the rows that ``prepare_rows`` wrote."""
    source = json.loads((folder / _SOURCE).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = source["findings"]
    return [Finding(**{**finding, "where": tuple(finding["where"])}) for finding in found]


NOTHING_TAUGHT = (
    "sft: no row for training has a target that gives its answer; give such targets, "
    "or set sft to null"
)


def read_targets(folder: Path) -> dict[str, str]:
    """Return the targets that are taught, by the ids of their rows."""
    return {row["id"]: row["target"] for row in core.read_jsonl(folder / _WARMUP)}


def read_warmup(folder: Path) -> RowsOfEpoch:
    """Return the training rows that have a target."""
    targets = read_targets(folder)
    examples = read_examples(folder / "train.jsonl")
    rows = [SftRow(e, targets[e.id]) for e in examples if e.id in targets]
    if not rows:
        raise DataError(NOTHING_TAUGHT)
    return lambda _: rows


def list_targets(config: TaskConfig, loaded: LoadedTable) -> Mapping[str, str]:
    """Return what a warm-up teaches by id: the targets, or whole answers if there is no column."""
    if config.data.columns.target or not is_whole(config.answer.kind, config.answer.tags):
        return loaded.targets
    train = loaded.splits["train"]
    return {e.id: config.answer.write(e.label) for e in train if e.label is not None}


def check_targets(
    examples: Sequence[Example], targets: Mapping[str, str], parser: Parser
) -> tuple[dict[str, str], list[Finding]]:
    """Return the targets, where there are references those that count as right, and a finding."""
    given = [example for example in examples if example.id in targets]
    right = [e for e in given if e.label is None or parser.measure(e, targets[e.id]) == 1.0]
    kept = {e.id: targets[e.id] for e in right}
    places = [
        f"{e.fields.get(ROW_FIELD)} ({targets[e.id][:60]!r})" for e in given if e.id not in kept
    ]
    message = "{count} targets are not taught: they do not give the answer of their row"
    return kept, core.report_places("warning", "targets_disagree", message, places)


def _describe_sources(loaded: LoadedTable) -> list[Finding]:
    lines = [
        f"{split}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items())
        for split, counts in loaded.sources.items()
    ]
    return core.report_places("info", "sources", "Rows come from:", lines)
