"""Laws of the gate, whatever differs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from run_folders import apply_changes

from groupwise.evaluation import (
    Difference,
    FairnessVerdict,
    Prediction,
    RunFacts,
    RunPolicy,
    check_fairness,
)
from groupwise.evaluation.facts import Scope

NAMES = (
    "conditions/file",
    "policies/file",
    "config/grpo.beta",
    "config/grpo.epochs",
    "config/sft.augmentation",
    "config/sft.augmentation.hue",
    "config/data.root",
    "config/data.drawn.num_sessions",
    "data/train",
    "data/test",
    "prompts/train",
    "template/digest",
    "base_weights/digest",
    "resolved/grpo.beta",
    "budget/grpo.num_steps",
    "budget/grpo.num_tokens",
    "seeds/seed",
    "packages/torch",
    "hardware/num_cpus",
    "judge/grpo.no_verdict_rate",
    "something/new",
)
VARYING = ("grpo.beta", "sft", "data", "seed", "packages", "policy", "grpo.epochs", "items")
READS = {"prepare": ["data"], "sft": ["sft"], "grpo": ["grpo"], "evaluate": ["evaluation"]}
USES = {"sft": ["prepare"], "grpo": ["sft"], "evaluate": ["sft", "grpo"]}
SFT, GRPO = (
    RunPolicy(name=name, title=name, title_zh=name, kind="trained", step=name)
    for name in ("sft", "grpo")
)
SCOPES = (
    Scope(),
    Scope((SFT, GRPO), READS, USES),
    Scope((SFT,), {name: READS[name] for name in ("prepare", "sft")}, USES),
)
values = st.one_of(
    st.none(), st.booleans(), st.integers(0, 2), st.sampled_from(["1.0+cpu", "1.0", "2.0"])
)


@st.composite
def list_runs(draw: st.DrawFn, num_runs: int = 3) -> list[RunFacts]:
    runs: list[RunFacts] = []
    for number in range(num_runs):
        facts = draw(st.dictionaries(st.sampled_from(NAMES), values))
        if "config/sft.augmentation.hue" in facts:
            facts.pop("config/sft.augmentation", None)
        ids = draw(st.sets(st.sampled_from("abcd"), min_size=1))
        answers = {
            i: Prediction(i, "g", "test", "grpo", draw(st.sampled_from("xy")), "x")
            for i in sorted(ids)
        }
        runs.append(
            RunFacts(
                name=f"run {number}",
                folder=Path(f"/nowhere/{number}"),
                policy="grpo",
                facts={"policy/name": draw(st.sampled_from(["sft", "grpo"])), **facts},
                answers={"test": answers},
                scope=draw(st.sampled_from(SCOPES)),
            )
        )
    return runs


def list_kinds(differences: Sequence[Difference]) -> Mapping[tuple[str, str], str]:
    return {(one.aspect, one.key): one.kind for one in differences}


def judge(runs: Sequence[RunFacts], factors: Sequence[str] = ()) -> FairnessVerdict:
    facts = {name for run in runs for name in run.facts}
    known = [name for name in factors if is_known(name, facts)]
    return check_fairness(runs, factors=known)


def is_known(name: str, facts: set[str]) -> bool:
    starts = (f"{name}/", f"config/{name}.")
    return (
        name == "items"
        or f"config/{name}" in facts
        or (name == "seed" and "seeds/seed" in facts)
        or any(fact.startswith(starts) for fact in facts)
    )


subsets = st.lists(st.sampled_from(VARYING), unique=True)


@given(list_runs(), subsets, st.randoms())
def test_the_order_of_runs_does_not_count(
    runs: list[RunFacts], factors: list[str], rng: Any
) -> None:
    shuffled = rng.sample(runs, len(runs))
    one, two = judge(runs, factors), judge(shuffled, factors)
    assert list_kinds(one.differences) == list_kinds(two.differences)
    assert one.is_fair == two.is_fair
    by_place = {(d.aspect, d.key): d for d in two.differences}
    for difference in one.differences:
        if difference.aspect != "labels":
            assert difference.values == by_place[difference.aspect, difference.key].values
    assert sorted(r.kind for r in one.relations) == sorted(r.kind for r in two.relations)
    assert {r.name for r in one.remarks} == {r.name for r in two.remarks}


@given(list_runs(2), subsets)
def test_another_identical_run_changes_no_kinds(runs: list[RunFacts], factors: list[str]) -> None:
    again = replace(runs[0], name="again", folder=Path("/nowhere/again"))
    one, two = judge(runs, factors), judge([*runs, again], factors)
    assert list_kinds(one.differences) == list_kinds(two.differences)


@given(list_runs(), subsets)
def test_naming_changes_kinds_and_never_what_is_listed(
    runs: list[RunFacts], factors: list[str]
) -> None:
    plain, named = list_kinds(judge(runs).differences), list_kinds(judge(runs, factors).differences)
    assert plain.keys() == named.keys()
    assert "intended" not in plain.values()
    for place, kind in named.items():
        assert kind == plain[place] or kind == "intended"


@given(list_runs(2))
def test_equal_runs_differ_in_nothing(runs: list[RunFacts]) -> None:
    again = replace(runs[0], name="again", folder=Path("/nowhere/again"))
    places = list_kinds(judge([runs[0], again]).differences)
    assert set(places) <= {("conditions", "file"), ("policies", "file")}


@given(list_runs(2))
def test_every_fact_that_differs_is_listed(runs: list[RunFacts]) -> None:
    listed = {(d.aspect, d.key) for d in judge(runs).differences}
    one, two = (run.facts for run in runs)
    for name in ("template/digest", "seeds/seed", "something/new", "packages/torch"):
        aspect, _, key = name.partition("/")
        is_asked = aspect != "template" or all("conditions/file" in run.facts for run in runs)
        is_alike = (name in one) == (name in two) and repr(one.get(name)) == repr(two.get(name))
        if is_asked and not is_alike:
            assert (aspect, key) in listed


def test_changes_of_the_fixture_leave_the_parts_alone() -> None:
    parts = {"file": {"a": {"b": 1}}}
    assert apply_changes(parts, {"file:a/b": 2}) == {"file": {"a": {"b": 2}}}
    assert parts == {"file": {"a": {"b": 1}}}
