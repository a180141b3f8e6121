"""What should have differed and does not: predictions, weights, axes, names."""

import json
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from run_folders import make_run

from groupwise.evaluation import (
    FairnessVerdict,
    Prediction,
    RunFacts,
    check_fairness,
    read_facts,
    summarize_same,
)

Judge = Callable[..., FairnessVerdict]
TRAINED = {"prepare/base": 0.0, "sft/policy": 1.0, "grpo/policy": 2.0}


def list_names(verdict: FairnessVerdict) -> list[str]:
    return [remark.name for remark in verdict.remarks]


def test_identical_predictions_are_remarked(judge_pair: Judge) -> None:
    verdict = judge_pair(answers="one")
    (remark,) = verdict.remarks
    assert (remark.name, remark.level) == ("same_predictions", "warning")
    assert "all 40 items" in remark.explain()
    assert "全部 40 题" in remark.explain("zh")
    assert verdict.relations[0].num_same_text == verdict.relations[0].num_same_answer == 40
    assert verdict.is_fair


def test_a_name_that_does_not_vary_is_remarked(judge_pair: Judge) -> None:
    verdict = judge_pair(factors=("grpo.beta", "grpo.learning_rate", "data"))
    assert [remark.words["key"] for remark in verdict.remarks] == ["grpo.learning_rate", "data"]


@pytest.mark.parametrize("still", ["sft", "grpo"])
def test_weights_that_did_not_move_are_an_error(judge_pair: Judge, still: str) -> None:
    before = {"sft": 0.0, "grpo": 1.0}[still]
    verdict = judge_pair(weights={**TRAINED, f"{still}/policy": before})
    assert list_names(verdict) == ["unmoved_weights"]
    assert verdict.remarks[0].level == "error"
    assert f"step {still}" in verdict.remarks[0].explain()
    assert not verdict.is_fair
    assert not verdict.confounding


def test_bfloat16_weights_are_read(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    one, two = make_run(tmp_path / "1"), make_run(tmp_path / "2", answers="two")
    for place in ("prepare/base", "sft/policy"):
        (one / place).mkdir(parents=True, exist_ok=True)
        save_file({"w": torch.ones(3, dtype=torch.bfloat16)}, one / place / "model.safetensors")
    assert list_names(check_fairness([read_facts(one), read_facts(two)])) == ["unmoved_weights"]


def cell(result: Any, **coordinates: str) -> tuple[dict[str, str], Any]:
    return coordinates, result


def test_identical_epochs_mean_that_nothing_was_trained() -> None:
    cells = [
        cell(value, epoch=epoch, shots=shots, beta="0.12")
        for epoch in ("1", "2")
        for shots, value in (("1", 57.0), ("2", 56.1), ("3", 55.1), ("4", 55.2))
    ]
    (remark,) = summarize_same(cells)
    assert remark.name == "same_epochs"
    assert remark.words == {"key": "epoch", "cause": "1, 2", "count": "4"}
    assert remark.explain() == (
        "epoch 1, 2 are identical in all 4 cells: nothing was trained between them"
    )


def test_an_axis_value_that_changed_nothing_is_named() -> None:
    digests = {("1", "a"): "x", ("1", "b"): "x", ("1", "c"): "x", ("1", "d"): "y"}
    cells = [cell(digest, n=n, beta=beta) for (n, beta), digest in digests.items()]
    (remark,) = summarize_same(cells)
    assert (remark.name, remark.words["cause"]) == ("same_axis", "a, b, c")


def test_cells_that_differ_somewhere_are_not_the_same() -> None:
    cells = [
        cell(value, beta=beta, shots=shots)
        for beta, row in {"0.12": (57.0, 55.2), "0.15": (58.8, 55.2)}.items()
        for shots, value in zip("14", row, strict=True)
    ]
    assert summarize_same(cells) == ()


def test_one_pair_of_equal_numbers_may_be_chance_and_of_texts_not() -> None:
    assert summarize_same([cell(0.5, beta="1"), cell(0.5, beta="2")]) == ()
    assert len(summarize_same([cell("d", beta="1"), cell("d", beta="2")])) == 1


def test_cells_that_were_not_run_say_nothing() -> None:
    cells = [cell(None, beta=b, n=n) for b in "12" for n in "12"]
    assert summarize_same(cells) == ()
    assert summarize_same([]) == ()


def test_remarks_are_plain_values(judge_pair: Judge) -> None:
    from dataclasses import asdict

    verdict = judge_pair(answers="one")
    assert json.loads(json.dumps(asdict(verdict)))["is_fair"] is True


def test_two_runs_that_are_labelled_apart_are_not_called_identical() -> None:
    """Whichever item a third run makes the named one."""
    labels = {"one": "xx", "two": "yx", "three": "yy"}
    runs = [
        RunFacts(
            name=name,
            folder=Path(f"/nowhere/{name}"),
            policy="grpo",
            facts={},
            answers={
                "test": {
                    i: Prediction(i, "g", "test", "grpo", label, "x")
                    for i, label in zip("ab", given, strict=True)
                }
            },
        )
        for name, given in labels.items()
    ]
    for order in permutations(runs):
        found = check_fairness(order).remarks
        assert {one.name for one in found} == {"same_predictions"}
        assert len(found) == 3
