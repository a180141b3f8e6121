"""The user's rows as examples in files, with the targets that agree with their answers."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from groupwise import core
from groupwise.core import DataError, Example, Finding, Message
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.data.rows import ask_about_row
from groupwise.data.tables import LoadedTable, load_labelled, load_table
from groupwise.own_task.config import TaskConfig, is_whole
from groupwise.own_task.scoring import ScoredTask
from groupwise.rewards import Parser, RewardCase
from groupwise.run.steps import StepContext
from groupwise.run.task import Estimate
from groupwise.serving import Request
from groupwise.training.settings import RowsOfEpoch, SftRow

_SOURCE, _WARMUP = "source.json", "warmup.jsonl"
NOTHING_TAUGHT = (
    "sft: no row for training has a target that gives its answer; give such targets, "
    "or set sft to null"
)


class RowsTask(ScoredTask):
    """The rows of a table: split, taught and asked as a config says."""

    def prepare(self, config: TaskConfig, folder: Path) -> None:
        """Write ``{train,validation,test}.jsonl``, ``warmup.jsonl`` and ``source.json``."""
        loaded = _load_rows(config, folder / "pictures")
        for split, examples in loaded.splits.items():
            write_examples(folder / f"{split}.jsonl", examples)
        targets, wrong = _choose_targets(config, loaded)
        core.write_jsonl(folder / _WARMUP, [{"id": k, "target": t} for k, t in targets.items()])
        lines = [
            f"{split}: " + ", ".join(f"{name} {count:,}" for name, count in counts.items())
            for split, counts in loaded.sources.items()
        ]
        came = core.report_places("info", "sources", "Rows come from:", lines)
        source = {
            "num_rows": loaded.num_rows,
            "drops": loaded.drops.to_json(),
            "sources": loaded.sources,
            "findings": [finding.to_json() for finding in (*loaded.findings, *wrong, *came)],
        }
        core.write_json(folder / _SOURCE, source)

    def find_in_data(self, config: TaskConfig, prepared: Path) -> Sequence[Finding]:
        """Return where the rows of each split come from, and what to know of them."""
        found: list[dict[str, Any]] = core.read_json(prepared / _SOURCE, dict)["findings"]
        return [Finding(**{**finding, "where": tuple(finding["where"])}) for finding in found]

    def warmup(self, config: TaskConfig, folder: Path) -> RowsOfEpoch:
        """Return the training rows that have a target."""
        targets = _read_targets(folder)
        examples = read_examples(folder / "train.jsonl")
        rows = [SftRow(e, targets[e.id]) for e in examples if e.id in targets]
        if not rows:
            raise DataError(NOTHING_TAUGHT)
        return lambda _: rows

    def make_case(self, config: TaskConfig, folder: Path) -> RewardCase:
        """Return the rewards and the training prompts."""
        return self.audit_on(config, read_examples(folder / "train.jsonl"), _read_targets(folder))

    def picture_columns(self, config: TaskConfig) -> Sequence[str]:
        """Return those of the rows."""
        return config.data.columns.pictures

    def read_labelled(
        self, config: TaskConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[list[Example], DropLog]:
        """Return the rows of other files with the same columns, their answers spelled alike."""
        return load_labelled(config.data, path, folder, read_answer=partial(_spell, config.answer))

    def make_question(self, config: TaskConfig, request: Request, folder: Path) -> Example:
        """Return the prompt of a row."""
        return ask_about_row(config.data, request.row, request.pictures, folder)

    def describe_prompt(self, config: TaskConfig) -> Sequence[Message]:
        """Return the templates of the prompt."""
        asked = config.data.columns.prompt
        user = Message("user", asked if "{" in asked else f"{{{{ {asked} }}}}")
        return [*([Message("system", config.data.system)] if config.data.system else []), user]

    def estimate(self, config: TaskConfig) -> Estimate:
        """Return rows, sources and lengths; the rewards are loaded: what stops them is reported."""
        self.rewards(config)
        with TemporaryDirectory() as folder:
            loaded = _load_rows(config, Path(folder))
        train = loaded.splits["train"]
        are_left = all(picture.path.is_file() for e in train[:1] for picture in e.pictures)
        write, (taught, wrong) = config.answer.write, _choose_targets(config, loaded)
        dropped = "".join(f"; {num:,} x {why}" for why, num in loaded.drops.counts.items())
        num_used = sum(map(len, loaded.splits.values()))
        return Estimate(
            num_prompts=len(train),
            num_sft_rows=sum(example.id in taught for example in train),
            # Of all splits, those of training first: what is asked later has to fit, too.
            rows=[
                (e, taught.get(e.id) or (write(e.label) if e.label else ""))
                for split in loaded.splits.values()
                for e in split
            ],
            sources=loaded.sources,
            facts=[
                *(("warning", finding.message) for finding in (*loaded.findings, *wrong)),
                ("rows", f"{num_used:,} of {loaded.num_rows:,} used{dropped}"),
            ],
            later={} if taught or config.sft is None else {"sft": [NOTHING_TAUGHT]},
            num_readers=int("fluency" in config.rewards),
            # Pictures that rows hold themselves are files only where a run has prepared them.
            case=partial(self.audit_on, config, train, taught) if are_left else None,
        )


def _load_rows(config: TaskConfig, folder: Path) -> LoadedTable:
    """Load and split the rows; answers are spelled as the parser spells them."""
    return load_table(
        config.data,
        folder,
        seed=config.seed,
        read_answer=partial(_spell, config.answer),
        near=config.data.near_duplicates,
        mirrored=config.data.mirror_invariant,
    )


def _spell(parser: Parser, text: str) -> str | None:
    try:
        return parser.parse(parser.write(text)).label
    except core.RewardError:
        return None


def _read_targets(folder: Path) -> dict[str, str]:
    """Return the targets that are taught, by the ids of their rows."""
    return {row["id"]: row["target"] for row in core.read_jsonl(folder / _WARMUP)}


def _choose_targets(
    config: TaskConfig, loaded: LoadedTable
) -> tuple[dict[str, str], list[Finding]]:
    """Return what a warm-up teaches by id: the targets, or whole answers if there is no column.

    Where there are references, only those that count as right, and a finding about the others.
    """
    parser, train = config.answer, loaded.splits["train"]
    targets: Mapping[str, str] = loaded.targets
    if not config.data.columns.target and is_whole(parser.kind, parser.tags):
        targets = {e.id: parser.write(e.label) for e in train if e.label is not None}
    given = [example for example in train if example.id in targets]
    right = [e for e in given if e.label is None or parser.measure(e, targets[e.id]) == 1.0]
    kept = {e.id: targets[e.id] for e in right}
    places = [
        f"{e.fields.get(core.ROW_FIELD)} ({targets[e.id][:60]!r})"
        for e in given
        if e.id not in kept
    ]
    message = "{count} targets are not taught: they do not give the answer of their row"
    return kept, core.report_places("warning", "targets_disagree", message, places)
