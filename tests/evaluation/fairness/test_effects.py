"""Each field of each recipe: changing it alone is classed as its declared effect."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import Config, Effect, list_effects
from groupwise.evaluation import (
    FairnessVerdict,
    Prediction,
    RunFacts,
    RunPolicy,
    check_fairness,
)
from groupwise.evaluation.facts import Scope
from groupwise.pipeline import find_recipes

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
    scope = Scope((POLICY,), {"grpo": [*kind.model_fields]}, effects=list_effects(kind))
    return RunFacts(
        name,
        Path("/nowhere") / name,
        "grpo",
        {**SAME, **changes},
        {"test": {"a": Prediction("a", "g", "test", "grpo", "x", "x")}},
        scope,
    )


def change(
    kind: type[Config], path: str, factors: tuple[str, ...] = (), **more: Any
) -> FairnessVerdict:
    """Hold two runs together that differ in one setting, and in what else is given."""
    one = make_facts("one", kind, {f"config/{path}": 1})
    two = make_facts("two", kind, {f"config/{path}": 2, **more})
    return check_fairness([one, two], factors=factors)


@pytest.mark.parametrize(("kind", "path", "effect"), FIELDS)
def test_a_field_alone_is_classed_as_its_effect(
    kind: type[Config], path: str, effect: Effect
) -> None:
    (found,) = change(kind, path).differences
    is_harmless = effect.kind in ("harmless", "source")
    assert found.kind == ("harmless" if is_harmless else "confounding")
    if effect.kind == "harmless":
        assert (found.explain(), found.explain("zh")) == (effect.reason, effect.reason_zh)
    steps = {"budget/grpo.num_steps": 24}
    named = change(kind, path, (path,), **steps)
    follows = effect.kind == "budget"
    assert named.is_fair == follows
    assert [one.key for one in named.confounding] == ([] if follows else ["grpo.num_steps"])


SOURCES = [one for one in FIELDS if one.values[2].kind == "source"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "path", "effect"), SOURCES)
def test_a_source_counts_by_its_content(kind: type[Config], path: str, effect: Effect) -> None:
    if effect.reason == "items":
        one = make_facts("one", kind, {f"config/{path}": 1})
        two = make_facts("two", kind, {f"config/{path}": 2})
        two.answers["test"]["a"] = replace(one.answers["test"]["a"], label="y")  # type: ignore[index]
        found = check_fairness([one, two])
    else:
        key = {"data": "data/train", "base_weights": "base_weights/digest"}[effect.reason]
        found = change(kind, path, **{key: {"digest": "other"}})
    assert path in [one.key for one in found.confounding]


def test_every_recipe_is_looked_at() -> None:
    assert {"group_qc", "on_task", "task"} <= set(KINDS)
    trained = [name for name, recipe in find_recipes().items() if recipe.task is not None]
    assert set(KINDS) - set(trained) == {"bootstrap"}  # It makes rows and trains nothing.
    for name in trained:
        sections = {p.partition(".")[0] for p in list_effects(KINDS[name])}
        assert {"seed", "model", "data", "grpo", "evaluation"} <= sections, name


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_the_type_of_weights_always_counts(kind: type[Config]) -> None:
    found = {p: e.kind for p, e in list_effects(kind).items() if p.endswith("dtype")}
    assert found
    assert set(found.values()) == {"counts"}


def test_a_field_that_only_one_run_calls_harmless_counts() -> None:
    one = make_facts("one", ON_TASK, {"config/judge.cache": 1})
    two = make_facts("two", ON_TASK, {"config/judge.cache": 2})
    assert check_fairness([one, two]).is_fair
    two = replace(two, scope=replace(two.scope, effects={}))
    assert not check_fairness([one, two]).is_fair
