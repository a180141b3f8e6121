"""What is named is intended, and what follows from it; nothing else becomes intended with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from run_folders import make_run

from groupwise.evaluation import FairnessVerdict, check_fairness, read_facts

Judge = Callable[..., FairnessVerdict]
IN = "evaluate/conditions.json:"
BY = "evaluate/policies.json:"
OF = "manifest.json:"

FOLLOWING: list[tuple[str, dict[str, Any]]] = [
    (
        "grpo.group_size",
        {
            f"{OF}config/grpo/group_size": 10,
            "grpo/resolved.json:num_generations": 10,
            f"{BY}grpo/budget/num_samples": 2000,
            f"{BY}grpo/budget/num_tokens": 24_000,
        },
    ),
    (
        "sft.epochs",
        {
            f"{OF}config/sft/epochs": 1,
            f"{BY}sft/budget": {"num_steps": 20, "num_samples": 300, "num_tokens": 30_000},
            f"{BY}grpo/budget/num_tokens": 11_000,
        },
    ),
    (
        "data.drawn.num_sessions",
        {
            f"{OF}config/data/drawn/num_sessions": 800,
            f"{IN}data/train": {"digest": "t2", "num_rows": 400},
            f"{IN}data/warmup/digest": "w2",
            f"{IN}prompts/train": "p2",
            f"{BY}grpo/budget/num_steps": 24,
            "grpo/resolved.json:prompts_left_out_per_epoch": 0,
        },
    ),
    ("data", {f"{IN}data/train/digest": "t2", f"{BY}grpo/budget/num_steps": 24}),
    (
        "model.base",
        {
            f"{OF}config/model/base": "other",
            f"{IN}base_weights": "b2",
            f"{IN}template": "c2",
            f"{IN}tokenizer": "k2",
        },
    ),
    ("seed", {f"{OF}seed": 1}),
    ("rewards.format", {f"{OF}config/rewards/format": 0.5}),
    ("data.root", {f"{OF}config/data/root": "/b", f"{OF}inputs": {"data.root": "d2"}}),
    ("grpo.trainable", {f"{OF}config/grpo/trainable": {"method": "lora"}}),
    ("code", {f"{OF}git_revision": "1234"}),
]


@pytest.mark.parametrize(("name", "changes"), FOLLOWING, ids=[row[0] for row in FOLLOWING])
def test_what_follows_from_the_named_is_intended(
    judge_pair: Judge, name: str, changes: dict[str, Any]
) -> None:
    assert judge_pair(changes, factors=("grpo.beta", name)).is_fair
    assert not judge_pair(changes, factors=("grpo.beta",)).is_fair


NOT_FOLLOWING: list[tuple[str, dict[str, Any], str]] = [
    ("grpo.learning_rate", {"grpo/resolved.json:temperature": 0.9}, "resolved"),
    ("grpo.learning_rate", {f"{BY}grpo/budget/num_steps": 13}, "budget"),
    ("grpo.epochs", {f"{BY}sft/budget/num_steps": 61}, "budget"),
    ("data.warmup_share", {f"{IN}data/test/digest": "e2"}, "data"),
    ("data.warmup_share", {f"{IN}prompts/test": "p2"}, "prompts"),
    ("grpo.max_new_tokens", {f"{IN}decoding/max_new_tokens": 32}, "decoding"),
    ("grpo.learning_rate", {f"{IN}template": "c2"}, "template"),
    ("seed", {f"{IN}base_weights": "b2"}, "base_weights"),
]


@pytest.mark.parametrize(
    ("name", "changes", "aspect"), NOT_FOLLOWING, ids=[f"{r[0]}-{r[2]}" for r in NOT_FOLLOWING]
)
def test_what_does_not_follow_confounds(
    judge_pair: Judge, name: str, changes: dict[str, Any], aspect: str
) -> None:
    key = "manifest.json:seed" if name == "seed" else f"{OF}config/{name.replace('.', '/')}"
    verdict = judge_pair({key: 7, **changes}, factors=("grpo.beta", name))
    assert [one.aspect for one in verdict.confounding] == [aspect]


def test_a_section_is_named_as_a_whole(judge_pair: Judge) -> None:
    verdict = judge_pair({f"{OF}config/grpo/learning_rate": 1.0}, factors=("grpo",))
    assert verdict.is_fair


def test_a_part_of_a_name_is_no_name(judge_pair: Judge) -> None:
    changes = {f"{OF}config/grpo/beta_2": 1}
    verdict = judge_pair(changes, factors=("grpo.beta",))
    assert [one.key for one in verdict.confounding] == ["grpo.beta_2"]


def test_the_cause_is_told(judge_pair: Judge) -> None:
    resolved = next(one for one in judge_pair().differences if one.aspect == "resolved")
    assert "grpo.beta" in resolved.explain()
    assert "grpo.beta" in resolved.explain("zh")


def test_two_policies_of_one_run_are_compared_by_their_own_lineage(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    runs = [read_facts(run, policy="sft"), read_facts(run, policy="grpo")]
    verdict = check_fairness(runs)
    assert not verdict.is_fair
    unlike = {f"{one.aspect}/{one.key}" for one in verdict.confounding}
    assert {"policy/name", "lineage/steps", "data/train", "budget/grpo.num_steps"} <= unlike
    assert not {name for name in unlike if "sft" in name or "warmup" in name}
    named = check_fairness(runs, factors=("policy",))
    assert named.is_fair, named.confounding
    assert {one.key: one.reason for one in named.differences}["train"] == "follows"


def test_policies_of_two_runs_share_the_steps_that_both_have(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    two = make_run(tmp_path / "two", {f"{BY}sft/budget/num_steps": 90}, answers="two")
    runs = [read_facts(one, policy="sft"), read_facts(two, policy="grpo")]
    verdict = check_fairness(runs, factors=("policy",))
    assert [one.key for one in verdict.confounding] == ["sft.num_steps"]


def test_settings_of_a_step_behind_no_compared_policy_are_harmless(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one")
    changes = {f"{OF}config/grpo/beta": 9.0, f"{IN}data/train/digest": "t2"}
    two = make_run(tmp_path / "two", changes, answers="two")
    verdict = check_fairness([read_facts(run, policy="sft") for run in (one, two)])
    assert verdict.is_fair
    assert [(one.key, one.reason) for one in verdict.differences] == [("grpo.beta", "unused")]


def test_of_a_policy_that_is_not_described_everything_counts(tmp_path: Path) -> None:
    gone = {f"{BY}{name}": ... for name in ("sft", "sft_control", "grpo")}
    one = make_run(tmp_path / "one", gone)
    two = make_run(tmp_path / "two", {**gone, f"{IN}data/train/digest": "t2"}, answers="two")
    verdict = check_fairness([read_facts(run, policy="sft") for run in (one, two)])
    assert [(one.aspect, one.key) for one in verdict.confounding] == [
        ("data", "train"),
        ("policies", "file"),
    ]
