"""Every way in which two runs can be unlike is flagged, and a clean pair passes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import LABELS, NUM_ITEMS, make_predictions, make_run

from groupwise.core import EvaluationError
from groupwise.evaluation import FairnessVerdict, check_fairness, read_facts
from groupwise.evaluation.fairness.classing import HARMLESS_FACTS
from groupwise.evaluation.page import LANGUAGES, Language
from groupwise.evaluation.page.words import load_vocabulary

Judge = Callable[..., FairnessVerdict]
IN = "evaluate/conditions.json:"
BY = "evaluate/policies.json:"
OF = "manifest.json:"

CONFOUNDERS: list[tuple[str, dict[str, Any], tuple[str, str]]] = [
    ("other training file", {f"{IN}data/train/digest": "t2"}, ("data", "train")),
    (
        "5 against 664 queries with a positive",
        {f"{IN}data/train": {"digest": "t2", "num_rows": 200, "num_queries_with_a_positive": 5}},
        ("data", "train"),
    ),
    ("other warm-up file", {f"{IN}data/warmup/digest": "w2"}, ("data", "warmup")),
    ("other validation file", {f"{IN}data/validation/digest": "v2"}, ("data", "validation")),
    ("other test file", {f"{IN}data/test/digest": "e2"}, ("data", "test")),
    ("prompts of the test", {f"{IN}prompts/test": "p2"}, ("prompts", "test")),
    ("prompts of the training", {f"{IN}prompts/train": "p2"}, ("prompts", "train")),
    ("chat template", {f"{IN}template": "chatml"}, ("template", "digest")),
    ("tokenizer", {f"{IN}tokenizer": "other"}, ("tokenizer", "digest")),
    ("decoding", {f"{IN}decoding/temperature": 0.7}, ("decoding", "temperature")),
    ("answer length", {f"{IN}decoding/max_new_tokens": 32}, ("decoding", "max_new_tokens")),
    ("metric version", {f"{IN}metrics/accuracy": 99}, ("metrics", "accuracy")),
    ("metric not recorded", {f"{IN}metrics/accuracy": ...}, ("metrics", "accuracy")),
    ("normaliser", {f"{IN}normalizer": "2"}, ("normalizer", "version")),
    ("parser", {f"{IN}parser/describe": []}, ("parser", "describe")),
    ("reward weights", {f"{OF}config/rewards/format": 0.5}, ("config", "rewards.format")),
    ("judge", {f"{OF}config/judge": {"model": "j2"}}, ("config", "judge")),
    ("base weights", {f"{IN}base_weights": "other"}, ("base_weights", "digest")),
    ("steps", {f"{BY}grpo/budget/num_steps": 13}, ("budget", "grpo.num_steps")),
    ("samples", {f"{BY}grpo/budget/num_samples": 2000}, ("budget", "grpo.num_samples")),
    ("budget before", {f"{BY}sft/budget/num_tokens": 99}, ("budget", "sft.num_tokens")),
    ("unknown condition", {f"{IN}retrieval": {"depth": 5}}, ("retrieval", "depth")),
    (
        "nested in another set",
        {f"{IN}is_nested_subset_of/test": "x"},
        ("is_nested_subset_of", "test"),
    ),
    ("resolved value", {"grpo/resolved.json:temperature": 0.9}, ("resolved", "grpo.temperature")),
    (
        "rows left out of an epoch",
        {"grpo/resolved.json:prompts_left_out_per_epoch": 90},
        ("resolved", "grpo.prompts_left_out_per_epoch"),
    ),
    (
        "fewer trained weights",
        {"grpo/trainable.json": [{"part": "x", "num_trainable": 3, "num_frozen": 7}]},
        ("trainable", "grpo.num_trainable"),
    ),
    ("seed", {f"{OF}seed": 1}, ("seeds", "seed")),
    ("setting", {f"{OF}config/grpo/learning_rate": 1e-3}, ("config", "grpo.learning_rate")),
    ("unknown setting", {f"{OF}config/grpo/new": 1}, ("config", "grpo.new")),
    ("recipe", {f"{OF}recipe": "group_qc"}, ("recipe", "name")),
    ("package", {f"{OF}packages/trl": "1.15.0"}, ("packages", "trl")),
    ("package not recorded", {f"{OF}packages/torch": ...}, ("packages", "torch")),
    ("python", {f"{OF}python": "3.12.1"}, ("packages", "python")),
    ("code", {f"{OF}git_revision": "c0ffee-dirty"}, ("code", "git_revision")),
    ("accepted fault", {f"{OF}accepted_findings": ["pays-empty"]}, ("accepted", "findings")),
    ("input", {f"{OF}inputs": {"data.root": "d2"}}, ("inputs", "data.root")),
    ("section", {f"{OF}config/sft/augmentation": {"hue": 0.1}}, ("config", "sft.augmentation")),
    ("no conditions", {"evaluate/conditions.json": None}, ("conditions", "file")),
    ("no policies", {"evaluate/policies.json": None}, ("policies", "file")),
]


@pytest.mark.parametrize(
    ("changes", "place"), [row[1:] for row in CONFOUNDERS], ids=[row[0] for row in CONFOUNDERS]
)
def test_what_is_unlike_confounds(
    judge_pair: Judge, changes: dict[str, Any], place: tuple[str, str]
) -> None:
    verdict = judge_pair(changes)
    assert not verdict.is_fair
    assert [(one.aspect, one.key) for one in verdict.confounding] == [place]
    assert verdict.confounding[0].explain()
    assert verdict.confounding[0].explain("zh") != verdict.confounding[0].explain()


def test_other_training_steps_confound(judge_pair: Judge) -> None:
    verdict = judge_pair({f"{BY}grpo/trained_from": "prompt"})
    assert ("lineage", "steps") in {(one.aspect, one.key) for one in verdict.confounding}


def test_a_clean_pair_passes(judge_pair: Judge) -> None:
    verdict = judge_pair()
    assert verdict.is_fair, [one for one in verdict.confounding]
    kinds = {f"{one.aspect}/{one.key}": one.kind for one in verdict.differences}
    assert kinds == {
        "config/grpo.beta": "intended",
        "resolved/grpo.beta": "intended",
        "budget/grpo.num_tokens": "intended",
        "hardware/accelerators": "harmless",
        "hardware/machine": "harmless",
        "hardware/num_cpus": "harmless",
        "packages/torch": "harmless",
        "command/line": "harmless",
        "time/started_at": "harmless",
    }
    assert verdict.remarks == ()
    assert [one.kind for one in verdict.relations] == ["exact"]


@pytest.mark.parametrize(("fact", "value"), [("num_threads", 2), ("cpu_flags", ["avx2", "fma"])])
def test_other_numerics_are_told_and_harmless(judge_pair: Judge, fact: str, value: object) -> None:
    verdict = judge_pair({f"{OF}hardware/{fact}": value})
    (found,) = (one for one in verdict.differences if one.key == fact)
    assert verdict.is_fair
    assert (found.kind, "sums in another order" in found.explain()) == ("harmless", True)


def test_paths_never_count(judge_pair: Judge) -> None:
    harmless = {
        f"{OF}config/data/root": "/elsewhere/screens",
        f"{OF}config/model/base": "/models/tiny",
        f"{OF}inputs": {"model.base": "digest of a folder"},
        f"{OF}config/evaluation/batch_size": 8,
        f"{OF}config/evaluation/num_items": NUM_ITEMS,
        f"{OF}config/sft/log_every_steps": 1,
        f"{OF}config/grpo/speed/trunk_cache": False,
        f"{OF}config/model/shape": {"num_blocks": 3},
        f"{OF}python": "3.11.9",
    }
    assert judge_pair(harmless).is_fair


def test_a_path_with_other_content_counts(judge_pair: Judge) -> None:
    verdict = judge_pair({f"{OF}config/model/base": "/models/tiny", f"{IN}base_weights": "b2"})
    places = {(one.aspect, one.key) for one in verdict.confounding}
    assert places == {("base_weights", "digest"), ("config", "model.base")}


def test_without_varying_the_compared_setting_confounds(judge_pair: Judge) -> None:
    verdict = judge_pair(factors=())
    places = {(one.aspect, one.key) for one in verdict.confounding}
    assert places == {
        ("config", "grpo.beta"),
        ("resolved", "grpo.beta"),
        ("budget", "grpo.num_tokens"),
    }


@pytest.mark.parametrize(
    ("ids", "kind", "num_shared"),
    [
        (range(30), "nested", 30),
        (range(10, 60), "overlapping", 30),
        (range(100, 140), "disjoint", 0),
    ],
)
def test_other_items_confound(judge_pair: Judge, ids: range, kind: str, num_shared: int) -> None:
    verdict = judge_pair(predictions=make_predictions("two", ids=ids))
    (difference,) = verdict.confounding
    assert (difference.aspect, difference.key) == ("items", "test")
    assert [values["n"] for values in difference.values.values()] == [40, len(ids)]
    assert kind in difference.explain()
    (relation,) = verdict.relations
    assert (relation.kind, relation.num_shared) == (kind, num_shared)


def test_other_labels_of_the_same_items_confound(judge_pair: Judge) -> None:
    from dataclasses import replace

    rows = make_predictions("two")
    rows = [replace(row, label=LABELS[0]) if row.policy == "grpo" else row for row in rows]
    verdict = judge_pair(predictions=rows)
    assert [one.aspect for one in verdict.confounding] == ["labels"]
    assert len(verdict.relations[0].relabelled) == NUM_ITEMS // 2


def test_a_judge_that_failed_more_often_confounds(tmp_path: Path) -> None:
    judge = {"version": "j1", "no_verdict_rate": 0.01, "cache_hit_rate": 0.0, "num_questions": 9}
    one = make_run(tmp_path / "one", {"grpo/judge.json": judge})
    close = {**judge, "no_verdict_rate": 0.015, "cache_hit_rate": 0.9}
    two = make_run(tmp_path / "two", {"grpo/judge.json": close}, answers="two")
    assert check_fairness([read_facts(one), read_facts(two)]).is_fair
    worse = {**judge, "no_verdict_rate": 0.2}
    three = make_run(tmp_path / "three", {"grpo/judge.json": worse}, answers="two")
    verdict = check_fairness([read_facts(one), read_facts(three)])
    assert [one.key for one in verdict.confounding] == ["grpo.no_verdict_rate"]
    other = make_run(tmp_path / "four", {"grpo/judge.json": {**judge, "version": "j2"}})
    verdict = check_fairness([read_facts(one), read_facts(other)])
    assert [one.key for one in verdict.confounding] == ["grpo.version"]


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


def test_the_rest_is_held_together_where_one_run_has_no_conditions(tmp_path: Path) -> None:
    one, two = make_run(tmp_path / "one"), make_run(tmp_path / "two", {f"{IN}template": "x"})
    old = make_run(tmp_path / "old", {"evaluate/conditions.json": None})
    verdict = check_fairness([read_facts(run) for run in (one, two, old)])
    aspects = {one.aspect for one in verdict.confounding}
    assert {"conditions", "template"} <= aspects


def test_one_policy_of_a_folder_is_taken_once(tmp_path: Path) -> None:
    run = read_facts(make_run(tmp_path / "one"))
    again = read_facts(tmp_path / "one" / ".." / "one")
    with pytest.raises(EvaluationError, match="is given twice"):
        check_fairness([run, again])
    with pytest.raises(EvaluationError, match="two or more"):
        check_fairness([run])


def test_a_name_that_no_run_has_is_refused(judge_pair: Judge) -> None:
    with pytest.raises(EvaluationError, match=r"did you mean 'grpo\.beta'"):
        judge_pair(factors=("grpo.betta",))
    for everything in ("config", "conditions"):
        with pytest.raises(EvaluationError, match="no run has"):
            judge_pair(factors=(everything,))


def test_a_split_that_is_not_there_is_refused(tmp_path: Path) -> None:
    runs = [read_facts(make_run(tmp_path / name)) for name in ("one", "two")]
    with pytest.raises(EvaluationError, match="no items in the split 'validation'"):
        check_fairness(runs, split="validation")


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_differs_has_a_name_in_both_languages(language: Language) -> None:
    told = {aspect for _, _, (aspect, _) in CONFOUNDERS}
    told |= {pattern.partition("/")[0] for pattern, _ in HARMLESS_FACTS} - {"judge"}
    assert told - set(load_vocabulary(language)["aspects"]) == set()
