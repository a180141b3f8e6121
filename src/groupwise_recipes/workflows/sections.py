"""What a report says of programs: what they cost, which were written, who says they are right."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.data.columns import find_place_problem
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report.page import Cell, Section, Table
from groupwise.evaluation.report.phrases import DASH, LANGUAGES, Phrases
from groupwise_recipes.workflows.agreement import Agreement, Opinions, count_agreement
from groupwise_recipes.workflows.config import PLACES, WorkflowsConfig
from groupwise_recipes.workflows.measuring import (
    ANSWER,
    EXECUTED,
    GEPA,
    OPINIONS,
    OWN,
    PROGRAM,
    TRAINED,
)
from groupwise_recipes.workflows.rivals import RIVALS

PHRASES = Path(__file__).with_name("phrases.yaml")
_ALPHA = 0.05
_SEARCHED = ("num_executions", "num_reflections", "num_validation", "num_prompts")
_Grouped = Mapping[str, Sequence[Prediction]]


def make_sections(
    predictions: Sequence[Prediction],
    config: WorkflowsConfig,
    policies: Policies,
    *,
    optimised: Mapping[str, Any] | None = None,
) -> list[Section]:
    """Return what the report says of costs, judge, programs and missing answers, by language."""
    found: list[Section] = []
    absent = "" if optimised else "no_gepa" if config.gepa is None else "gepa_not_asked"
    for language in LANGUAGES:
        phrases = Phrases(language, policies=policies, own=PHRASES)
        found += _write(predictions, phrases, _name_rule(config), absent=absent)
        found += [_tell_search(optimised, phrases)] if optimised else []
    return found


def _write(
    predictions: Sequence[Prediction], phrases: Phrases, rule: str, *, absent: str
) -> Iterable[Section]:
    found = _group(predictions, "policy")
    costs = [phrases.say("costs_lead"), weigh_need(found, phrases)]
    costs += [phrases.say(absent)] if absent else []
    parts = {
        "costs": (("" if phrases.language == "zh" else " ").join(costs), _list_costs),
        "programs": ("", _list_programs),
        "reasons": (phrases.say(rule), _list_reasons),
    }
    if any(OPINIONS in one.fields for one in predictions):
        yield _write_agreement(predictions, phrases)
    for name, (text, tabulate) in parts.items():
        table = tabulate(found, phrases)
        yield Section(phrases.say(name), text, (table,), language=phrases.language)


def _name_rule(config: WorkflowsConfig) -> str:
    """Name what the policy was told of refusals: that every variable is to be assigned first."""
    if find_place_problem(config.prompt, needed={"rules"}, more=("problem", *PLACES)):
        return "no_rules"
    return "has_rule" if config.assign_first else "lacks_rule"


def _tell_search(found: Mapping[str, Any], phrases: Phrases) -> Section:
    """Return how the prompt was found, and the prompt."""
    refused = [f"{count} {why}" for why, count in sorted(found["refused"].items())]
    counts = {name: found[name] for name in _SEARCHED}
    scores = {name: f"{found[name]:.3f}" for name in ("score", "given_score")}
    said = phrases.join(refused) if refused else DASH
    text = phrases.say("search_lead", **counts, **scores, refused=said)
    table = Table("", (phrases.say("best_prompt"),), ((found["prompt"],),), kind="wrap")
    return Section(phrases.say("search"), text, (table,), language=phrases.language)


def weigh_need(by_policy: _Grouped, phrases: Phrases) -> str:
    """Say whether writing programs for each problem beats fixed ones that cost no more.

    The best of them is compared with GRPO by McNemar's exact test over the same problems: fixed
    programs whose mean tokens are no more than those of GRPO, and its own commonest programs.
    """
    from scipy.stats import binomtest

    trained = by_policy.get(TRAINED, ())
    rivals = {
        name: rows
        for name, rows in by_policy.items()
        if trained
        and (name == OWN.name or (name in RIVALS and _count_tokens(rows) <= _count_tokens(trained)))
    }
    if not rivals:
        return phrases.say("need_unknown")
    best = max(rivals, key=lambda name: sum(map(_is_right, rivals[name])))
    ours = {one.example_id: _is_right(one) for one in trained}
    theirs = {one.example_id: _is_right(one) for one in rivals[best]}
    num_won = sum(ours[name] and not theirs[name] for name in ours)
    num_lost = sum(theirs[name] and not ours[name] for name in ours)
    p = binomtest(num_won, num_won + num_lost).pvalue if num_won + num_lost else 1.0
    is_needed = num_won > num_lost and p < _ALPHA
    verdict = phrases.say("needed" if is_needed else "not_needed")
    return phrases.say(
        "need", trained=TRAINED, best=best, won=num_won, lost=num_lost, p=p, verdict=verdict
    )


def _write_agreement(predictions: Sequence[Prediction], phrases: Phrases) -> Section:
    asked = [one for one in predictions if OPINIONS in one.fields]
    whole = _count_agreement(asked)
    lead = phrases.say(
        "agreement_lead",
        verdicts=phrases.say("counted", **_share(whole.num_verdicts, whole.num_asked)),
        no_answer=len(predictions) - len(asked),
        answers=len(asked),
    )
    by_type = _tabulate_agreement(asked, "problem_type", phrases)
    by_policy = _tabulate_agreement(asked, "policy", phrases)
    return Section(phrases.say("agreement"), lead, (by_type, by_policy), language=phrases.language)


def _tabulate_agreement(asked: Sequence[Prediction], key: str, phrases: Phrases) -> Table:
    groups = {**_group(asked, key), "": asked}
    rows = [(_title(name, key, phrases), *_count(found, phrases)) for name, found in groups.items()]
    columns = ("agreement_asked", "no_verdict", "agreed", "judge_only", "rule_only")
    head = phrases.say_each("type" if key == "problem_type" else "policy", *columns)
    return Table("", head, tuple(rows))


def _title(name: str, key: str, phrases: Phrases) -> str:
    if not name:
        return phrases.say("all_types")
    return phrases.title_policy(name) if key == "policy" else name


def _count(found: Sequence[Prediction], phrases: Phrases) -> tuple[str, ...]:
    counts = _count_agreement(found)
    return (
        f"{counts.num_asked:,}",
        _say_share(counts.num_asked - counts.num_verdicts, counts.num_asked, phrases),
        _say_share(counts.num_agreed, counts.num_both, phrases),
        f"{counts.num_judge_only:,}",
        f"{counts.num_rule_only:,}",
    )


def _count_agreement(found: Iterable[Prediction]) -> Agreement:
    """Count each answer to a problem once, however many policies gave it."""
    different = {(one.example_id, one.fields[ANSWER]): one.fields[OPINIONS] for one in found}
    return count_agreement(Opinions(**said) for said in different.values())


def _list_costs(found: _Grouped, phrases: Phrases) -> Table:
    types = sorted({str(o.fields["problem_type"]) for rows in found.values() for o in rows})
    rows: list[tuple[str, ...]] = [
        (
            phrases.title_policy(policy),
            *(_say_right(_group(rows, "problem_type").get(kind, ()), phrases) for kind in types),
            _say_right(rows, phrases),
            _say_share(int(sum(o.scores[EXECUTED] for o in rows)), len(rows), phrases),
            f"{_count_tokens(rows):,.0f}",
            f"{sum(int(o.fields['calls']) for o in rows) / len(rows):.1f}",
        )
        for policy, rows in found.items()
    ]
    others = phrases.say_each("all_types", "ran", "trace_tokens", "calls")
    head = (phrases.say("policy"), *types, *others)
    if GEPA not in found:
        rows.append((phrases.title_policy(GEPA), *"?" * (len(head) - 1)))
    return Table("", head, tuple(rows))


def _list_programs(found: _Grouped, phrases: Phrases) -> Table:
    """Return the commonest program of each policy for each type, whatever its names are."""
    rows: list[tuple[str | Cell, ...]] = []
    for policy, predictions in found.items():
        for kind, asked in sorted(_group(predictions, "problem_type").items()):
            shapes = Counter(str(o.fields[PROGRAM]) or phrases.say("refused") for o in asked)
            shape, count = shapes.most_common(1)[0]
            share = _say_share(count, len(asked), phrases)
            program = Cell(shape, is_code=True)
            rows.append((phrases.title_policy(policy), kind, program, share, str(len(shapes))))
    head = phrases.say_each("policy", "type", "commonest", "share_of_them", "different")
    return Table("", head, tuple(rows), kind="wrap")


def _list_reasons(found: _Grouped, phrases: Phrases) -> Table:
    rows = [
        (
            phrases.title_policy(policy),
            phrases.translate(reason),
            _say_share(count, len(rows), phrases),
        )
        for policy, rows in found.items()
        for reason, count in Counter(o.reason for o in rows if o.predicted is None).most_common()
    ]
    return Table("", phrases.say_each("policy", "reason", "num_programs"), tuple(rows))


def _group(predictions: Iterable[Prediction], key: str) -> dict[str, list[Prediction]]:
    """Return predictions by policy, or by one of their fields."""
    found: dict[str, list[Prediction]] = {}
    for one in predictions:
        name = one.policy if key == "policy" else str(one.fields[key])
        found.setdefault(name, []).append(one)
    return found


def _count_tokens(rows: Sequence[Prediction]) -> float:
    return sum(int(one.fields["tokens"]) for one in rows) / len(rows)


def _is_right(one: Prediction) -> bool:
    return one.predicted == one.label


def _say_right(rows: Sequence[Prediction], phrases: Phrases) -> str:
    return _say_share(sum(map(_is_right, rows)), len(rows), phrases)


def _say_share(part: int, whole: int, phrases: Phrases) -> str:
    return phrases.say("counted_cell", **_share(part, whole)) if whole else DASH


def _share(part: int, whole: int) -> dict[str, float]:
    return {"part": part, "all": whole, "share": part / whole}
