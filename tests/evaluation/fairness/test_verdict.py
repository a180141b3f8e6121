"""What runs differ in, what makes that fair, and what is too much the same."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_folders import (
    LABELS,
    NUM_ITEMS,
    VARIED,
    list_confounding,
    make_predictions,
    make_run,
)

from groupwise.core import Config, EvaluationError, list_effects
from groupwise.evaluation.fairness import (
    Difference,
    FairnessVerdict,
    RunFacts,
    check_fairness,
    find_same_axes,
    read_facts,
)
from groupwise.evaluation.predictions import Prediction, RunPolicy
from groupwise.run.recipe import find_recipes

Judge = Callable[..., FairnessVerdict]
CORPUS = Path(__file__).parents[2] / "faults" / "fairness.jsonl"
IN = "evaluate/conditions.json:"
OF = "manifest.json:"


@pytest.fixture
def judge_pair(tmp_path: Path) -> Judge:
    """Hold the plain run against one of another beta with further changes."""

    def judge(changes: Mapping[str, Any] = {}, *, factors: Any = ("grpo.beta",), **more: Any):
        two = {"answers": "two", **more}
        runs = [
            make_run(tmp_path / "one"),
            make_run(tmp_path / "other/two", {**VARIED, **changes}, **two),
        ]
        return check_fairness(list(map(read_facts, runs)), factors=factors)

    return judge


def test_of_a_clean_pair_nothing_else_is_listed(judge_pair):
    verdict = judge_pair()
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    kinds = {f"{one.aspect}/{one.key}": one.kind for one in verdict.differences}
    assert kinds == next(row["told"] for row in rows if row["name"] == "clean_pair")
    resolved = next(one for one in verdict.differences if one.aspect == "resolved")
    assert "grpo.beta" in resolved.explain()
    assert "grpo.beta" in resolved.explain("zh")


@pytest.mark.parametrize("fact", ["num_threads", "cpu_flags"])
def test_other_numerics_are_told(judge_pair, fact):
    verdict = judge_pair({f"{OF}hardware/{fact}": 2})
    (found,) = (one for one in verdict.differences if one.key == fact)
    assert "sums in another order" in found.explain()


@pytest.mark.parametrize(
    ("ids", "num_shared"), [(range(30), 30), (range(10, 60), 30), (range(100, 140), 0)]
)
def test_other_items_are_counted(judge_pair, ids, num_shared):
    verdict = judge_pair(predictions=make_predictions("two", ids=ids))
    (difference,) = list_confounding(verdict)
    assert [values["n"] for values in difference.values.values()] == [40, len(ids)]
    assert f"(40, {len(ids)}, of which {num_shared} are in all runs)" in difference.explain()
    assert f"40, {len(ids)} 题，其中 {num_shared} 题各运行都有" in difference.explain("zh")


def test_other_labels_of_the_same_items_are_counted(judge_pair):
    rows = make_predictions("two")
    rows = [replace(row, label=LABELS[0]) if row.policy == "grpo" else row for row in rows]
    (difference,) = list_confounding(judge_pair(predictions=rows))
    assert f"other labels for {NUM_ITEMS // 2} items" in difference.explain()


def test_runs_without_conditions_are_named_once(tmp_path):
    old = {"evaluate/conditions.json": None}
    one, two = make_run(tmp_path / "one", old), make_run(tmp_path / "two", old, answers="two")
    verdict = check_fairness([read_facts(one), read_facts(two)])
    (unknown,) = [one for one in list_confounding(verdict) if one.aspect == "conditions"]
    assert unknown.values == {}
    assert all(text in unknown.explain() for text in (str(one), str(two), "template"))


def test_one_run_is_no_comparison(tmp_path):
    with pytest.raises(EvaluationError, match="two or more"):
        check_fairness([read_facts(make_run(tmp_path / "one"))])


def test_what_follows_and_what_is_unused_have_their_reasons(tmp_path):
    run = make_run(tmp_path / "one")
    runs = [read_facts(run, policy="sft"), read_facts(run, policy="grpo")]
    named = check_fairness(runs, factors=("policy",))
    assert {one.key: one.reason for one in named.differences}["train"] == "follows"
    changes = {f"{OF}config/grpo/beta": 9.0, f"{IN}data/train/digest": "t2"}
    two = make_run(tmp_path / "two", changes, answers="two")
    verdict = check_fairness([read_facts(run, policy="sft") for run in (run, two)])
    assert [(one.key, one.reason) for one in verdict.differences] == [("grpo.beta", "unused")]


KINDS = {name: recipe.load_config_type() for name, recipe in find_recipes().items()}
ON_TASK = KINDS["on_task"]
FIELDS = [
    pytest.param(kind, path, effect, id=f"{name}-{path}")
    for name, kind in KINDS.items()
    for path, effect in list_effects(kind).items()
]
POLICY = RunPolicy(name="grpo", title="GRPO", title_zh="GRPO", kind="trained", step="grpo")
SAME = {
    "conditions/file": "recorded",
    "policies/file": "recorded",
    "data/train": {"digest": "d"},
    "base_weights/digest": "b",
    "budget/grpo.num_steps": 12,
}


def make_facts(name: str, kind: type[Config], changes: dict[str, Any]) -> RunFacts:
    return RunFacts(
        name,
        Path("/nowhere") / name,
        "grpo",
        {**SAME, **changes},
        {"test": {"a": Prediction("a", "g", "test", "grpo", "x", "x")}},
        (POLICY,),
        effects=list_effects(kind),
    )


def change(
    kind: type[Config], path: str, factors: tuple[str, ...] = (), **more: Any
) -> FairnessVerdict:
    """Hold two runs together that differ in one setting, and in what else is given."""
    one = make_facts("one", kind, {f"config/{path}": 1})
    two = make_facts("two", kind, {f"config/{path}": 2, **more})
    return check_fairness([one, two], factors=factors)


@pytest.mark.parametrize(("kind", "path", "effect"), FIELDS)
def test_a_field_alone_is_classed_as_its_effect(kind, path, effect):
    (found,) = change(kind, path).differences
    is_harmless = effect.kind in ("harmless", "source")
    assert found.kind == ("harmless" if is_harmless else "confounding")
    if effect.kind == "harmless":
        assert (found.explain(), found.explain("zh")) == (effect.reason, effect.reason_zh)
    step = f"{path.partition('.')[0]}.num_steps"
    named = change(kind, path, (path,), **{f"budget/{step}": 24})
    follows = effect.kind == "budget"
    assert named.is_fair == follows
    assert [one.key for one in list_confounding(named)] == ([] if follows else [step])


SOURCES = [one for one in FIELDS if one.values[2].kind == "source"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "path", "effect"), SOURCES)
def test_a_source_counts_by_its_content(kind, path, effect):
    if effect.reason == "items":
        one = make_facts("one", kind, {f"config/{path}": 1})
        two = make_facts("two", kind, {f"config/{path}": 2})
        two.answers["test"]["a"] = replace(one.answers["test"]["a"], label="y")  # type: ignore[index]
        found = check_fairness([one, two])
    else:
        key = {"data": "data/train", "base_weights": "base_weights/digest"}[effect.reason]
        found = change(kind, path, **{key: {"digest": "other"}})
    assert path in [one.key for one in list_confounding(found)]


def test_every_recipe_is_looked_at():
    assert {"group_qc", "on_task", "task"} <= set(KINDS)
    trained = [name for name, recipe in find_recipes().items() if recipe.task is not None]
    assert set(KINDS) - set(trained) == {"bootstrap"}  # It makes rows and trains nothing.
    for name in trained:
        sections = {p.partition(".")[0] for p in list_effects(KINDS[name])}
        assert {"seed", "model", "data", "grpo", "evaluation"} <= sections, name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_type_of_weights_always_counts(kind):
    found = {p: e.kind for p, e in list_effects(kind).items() if p.endswith("dtype")}
    assert found
    assert set(found.values()) == {"counts"}


def test_a_field_that_only_one_run_calls_harmless_counts():
    one = make_facts("one", ON_TASK, {"config/judge.cache": 1})
    two = make_facts("two", ON_TASK, {"config/judge.cache": 2})
    assert check_fairness([one, two]).is_fair
    two = replace(two, effects={})
    assert not check_fairness([one, two]).is_fair


def list_names(verdict: FairnessVerdict) -> list[str]:
    return [remark.values["reason"] for remark in verdict.remarks]


def test_remarks_are_plain_values_in_both_languages(judge_pair):
    verdict = judge_pair(answers="one", factors=("grpo.beta", "grpo.learning_rate", "data"))
    assert list_names(verdict) == ["same_predictions", "not_varied", "not_varied"]
    same, *others = [remark.values["why"] for remark in verdict.remarks]
    assert ("all 40 items" in same["en"], "全部 40 题" in same["zh"]) == (True, True)
    assert [why["en"].split()[0] for why in others] == ["grpo.learning_rate", "data"]
    assert json.loads(json.dumps(asdict(verdict)))["remarks"]
    assert verdict.is_fair


def test_bfloat16_weights_are_read(tmp_path):
    import torch
    from safetensors.torch import save_file

    one, two = make_run(tmp_path / "1"), make_run(tmp_path / "2", answers="two")
    for place in ("prepare/base", "sft/policy"):
        (one / place).mkdir(parents=True, exist_ok=True)
        save_file({"w": torch.ones(3, dtype=torch.bfloat16)}, one / place / "model.safetensors")
    assert list_names(check_fairness([read_facts(one), read_facts(two)])) == ["unmoved_weights"]


def cell(result: Any, **coordinates: str) -> tuple[dict[str, str], Any]:
    return coordinates, result


EPOCHS = [
    cell(value, epoch=epoch, shots=shots, beta="0.12")
    for epoch in ("1", "2")
    for shots, value in (("1", 57.0), ("2", 56.1), ("3", 55.1), ("4", 55.2))
]
SOME = {("1", "a"): "x", ("1", "b"): "x", ("1", "c"): "x", ("1", "d"): "y"}
APART = {"0.12": (57.0, 55.2), "0.15": (58.8, 55.2)}


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        (EPOCHS, ["epoch 1, 2 are identical in all 4 cells: nothing was trained between them"]),
        (
            [cell(digest, n=n, beta=beta) for (n, beta), digest in SOME.items()],
            ["beta a, b, c are identical in all 1 cells: this axis changed nothing there"],
        ),
        (
            [
                cell(x, beta=b, n=n)
                for b, row in APART.items()
                for n, x in zip("14", row, strict=True)
            ],
            [],
        ),
        ([cell(0.5, beta="1"), cell(0.5, beta="2")], []),  # one pair of numbers may be chance
        (
            [cell("d", beta="1"), cell("d", beta="2")],
            ["beta 1, 2 are identical in all 1 cells: this axis changed nothing there"],
        ),
        ([cell(None, beta=b, n=n) for b in "12" for n in "12"], []),  # not run
        ([], []),
    ],
)
def test_values_of_an_axis_that_changed_nothing_are_named(cells, told):
    assert [one.values["why"]["en"] for one in find_same_axes(cells)] == told


def test_two_runs_that_are_labelled_apart_are_not_called_identical():
    """Whichever item a third run makes the named one."""
    runs: list[RunFacts] = []
    for name, labels in {"one": "xx", "two": "yx", "three": "yy"}.items():
        rows = {
            i: Prediction(i, "g", "test", "grpo", x, "x") for i, x in zip("ab", labels, strict=True)
        }
        runs.append(RunFacts(name, Path(f"/nowhere/{name}"), "grpo", {}, {"test": rows}))
    for order in permutations(runs):
        found = check_fairness(order)
        assert list_names(found) == ["same_predictions"] * 3


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
SFT, GRPO = (
    RunPolicy(name=name, title=name, title_zh=name, kind="trained", step=name)
    for name in ("sft", "grpo")
)
SCOPES: tuple[dict[str, Any], ...] = (
    {},
    {"chain": (SFT, GRPO)},
    {"chain": (SFT,), "unused": frozenset({"config/grpo.beta", "config/grpo.epochs"})},
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
                **draw(st.sampled_from(SCOPES)),
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
def test_the_order_of_runs_does_not_count(runs, factors, rng):
    shuffled = rng.sample(runs, len(runs))
    one, two = judge(runs, factors), judge(shuffled, factors)
    assert list_kinds(one.differences) == list_kinds(two.differences)
    assert one.is_fair == two.is_fair
    by_place = {(d.aspect, d.key): d for d in two.differences}
    for difference in one.differences:
        if difference.aspect != "labels":
            assert difference.values == by_place[difference.aspect, difference.key].values
    assert set(list_names(one)) == set(list_names(two))


@given(list_runs(2), subsets)
def test_another_identical_run_changes_no_kinds(runs, factors):
    again = replace(runs[0], name="again", folder=Path("/nowhere/again"))
    one, two = judge(runs, factors), judge([*runs, again], factors)
    assert list_kinds(one.differences) == list_kinds(two.differences)


@given(list_runs(), subsets)
def test_naming_changes_kinds_and_never_what_is_listed(runs, factors):
    plain, named = list_kinds(judge(runs).differences), list_kinds(judge(runs, factors).differences)
    assert plain.keys() == named.keys()
    assert "intended" not in plain.values()
    for place, kind in named.items():
        assert kind == plain[place] or kind == "intended"


@given(list_runs(2))
def test_equal_runs_differ_in_nothing(runs):
    again = replace(runs[0], name="again", folder=Path("/nowhere/again"))
    places = list_kinds(judge([runs[0], again]).differences)
    assert set(places) <= {("conditions", "file"), ("policies", "file")}


@given(list_runs(2))
def test_every_fact_that_differs_is_listed(runs):
    listed = {(d.aspect, d.key) for d in judge(runs).differences}
    one, two = (run.facts for run in runs)
    for name in ("template/digest", "seeds/seed", "something/new", "packages/torch"):
        aspect, _, key = name.partition("/")
        is_asked = aspect != "template" or all("conditions/file" in run.facts for run in runs)
        is_alike = (name in one) == (name in two) and repr(one.get(name)) == repr(two.get(name))
        if is_asked and not is_alike:
            assert (aspect, key) in listed
