"""Facts: what is known of a run and one of its policies, flat, so that runs can be held together.

A fact has an aspect (what it is about) and a key. Of the steps of a run only those behind the
policy count. What one policy answered comes along, item by item. Nothing is judged here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError
from groupwise.evaluation.fairness.conditions import read_recorded
from groupwise.evaluation.fairness.gathering import (
    list_condition_facts,
    list_manifest_facts,
    list_policy_facts,
    list_step_facts,
)
from groupwise.evaluation.fairness.scope import Scope, read_scope
from groupwise.evaluation.fairness.standing import check_finished
from groupwise.evaluation.policies import Policies, read_policies
from groupwise.evaluation.predictions import Prediction, group_by_policy, read_predictions


@dataclass(frozen=True, slots=True)
class Answer:
    """What a policy answered to one item: the truth, the label given (None: invalid), the text."""

    label: str
    predicted: str | None
    text: str


@dataclass(frozen=True, slots=True)
class RunFacts:
    """One system: a run and one of its policies.

    Attributes:
        name: what it is called here, ``FOLDER:POLICY``; ``dataclasses.replace`` gives another.
        folder: the run.
        policy: whose answers are compared.
        facts: JSON values by ``aspect/key``; what is not recorded is not there.
        item_ids: by split: ids of the items that the policy answered.
        answers: by split and item.
        scope: what of the run stands behind the policy.
    """

    name: str
    folder: Path
    policy: str
    facts: Mapping[str, Any]
    item_ids: Mapping[str, frozenset[str]]
    answers: Mapping[str, Mapping[str, Answer]] = field(
        default_factory=dict[str, Mapping[str, Answer]]
    )
    scope: Scope = field(default_factory=Scope)


def read_facts(
    folder: Path,
    *,
    policy: str | None = None,
    predictions: Sequence[Prediction] | None = None,
) -> RunFacts:
    """Read what is known of a run.

    Args:
        folder: a finished run.
        policy: whose answers are compared; None: the last one of the run.
        predictions: those of ``evaluate/predictions.jsonl``, if they have been read already.

    Raises:
        EvaluationError: if the run is not evaluated, has no such policy or answered an item twice,
            or if a file is damaged.
        DataError: if the predictions cannot be read.
    """
    conditions = read_recorded(folder)
    plan, effects = check_finished(folder)
    rows = predictions
    if rows is None:
        rows = read_predictions(folder / "evaluate" / "predictions.jsonl")
    policies = read_policies(folder)
    name = _choose_policy(folder, rows, policies, policy)
    answers = {
        split: {row.example_id: Answer(row.label, row.predicted, row.text) for row in items}
        for (split, _), items in group_by_policy(r for r in rows if r.policy == name).items()
    }
    scope = read_scope(policies, plan, name, evaluated=answers, effects=effects)
    facts = {
        "policy/name": name,
        **list_manifest_facts(folder, scope, has_conditions=conditions is not None),
        **list_condition_facts(conditions, scope),
        **list_policy_facts(scope),
        **list_step_facts(folder, scope),
    }
    ids = {split: frozenset(items) for split, items in answers.items()}
    return RunFacts(f"{folder}:{name}", folder, name, facts, ids, answers, scope)


def _choose_policy(
    folder: Path, rows: Sequence[Prediction], policies: Policies, policy: str | None
) -> str:
    names = policies.sort(row.policy for row in rows)
    if not names:
        raise EvaluationError(f"{folder} holds no predictions", fix="evaluate it again")
    if policy is None:
        return policies.choose_last(names)
    if policy not in names:
        raise EvaluationError(
            f"the run {folder} has no policy {policy!r}", expected=f"one of {', '.join(names)}"
        )
    return policy
