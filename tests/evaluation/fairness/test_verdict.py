"""What a verdict says beside the class of each difference (``tests/faults/fairness.jsonl``)."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from run_folders import LABELS, NUM_ITEMS, make_predictions, make_run

from groupwise.core import EvaluationError
from groupwise.evaluation import FairnessVerdict, check_fairness, read_facts
from groupwise.evaluation.fairness import HARMLESS_FACTS
from groupwise.evaluation.report import phrases

Judge = Callable[..., FairnessVerdict]
CORPUS = Path(__file__).parents[2] / "faults" / "fairness.jsonl"
IN = "evaluate/conditions.json:"
OF = "manifest.json:"


def test_of_a_clean_pair_nothing_else_is_listed(judge_pair: Judge) -> None:
    verdict = judge_pair()
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    kinds = {f"{one.aspect}/{one.key}": one.kind for one in verdict.differences}
    assert kinds == next(row["told"] for row in rows if row["name"] == "clean_pair")
    assert [one.kind for one in verdict.relations] == ["exact"]
    resolved = next(one for one in verdict.differences if one.aspect == "resolved")
    assert "grpo.beta" in resolved.explain()
    assert "grpo.beta" in resolved.explain("zh")


@pytest.mark.parametrize("fact", ["num_threads", "cpu_flags"])
def test_other_numerics_are_told(judge_pair: Judge, fact: str) -> None:
    verdict = judge_pair({f"{OF}hardware/{fact}": 2})
    (found,) = (one for one in verdict.differences if one.key == fact)
    assert "sums in another order" in found.explain()


@pytest.mark.parametrize(
    ("ids", "kind", "num_shared"),
    [
        (range(30), "nested", 30),
        (range(10, 60), "overlapping", 30),
        (range(100, 140), "disjoint", 0),
    ],
)
def test_other_items_are_counted(judge_pair: Judge, ids: range, kind: str, num_shared: int) -> None:
    verdict = judge_pair(predictions=make_predictions("two", ids=ids))
    (difference,) = verdict.confounding
    assert [values["n"] for values in difference.values.values()] == [40, len(ids)]
    assert kind in difference.explain()
    (relation,) = verdict.relations
    assert (relation.kind, relation.num_shared) == (kind, num_shared)


def test_other_labels_of_the_same_items_are_counted(judge_pair: Judge) -> None:
    from dataclasses import replace

    rows = make_predictions("two")
    rows = [replace(row, label=LABELS[0]) if row.policy == "grpo" else row for row in rows]
    (relation,) = judge_pair(predictions=rows).relations
    assert len(relation.relabelled) == NUM_ITEMS // 2


def test_differences_are_taken_across_all_runs(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one"), make_run(tmp_path / "two", answers="two")]
    runs.append(make_run(tmp_path / "three", {f"{IN}template": "x"}, answers="three"))
    verdict = check_fairness([read_facts(run) for run in runs])
    (difference,) = verdict.confounding
    assert list(difference.values.values()) == ["chat", "chat", "x"]
    assert len(verdict.relations) == 3


def test_runs_without_conditions_are_named_once(tmp_path: Path) -> None:
    old = {"evaluate/conditions.json": None}
    one, two = make_run(tmp_path / "one", old), make_run(tmp_path / "two", old, answers="two")
    verdict = check_fairness([read_facts(one), read_facts(two)])
    unknown = [one for one in verdict.confounding if one.aspect == "conditions"]
    assert len(unknown) == 1
    assert unknown[0].values == {}
    assert str(one) in unknown[0].explain()
    assert str(two) in unknown[0].explain()
    assert "template" in unknown[0].explain()


def test_one_run_is_no_comparison(tmp_path: Path) -> None:
    with pytest.raises(EvaluationError, match="two or more"):
        check_fairness([read_facts(make_run(tmp_path / "one"))])


def test_what_follows_and_what_is_unused_have_their_reasons(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    runs = [read_facts(run, policy="sft"), read_facts(run, policy="grpo")]
    named = check_fairness(runs, factors=("policy",))
    assert {one.key: one.reason for one in named.differences}["train"] == "follows"
    changes = {f"{OF}config/grpo/beta": 9.0, f"{IN}data/train/digest": "t2"}
    two = make_run(tmp_path / "two", changes, answers="two")
    verdict = check_fairness([read_facts(run, policy="sft") for run in (run, two)])
    assert [(one.key, one.reason) for one in verdict.differences] == [("grpo.beta", "unused")]


def test_what_differs_has_a_name() -> None:
    rows = [json.loads(line) for line in CORPUS.read_text(encoding="utf-8").splitlines()]
    classes = ("confounding", "intended", "harmless")
    told = {
        name.partition("/")[0]
        for row in rows
        for name, kind in row["told"].items()
        if kind in classes
    } - {"policy", "lineage"}
    told |= {pattern.partition("/")[0] for pattern, _ in HARMLESS_FACTS}
    known = phrases.load_phrases(Path(phrases.__file__).with_name("phrases.yaml"))
    assert {f"aspect.{one}" for one in told} <= set(known)
