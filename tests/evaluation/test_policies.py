"""The policies of a run as data."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from run_folders import POLICIES

from groupwise.core import EvaluationError, GroupwiseError, write_json, write_text
from groupwise.evaluation import POLICIES_FILE, Policies, read_policies, write_policies

USUAL = Policies(POLICIES)


def test_policies_come_back_as_they_were_written(tmp_path: Path) -> None:
    write_policies(tmp_path, POLICIES)
    assert read_policies(tmp_path) == USUAL


def test_of_a_run_that_wrote_none_nothing_is_known(tmp_path: Path) -> None:
    found = read_policies(tmp_path)
    assert found == Policies()
    assert (found.title("rce"), found.find("rce").kind) == ("rce", "unknown")
    assert found.sort(["b", "a", "b"]) == ["b", "a"]
    assert found.choose_last(["b", "a"]) == "a"


def test_the_budget_is_what_the_training_step_left(tmp_path: Path) -> None:
    counts = {"num_steps": 3.0, "num_samples": 6.0, "num_tokens": 90.0}
    write_json(tmp_path / "rce" / "budget.json", counts)
    rce = replace(POLICIES[4], name="rce", step="rce", trained_from=None, budget={})
    write_policies(tmp_path, [rce])
    assert read_policies(tmp_path).find("rce").budget == counts


def test_a_name_or_a_training_step_has_a_title_and_a_place() -> None:
    two = Policies((replace(POLICIES[-1], step="rce", trained_from=None),))
    assert [two.title(name) for name in ("grpo", "rce", "dpo")] == ["GRPO", "GRPO", "dpo"]
    assert [two.rank(name) for name in ("grpo", "rce", "dpo")] == [0, 0, 1]


def test_known_policies_stand_in_their_order_and_others_behind_them() -> None:
    assert USUAL.sort(["z", "grpo", "majority", "a"]) == ["majority", "grpo", "z", "a"]
    assert USUAL.choose_last(["grpo", "z", "majority"]) == "grpo"


def test_behind_a_policy_stand_all_that_it_was_trained_from() -> None:
    assert [one.name for one in USUAL.list_ancestors("grpo")] == ["prompt", "sft", "grpo"]
    assert [one.kind for one in USUAL.list_ancestors("gone")] == ["unknown"]


@pytest.mark.parametrize("order", [[POLICIES[4]], [POLICIES[0], POLICIES[0]]])
def test_a_policy_stands_once_and_behind_what_it_was_trained_from(
    tmp_path: Path, order: list[object]
) -> None:
    with pytest.raises(EvaluationError, match="behind the one it was trained from"):
        write_policies(tmp_path, order)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("text", ["{", "{}", '[{"name": "x"}]', '[{"name": "x", "sees": "all"}]'])
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    write_text(tmp_path / POLICIES_FILE, text)
    with pytest.raises(
        GroupwiseError, match=r"policies\.json is (damaged|not JSON|not a JSON list)"
    ):
        read_policies(tmp_path)
    unknown = [{**json.loads(json.dumps({"name": "x"})), "title": "x", "kind": "magic"}]
    write_json(tmp_path / POLICIES_FILE, unknown)
    with pytest.raises(EvaluationError, match=r"policies\.json is damaged"):
        read_policies(tmp_path)
