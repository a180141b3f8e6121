"""What reports say of programs: right or not, what they cost, which were written for which type."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from groupwise.core import Example, Finding, RunError
from groupwise.data import find_place_problem
from groupwise.evaluation import Measure, Prediction, Section, Table
from groupwise.rewards import Parsed
from groupwise_recipes.workflows.config import PLACES, WorkflowsConfig
from groupwise_recipes.workflows.rivals import RIVALS, Rival, vote
from groupwise_recipes.workflows.scoring import (
    ProgramScorer,
    ScoredProgram,
    read_problem,
)

EXECUTED = "executed"
MEASURES = (Measure(EXECUTED, "Ran to an answer", "运行并给出答案"),)
_STUB = (
    "The executor of this run is a stub, not a model: it knows the answers and errs by chance. "
    "Its figures say whether the whole way works, and nothing about any model."
)
_JUDGED = "A judge alone decides what is right in this run (reward.mode: judge_only)."
_COSTS = "Tokens are those of the executor, prompts and replies, the mean of a problem."
_TRAINED = "grpo"
OPTIMISE_PROMPT = "optimise_prompt"
"""Name of the stage in which GEPA finds a prompt."""
GEPA = "gepa"
"""Name of the policy under the prompt that GEPA found."""
_NO_GEPA = (
    "GEPA is ? because no model that reflects is configured (gepa.model): the policy's prompt was "
    "not optimised."
)
_PROGRAM = "program"
_REFUSED = "(refused)"
_ALPHA = 0.05


def refuse_faults(found: Sequence[ScoredProgram]) -> None:
    """Refuse to measure programs that the executor or the judge has let down.

    Raises:
        RunError: with how many, and what the faults were.
    """
    faults = Counter(one.explanation for one in found if not one.is_known)
    if faults:
        reasons = "; ".join(f"{count} x {why}" for why, count in faults.most_common(3))
        raise RunError(
            "not every answer could be measured",
            got=f"{faults.total()} of {len(found)} without a value: {reasons}",
            fix="look after the executor and run it again: what was answered is kept",
        )


def read_scored(example: Example, scored: ScoredProgram) -> Parsed:
    """Return the answer of a program; one that is right has the label's spelling."""
    if scored.answer is None:
        return Parsed(None, scored.reason)
    return Parsed(str(example.label) if scored.worth == 1.0 else f"{scored.answer}")


def tell_costs(scored: Sequence[ScoredProgram]) -> dict[str, Any]:
    """Return what the runs for one problem cost, as fields of its prediction."""
    outcomes = [one.outcome for one in scored if one.outcome is not None]
    return {
        "tokens": sum(one.tokens for one in outcomes),
        "calls": sum(one.calls for one in outcomes),
        "cost": sum(one.cost for one in outcomes),
    }


def predict_rival(
    scorer: ProgramScorer, rival: Rival, examples: Sequence[Example]
) -> list[Prediction]:
    """Return the answers of fixed programs; of several, that of the vote.

    Raises:
        RunError: if the executor failed.
    """
    chosen = [list(rival.choose(read_problem(one))) for one in examples]
    pairs = [
        (read_problem(example), program)
        for example, programs in zip(examples, chosen, strict=True)
        for program in programs
    ]
    found = scorer.score_all(pairs)
    refuse_faults(found)
    rest = iter(found)
    predictions: list[Prediction] = []
    for example, programs in zip(examples, chosen, strict=True):
        scored = {program: next(rest) for program in programs}
        picked = vote({program: one.answer for program, one in scored.items()}) or programs[0]
        predictions.append(
            _predict(example, picked, scored[picked], policy=rival.name, cost=scored.values())
        )
    return predictions


def _predict(
    example: Example, text: str, scored: ScoredProgram, *, policy: str, cost: Any
) -> Prediction:
    answer = read_scored(example, scored)
    return Prediction(
        example_id=example.id,
        cluster=example.cluster,
        split="test",
        policy=policy,
        label=str(example.label),
        predicted=answer.label,
        reason=answer.reason,
        text=text,
        fields={**_show(example), **tell_costs(list(cost)), _PROGRAM: scored.shape},
        scores={EXECUTED: float(scored.has_run)},
    )


