"""What a report says, as data: numbers and words, without layout.

Built by ``building`` from the files of a run, drawn by ``plots`` and ``rendering``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from groupwise.evaluation.calibration import ReliabilityBin
from groupwise.evaluation.confusion import Confusion
from groupwise.evaluation.measures import Measure, find_measure
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.paired import PairedComparison
from groupwise.evaluation.report.sections import Section

POLICY_TITLES = {
    "majority": "Majority label",
    "text_only": "Text only",
    "picture_only": "Picture only",
    "prompt": "Prompting",
    "sft": "SFT warm-up",
    "sft_same_labels": "SFT, same labels",
    "grpo": "GRPO",
}
POLICY_NOTES = {
    "majority": "always the most frequent training label",
    "text_only": "sees the task's text, not the picture",
    "picture_only": "sees the picture, not the task's text",
    "prompt": "the policy before any training",
    "sft": "the supervised start of GRPO",
    "sft_same_labels": "supervised on all labels that GRPO saw",
    "grpo": "the trained policy",
}
BLIND_POLICIES = ("majority", "text_only", "picture_only")
Level = Literal["error", "warning", "info"]


def title_policy(policy: str) -> str:
    """Return how a report calls a policy; one it does not know keeps its name."""
    return POLICY_TITLES.get(policy, policy)


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the reader must know before any number.

    Attributes:
        level: ``error``, ``warning`` or ``info``.
        text: one or two sentences.
        source: the file it comes from.
    """

    level: Level
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class HeadlineRow:
    """A policy's line in the headline table; a metric that is not in the file is None."""

    policy: str
    accuracy: Metric
    clustered: Metric | None
    balanced: Metric | None
    invalid_rate: Metric | None
    is_best: bool

    @property
    def title(self) -> str:
        """The policy's name for readers."""
        return title_policy(self.policy)

    @property
    def note(self) -> str:
        """What the policy is, in a few words."""
        return POLICY_NOTES.get(self.policy, "")


@dataclass(frozen=True, slots=True)
class Headline:
    """The headline table of one split."""

    split: str
    rows: tuple[HeadlineRow, ...]


@dataclass(frozen=True, slots=True)
class SliceTable:
    """Accuracy of every policy on each value of one field."""

    field: str
    values: tuple[str, ...]
    cells: Mapping[tuple[str, str], Metric]
    policies: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PolicyDetail:
    """Confusion and calibration of one policy on the main split."""

    policy: str
    confusion: Confusion
    bins: tuple[ReliabilityBin, ...]
    measures: Mapping[str, Metric]

    @property
    def title(self) -> str:
        """The policy's name for readers."""
        return title_policy(self.policy)

    @property
    def has_probabilities(self) -> bool:
        """Whether there is anything to draw a reliability curve from."""
        return any(part.num_items for part in self.bins)


@dataclass(frozen=True, slots=True)
class TrainingLog:
    """The metrics.jsonl of one training step."""

    name: str
    rows: tuple[Mapping[str, Any], ...]

    def read_series(self, key: str) -> tuple[list[float], list[float]]:
        """Return (steps, values) of the rows that have ``key``."""
        found = [(row["step"], row[key]) for row in self.rows if _has_numbers(row, key)]
        return [float(step) for step, _ in found], [float(value) for _, value in found]

    @property
    def is_rewarded(self) -> bool:
        """Whether it trained by rewards, as GRPO does; the loss then says nothing."""
        return any("reward" in row for row in self.rows)

    def list_parts(self) -> list[str]:
        """Return the names of the reward parts (``reward/NAME``), sorted."""
        keys = {key for row in self.rows for key in row}
        return sorted(
            key.removeprefix("reward/")
            for key in keys
            if key.startswith("reward/") and not key.endswith("_std")
        )


def _has_numbers(row: Mapping[str, Any], key: str) -> bool:
    return all(
        isinstance(row.get(name), int | float) and not isinstance(row[name], bool)
        for name in ("step", key)
    )


@dataclass(frozen=True, slots=True)
class SeriesRow:
    """One value of a training over its steps, in words."""

    title: str
    first: str
    last: str
    low: str
    high: str
    num_rows: int


@dataclass(frozen=True, slots=True)
class TrainingTable:
    """The values of one training step, as ``groupwise watch`` shows them."""

    step: str
    num_steps: int
    rows: tuple[SeriesRow, ...]

    @property
    def title(self) -> str:
        """The step's name for readers."""
        return title_policy(self.step)


@dataclass(frozen=True, slots=True)
class Mistake:
    """An item the shown policy got wrong.

    Attributes:
        picture: where its first picture is, or None if it is not there any more.
        task: the task's text, or "" where the item has none.
        label: the truth.
        predicted: the answered label, None if invalid.
        reason: why the answer was invalid.
        text: the answer as given.
        confidence: probability of the answered label.
        example_id: the item.
        group: its group.
    """

    picture: Path | None
    task: str
    label: str
    predicted: str | None
    reason: str
    text: str
    confidence: float | None
    example_id: str
    group: str


@dataclass(frozen=True, slots=True)
class Mistakes:
    """Mistakes of one policy, the most confident first, and how many there are in all."""

    policy: str
    num_wrong: int
    num_items: int
    shown: tuple[Mistake, ...]

    @property
    def title(self) -> str:
        """The policy's name for readers."""
        return title_policy(self.policy)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a report says.

    Attributes:
        title: recipe and run.
        notices: warnings, the worst first.
        findings: sentences made from numbers only.
        sections: what the recipe adds.
        split: the main split, which plots and details are about ("" without predictions).
        headlines: one table per split, the main one first.
        comparisons: paired comparisons.
        slices: accuracies by field.
        details: confusion and calibration by policy.
        logs: training logs by step name.
        trainings: the same as tables.
        mistakes: what the last policy got wrong, None without predictions.
        audit: audit/audit.json as it is, None if not there.
        gates: the gate.json of each training step that has one, as it is.
        manifest: manifest.json as it is, None if not there.
        measures: what the recipe's own measures are called, and which way is better.
        absent: files that are not there, by path, with what they would have shown.
    """

    title: str
    notices: tuple[Notice, ...]
    findings: tuple[str, ...]
    sections: tuple[Section, ...]
    split: str
    headlines: tuple[Headline, ...]
    comparisons: tuple[PairedComparison, ...]
    slices: tuple[SliceTable, ...]
    details: tuple[PolicyDetail, ...]
    logs: Mapping[str, TrainingLog]
    trainings: tuple[TrainingTable, ...]
    mistakes: Mistakes | None
    audit: Mapping[str, Any] | None
    gates: Mapping[str, Mapping[str, Any]]
    manifest: Mapping[str, Any] | None
    measures: tuple[Measure, ...]
    absent: Mapping[str, str]

    def define(self, name: str) -> Measure:
        """Return a measure; one that nobody defined is better when it is higher."""
        return find_measure(name, self.measures) or Measure(name, name, name)
