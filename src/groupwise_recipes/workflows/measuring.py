"""What came of the programs of policies: right or not, what they cost, what rules and judge say."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from groupwise.core import Example, Finding, RunError
from groupwise.evaluation.predictions import Measure, Prediction, RunPolicy
from groupwise.rewards import Parsed
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.rivals import DIRECT, Rival, vote
from groupwise_recipes.workflows.scoring import ProgramScorer, ScoredProgram, read_problem

OPTIMISE_PROMPT = "optimise_prompt"
"""Name of the stage in which GEPA finds a prompt."""
GEPA = "gepa"
"""Name of the policy under the prompt that GEPA found."""
EXECUTED = "executed"
TRAINED = "grpo"
OWN = RunPolicy(
    name="own_by_type",
    title="GRPO's commonest program of each type",
    title_zh="GRPO 对每类最常写的程序",
    note="for all problems of the type",
    note_zh="用于该类的所有题",
    kind="baseline",
)
ANSWER, OPINIONS, PROGRAM = "answer", "opinions", "program"
"""Fields of predictions: an answer, what rules and judge say of it, and what the program does."""
MEASURES = (Measure(EXECUTED, "Ran to an answer", "运行并给出答案"),)
_STUB = (
    "The executor of this run is a stub, not a model: it knows the answers and errs by chance. "
    "Its figures say whether the whole way works, and nothing about any model."
)
_JUDGED = (
    "A judge alone decided what was rewarded in this run (reward.mode: judge_only). What is "
    "measured on held-out problems is decided by rules, and by the judge where no rule decides."
)


def refuse_faults(found: Sequence[ScoredProgram]) -> None:
    """Refuse to measure programs that the executor or the judge has let down."""
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


def _tell_costs(scored: Sequence[ScoredProgram]) -> dict[str, Any]:
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
    """Return the answers of fixed programs; of several, that of the vote."""
    chosen = [list(rival.choose(read_problem(one))) for one in examples]
    pairs = [
        (read_problem(example), program)
        for example, programs in zip(examples, chosen, strict=True)
        for program in programs
    ]
    found = scorer.score_all(pairs)
    refuse_faults(found)
    rest = iter(found)
    picked: list[tuple[Example, str, ScoredProgram, dict[str, Any]]] = []
    for example, programs in zip(examples, chosen, strict=True):
        scored = {program: next(rest) for program in programs}
        text = vote({program: one.answer for program, one in scored.items()}) or programs[0]
        picked.append((example, text, scored[text], _tell_costs(list(scored.values()))))
    said = _tell_opinions(scorer, [(example, scored) for example, _, scored, _ in picked])
    return [
        _predict(rival.name, example, text, scored, fields={**costs, **opinions})
        for (example, text, scored, costs), opinions in zip(picked, said, strict=True)
    ]


def predict_own(
    scorer: ProgramScorer, predictions: Sequence[Prediction], examples: Sequence[Example]
) -> list[Prediction]:
    """Return the answers of GRPO's commonest program of each type, for all problems of the type.

    What GRPO has to beat if it is to write a program for each problem: it has chosen these itself,
    and they cost as much. Without GRPO there are none.
    """
    by_type: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in predictions:
        if one.policy == TRAINED and one.fields[PROGRAM]:
            by_type[str(one.fields["problem_type"])][str(one.fields[PROGRAM])] += 1
    if not by_type:
        return []
    commonest = {kind: found.most_common(1)[0][0] for kind, found in by_type.items()}
    said = (OWN.name, OWN.title, OWN.title_zh, OWN.note, OWN.note_zh)
    own = Rival(*said, lambda problem: (commonest.get(problem.problem_type, DIRECT),))
    return predict_rival(scorer, own, examples)


def _predict(
    policy: str, example: Example, text: str, scored: ScoredProgram, *, fields: Mapping[str, Any]
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
        fields={**_show(example, scored), **fields},
        scores={EXECUTED: float(scored.has_run)},
    )


def complete_predictions(
    scorer: ProgramScorer, examples: Mapping[str, Example], predictions: Sequence[Prediction]
) -> list[Prediction]:
    """Return predictions of policies with what their programs cost, and who says what of them."""
    places = [n for n, one in enumerate(predictions) if "tokens" not in one.fields]
    asked = [examples[predictions[n].example_id] for n in places]
    found = scorer.score_all(
        [(read_problem(one), predictions[n].text) for n, one in zip(places, asked, strict=True)]
    )
    refuse_faults(found)
    pairs = list(zip(asked, found, strict=True))
    said = _tell_opinions(scorer, pairs)
    completed = list(predictions)
    for n, (example, scored), opinions in zip(places, pairs, said, strict=True):
        fields = {**_show(example, scored), **_tell_costs([scored]), **opinions}
        scores = {EXECUTED: float(scored.has_run)}
        completed[n] = replace(predictions[n], fields=fields, scores=scores)
    return completed


def _tell_opinions(
    scorer: ProgramScorer, pairs: Sequence[tuple[Example, ScoredProgram]]
) -> list[dict[str, Any]]:
    """Return answers and what rules and judge say of each, as fields; nothing without a judge."""
    answers = {
        n: (read_problem(example), scored.answer)
        for n, (example, scored) in enumerate(pairs)
        if scored.answer is not None
    }
    opinions = scorer.decider.compare(list(answers.values()))
    known = dict(zip(answers, opinions, strict=bool(opinions)))
    return [
        {ANSWER: answers[n][1], OPINIONS: asdict(known[n])} if n in known else {}
        for n in range(len(pairs))
    ]


def _show(example: Example, scored: ScoredProgram) -> dict[str, Any]:
    """Return what reports show of a problem, not its tests and its reference; and the program."""
    shown = {name: example.fields[name] for name in ("problem_type", "source")}
    return {**shown, "question": read_problem(example).problem, PROGRAM: scored.shape}


def find_in_scoring(config: WorkflowsConfig) -> list[Finding]:
    """Return what stands at the top of a report: whose answers these are, and who decided."""
    found: list[Finding] = []
    if config.executor.stub:
        found.append(Finding("warning", "executor_stub", _STUB, 1))
    if config.reward.mode == "judge_only":
        found.append(Finding("warning", "judge_only", _JUDGED, 1))
    return found