def complete_predictions(
    scorer: ProgramScorer, examples: Mapping[str, Example], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Return the predictions of policies with what their programs cost.

    Raises:
        RunError: if the executor failed.
    """
    wanted = [one for one in predictions if "tokens" not in one.fields]
    pairs = [(read_problem(examples[one.example_id]), one.text) for one in wanted]
    found = scorer.score_all(pairs)
    refuse_faults(found)
    costs = {id(one): scored for one, scored in zip(wanted, found, strict=True)}
    return [_add_cost(one, costs.get(id(one)), examples) for one in predictions]


def _add_cost(
    prediction: Prediction, scored: ScoredProgram | None, examples: Mapping[str, Example]
) -> Prediction:
    if scored is None:
        return prediction
    fields = {**_show(examples[prediction.example_id]), **tell_costs([scored])}
    fields[_PROGRAM] = scored.shape
    return replace(prediction, fields=fields, scores={EXECUTED: float(scored.has_run)})


def _show(example: Example) -> dict[str, Any]:
    """Return what reports show of a problem: not its tests and its reference."""
    shown = {name: example.fields[name] for name in ("problem_type", "source")}
    return {**shown, "question": read_problem(example).problem}


def find_in_scoring(config: WorkflowsConfig) -> list[Finding]:
    """Return what stands at the top of a report: whose answers these are, and who decided."""
    found: list[Finding] = []
    if config.executor.stub is not None:
        found.append(Finding("warning", "executor_stub", _STUB, 1))
    if config.reward.mode == "judge_only":
        found.append(Finding("warning", "judge_only", _JUDGED, 1))
    return found


def make_sections(
    predictions: Sequence[Prediction],
    config: WorkflowsConfig,
    optimised: Mapping[str, Any] | None = None,
) -> list[Section]:
    """Return what the report says of costs, programs and answers that are missing.

    Args:
        predictions: of all policies.
        config: of the run.
        optimised: what ``optimise_prompt`` found; None: there was no such stage.
    """
    return [
        Section(
            "Accuracy and cost",
            f"{_COSTS} {weigh_need(_group(predictions))}{'' if optimised else f' {_NO_GEPA}'}",
            (_tabulate_costs(predictions),),
        ),
        Section("Programs by type", "", (_tabulate_programs(predictions),)),
        Section(
            "Programs without an answer", _tell_rule(config), (_tabulate_reasons(predictions),)
        ),
        *([_tell_search(optimised)] if optimised else []),
    ]


def _tell_rule(config: WorkflowsConfig) -> str:
    """Say whether the policy was told what programs are refused for: variables without a value."""
    if find_place_problem(config.prompt, needed={"rules"}, more=("problem", *PLACES)):
        return "The policy's prompt has no rules for programs ({{ rules }})."
    has = "has" if config.assign_first else "does not have"
    return f'The policy\'s prompt {has} the rule "assign every variable first" (assign_first).'


def _tell_search(found: Mapping[str, Any]) -> Section:
    """Return how the prompt was found, and the prompt."""
    refused = ", ".join(f"{count} {why}" for why, count in sorted(found["refused"].items()))
    text = (
        f"Programs that GEPA ran: {found['num_executions']:,}. Times that it asked the model that "
        f"reflects: {found['num_reflections']:,}. Prompts tried on {found['num_validation']:,} "
        f"validation problems, the given one among them: {found['num_prompts']:,}. Mean reward "
        f"there: {found['score']:.3f}, and {found['given_score']:.3f} under the given prompt. "
        f"Prompts refused before they were tried: {refused or 'none'}."
    )
    table = Table("", ("The best prompt",), ((found["prompt"],),), kind="wrap")
    return Section("Prompt optimised by GEPA", text, (table,))


def weigh_need(by_policy: Mapping[str, Sequence[Prediction]]) -> str:
    """Say whether writing programs for each problem beats fixed ones that cost no more.

    The best fixed program whose mean tokens are no more than those of GRPO is compared with it by
    McNemar's exact test over the same problems.
    """
    from scipy.stats import binomtest

    trained = by_policy.get(_TRAINED, ())
    rivals = {
        name: rows
        for name, rows in by_policy.items()
        if name in RIVALS and trained and _count_tokens(rows) <= _count_tokens(trained)
    }
    if not rivals:
        return "No fixed program costs as little as GRPO, so none is compared with it."
    best = max(rivals, key=lambda name: sum(map(_is_right, rivals[name])))
    ours = {one.example_id: _is_right(one) for one in trained}
    theirs = {one.example_id: _is_right(one) for one in rivals[best]}
    num_won = sum(ours[name] and not theirs[name] for name in ours)
    num_lost = sum(theirs[name] and not ours[name] for name in ours)
    p = binomtest(num_won, num_won + num_lost).pvalue if num_won + num_lost else 1.0
    is_needed = num_won > num_lost and p < _ALPHA
    counts = f"only GRPO is right on {num_won} problems, only {best} on {num_lost} (p = {p:.3f})"
    return (
        f"Of the fixed programs that cost no more, {best} is the best: {counts}. A program for "
        f"each problem is {'' if is_needed else 'not shown to be '}needed here."
    )


def _count_tokens(rows: Sequence[Prediction]) -> float:
    return sum(int(one.fields["tokens"]) for one in rows) / len(rows)


def _is_right(one: Prediction) -> bool:
    return one.predicted == one.label


def _group(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    by_policy: dict[str, list[Prediction]] = {}
    for one in predictions:
        by_policy.setdefault(one.policy, []).append(one)
    return by_policy


def _tabulate_costs(predictions: Sequence[Prediction]) -> Table:
    types = sorted({str(one.fields["problem_type"]) for one in predictions})
    rows: list[tuple[str, ...]] = [
        (
            policy,
            *(_count_right([o for o in rows if o.fields["problem_type"] == t]) for t in types),
            _count_right(rows),
            f"{sum(o.scores[EXECUTED] for o in rows):.0f} of {len(rows)}",
            f"{_count_tokens(rows):,.0f}",
            f"{sum(int(o.fields['calls']) for o in rows) / len(rows):.1f}",
        )
        for policy, rows in _group(predictions).items()
    ]
    head = ("Policy", *types, "All", "Ran to an answer", "Tokens", "Calls")
    if all(policy != GEPA for policy, *_ in rows):
        rows.append((GEPA, *"?" * (len(head) - 1)))
    return Table("", head, tuple(rows))


def _count_right(rows: Sequence[Prediction]) -> str:
    right = sum(map(_is_right, rows))
    return f"{right} of {len(rows)} ({right / len(rows):.0%})" if rows else "–"


def _tabulate_programs(predictions: Sequence[Prediction]) -> Table:
    """Return the commonest program of each policy for each type, whatever its names are."""
    rows: list[tuple[str, ...]] = []
    for policy, found in _group(predictions).items():
        for kind in sorted({str(one.fields["problem_type"]) for one in found}):
            asked = [o for o in found if o.fields["problem_type"] == kind]
            shapes = Counter(str(o.fields[_PROGRAM]) or _REFUSED for o in asked)
            shape, count = shapes.most_common(1)[0]
            rows.append((policy, kind, shape, f"{count} of {len(asked)}", str(len(shapes))))
    head = ("Policy", "Type", "Commonest program", "Share", "Different ones")
    return Table("", head, tuple(rows))


def _tabulate_reasons(predictions: Sequence[Prediction]) -> Table:
    rows = [
        (policy, reason, f"{count} of {len(found)}")
        for policy, found in _group(predictions).items()
        for reason, count in Counter(o.reason for o in found if o.predicted is None).most_common()
    ]
    return Table("", ("Policy", "Reason", "Programs"), tuple(rows))
