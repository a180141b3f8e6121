"""The verdict: whether runs differ in nothing but what is compared."""

from collections.abc import Sequence
from dataclasses import dataclass

from groupwise.core import EvaluationError
from groupwise.evaluation.fairness.differences import Difference, find_differences
from groupwise.evaluation.fairness.facts import RunFacts
from groupwise.evaluation.fairness.relations import ItemRelation, relate_items
from groupwise.evaluation.fairness.sameness import Sameness, find_sameness


@dataclass(frozen=True, slots=True)
class FairnessVerdict:
    """What must be known before two runs are compared.

    Attributes:
        differences: all of them, the confounding ones first.
        relations: of the items of every two runs.
        remarks: what is suspiciously the same.
        is_fair: whether nothing confounds and every training step of every run trained something.
            If not, nothing is recommended.
    """

    differences: tuple[Difference, ...]
    relations: tuple[ItemRelation, ...]
    remarks: tuple[Sameness, ...]
    is_fair: bool

    @property
    def confounding(self) -> tuple[Difference, ...]:
        """The differences that make the runs unlike."""
        return tuple(one for one in self.differences if one.kind == "confounding")


def check_fairness(
    runs: Sequence[RunFacts], *, factors: Sequence[str] = (), split: str = "test"
) -> FairnessVerdict:
    """Hold runs together: every difference, how their items relate, and what is too much the same.

    Args:
        runs: two or more, with different names.
        factors: what is compared: keys or sections of the config (``grpo.beta``), or aspects
            (``data``, ``policy``); what follows from it is intended, too.
        split: whose items are compared.

    Raises:
        EvaluationError: with fewer than two runs, the same policy of the same folder twice, a run
            without items in the split, or a name in ``factors`` that no run has.
    """
    _check_runs(runs)
    relations = relate_items(runs, split=split)
    differences = find_differences(runs, relations, factors=factors)
    remarks = find_sameness(runs, relations, differences, factors=factors)
    is_fair = not any(one.kind == "confounding" for one in differences) and not any(
        remark.level == "error" for remark in remarks
    )
    return FairnessVerdict(differences, relations, remarks, is_fair)


def _check_runs(runs: Sequence[RunFacts]) -> None:
    if len(runs) < 2:
        raise EvaluationError("a comparison needs runs", got=len(runs), expected="two or more")
    seen: dict[tuple[str, str], str] = {}
    for run in runs:
        place = (str(run.folder.resolve()), run.policy)
        if place in seen or run.name in seen.values():
            raise EvaluationError(
                f"{run.name} is given twice",
                expected="different runs, or different policies of a run",
                fix="leave one of them out",
            )
        seen[place] = run.name
