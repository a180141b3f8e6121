"""Verdicts given before: published outputs, several annotators, ties; no model is loaded."""

import json
from pathlib import Path
from typing import Any

import pytest

from groupwise.core import DataError, write_jsonl
from groupwise.judge_calibration import (
    Calibration,
    measure_recorded,
    read_recorded,
    read_verdicts,
)
from groupwise.judge_calibration.annotators import measure_alpha

MADE = {
    ("right", "right"): 203,
    ("right", "tie"): 12,
    ("right", "wrong"): 33,
    ("tie", "right"): 15,
    ("tie", "tie"): 5,
    ("tie", "wrong"): 7,
    ("wrong", "right"): 43,
    ("wrong", "wrong"): 32,
}
"""Made rows with as many pairs of each kind as JudgeBench's published outputs of o1-mini have."""
OTHER = {"A>B": "B>A", "B>A": "A>B", "A=B": "A=B"}


def decide(kind: str, label: str) -> str:
    return {"right": label, "wrong": OTHER[label], "tie": "A=B"}[kind]


def make_judgebench() -> list[dict[str, Any]]:
    """JudgeBench's form: the second decision is of the swapped answers, by place."""
    kinds = [kinds for kinds, number in MADE.items() for _ in range(number)]
    rows: list[dict[str, Any]] = []
    for number, (first, second) in enumerate(kinds):
        label = "A>B" if number % 2 else "B>A"
        rows.append(
            {
                "pair_id": f"p{number}",
                "source": "math" if number % 3 else "law",
                "question": f"Question {number}?",
                "response_A": "short",
                "response_B": "a longer one",
                "label": label,
                "judgments": [
                    {"judgment": {}, "decision": decide(first, label)},
                    {"judgment": {}, "decision": OTHER[decide(second, label)]},
                ],
            }
        )
    return rows


def measure(folder: Path, rows: list[dict[str, Any]]) -> tuple[Calibration, dict[str, Any]]:
    write_jsonl(folder / "recorded.jsonl", rows)
    source = folder / "recorded.jsonl"
    found = measure_recorded(read_recorded(source), source, out=folder / "out")
    written = json.loads((folder / "out/calibration.json").read_text())
    values = {m["name"].rpartition("/")[2]: m for m in written["metrics"] if m["split"] == "all"}
    return found, {**written, "values": values}


def test_both_definitions_over_both_orders_stand_beside_the_mean(tmp_path: Path) -> None:
    found, written = measure(tmp_path, make_judgebench())
    values = {name: row["value"] for name, row in written["values"].items()}
    assert sum(MADE.values()) == 350
    assert values["right_on_balance"] == pytest.approx(230 / 350)
    assert f"{values['right_on_balance']:.2%}" == "65.71%"
    assert values["right_in_both_orders"] == pytest.approx(203 / 350)
    assert values["agreement"] == pytest.approx((2 * 203 + 12 + 33 + 15 + 43) / 700)
    assert values["flip_rate"] == pytest.approx(110 / 350)
    assert (written["num_inconsistent_pairs"], written["num_pairs_in_both_orders"]) == (110, 350)
    assert found.num_inconsistent_pairs == 110
    assert found.num_calls == 0
    page = (tmp_path / "out/report.html").read_text()
    assert "Right in both orders" in page
    assert "110 of 350" in page


def test_a_second_decision_is_turned_round_and_ties_and_gaps_are_kept(tmp_path: Path) -> None:
    row = make_judgebench()[0] | {"label": "A>B"}
    rows = [
        row | {"pair_id": "x", "judgments": [{"decision": "A>B"}, {"decision": "A>B"}]},
        row | {"pair_id": "y", "judgments": [{"decision": "A=B"}, None]},
        row | {"pair_id": "z", "judgments": [{"decision": "B>A"}]},
    ]
    _, written = measure(tmp_path, rows)
    said = [(r.item_id, r.order, r.verdict) for r in read_verdicts(tmp_path / "out/verdicts.jsonl")]
    assert said == [
        ("x", "ab", "a"),
        ("x", "ba", "b"),
        ("y", "ab", "tie"),
        ("y", "ba", None),
        ("z", "ab", "b"),
    ]
    assert written["causes_of_no_verdict"] == {"not recorded": 1}
    assert written["num_inconsistent_pairs"] == 2
    assert written["values"]["right_in_both_orders"]["n"] == 2
    assert {r.longer for r in read_verdicts(tmp_path / "out/verdicts.jsonl")} == {"b"}


def test_no_verdict_is_not_right_over_both_orders(tmp_path: Path) -> None:
    verdicts = [{"ab": "a", "ba": None}, {"ab": None, "ba": None}, {"ab": "a", "ba": "a"}]
    rows = [{"id": str(n), "label": "a", "verdicts": one} for n, one in enumerate(verdicts)]
    _, written = measure(tmp_path, rows)
    values = written["values"]
    assert values["right_in_both_orders"]["value"] == pytest.approx(1 / 3)
    assert values["right_on_balance"]["value"] == pytest.approx(2 / 3)
    assert values["agreement"]["value"] == 1


def test_most_annotators_decide_and_divided_ones_are_counted(tmp_path: Path) -> None:
    steady = {"ab": "a", "ba": "a"}
    rows = [
        {"id": "1", "labels": ["a", "a", "b", None], "verdicts": steady},
        {"id": "2", "labels": ["tie", "tie", None], "verdicts": {"ab": "tie", "ba": "tie"}},
        {"id": "3", "labels": ["a", "b"], "verdicts": steady},
        {"id": "4", "labels": [None, None], "verdicts": steady},
    ]
    _, written = measure(tmp_path, rows)
    assert written["num_items"] == 2
    assert written["drops"]["counts"] == {"people are divided": 1, "nobody judged it": 1}
    assert written["values"]["agreement"]["value"] == 1
    assert written["values"]["agreement_each"]["value"] == pytest.approx((2 / 3 + 1) / 2)
    alpha = written["values"]["people_alpha"]
    disagreement, expected = (4 / 2 + 2 / 1) / 7, (49 - 3**2 - 2**2 - 2**2) / (7 * 6)
    assert (alpha["value"], alpha["n"]) == (pytest.approx(1 - disagreement / expected), 3)


def test_alpha_is_that_of_its_author_s_example() -> None:
    """Krippendorff 2011, section C: four observers, twelve units, nominal alpha 0.743."""
    observers = ("123321412...", "1233224125.3", ".3332342251.", "12332441251.")
    units = {
        f"{n:02}": tuple(None if one == "." else one for one in unit)
        for n, unit in enumerate(zip(*observers, strict=True))
    }
    found = measure_alpha(units, {pair: pair for pair in units})
    assert found is not None
    value, (low, high), num = found
    assert value == pytest.approx(0.743, abs=5e-4)
    assert low < value < high <= 1
    assert num == 11
    assert measure_alpha({"1": ("a", "a"), "2": ("a", "a")}, {"1": "1", "2": "2"}) is None


def test_verdicts_of_an_earlier_calibration_are_measured_alike(tmp_path: Path) -> None:
    _, first = measure(tmp_path, make_judgebench())
    again = read_recorded(tmp_path / "out/verdicts.jsonl")
    assert list(again.rows) == read_verdicts(tmp_path / "out/verdicts.jsonl")
    assert len(again.rows) == 700
    assert first["num_items"] == 350


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"label": "A"}, "a decision is wrong"),
        ({"judgments": []}, "has no judgments"),
        ({"judgments": [{"decision": "first"}]}, "a decision is wrong"),
        ({"pair_id": "p1"}, "appears twice"),
    ],
)
def test_a_wrong_row_is_named(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    rows = make_judgebench()[:2]
    write_jsonl(tmp_path / "r.jsonl", [rows[0] | change, rows[1]])
    with pytest.raises(DataError, match=words):
        read_recorded(tmp_path / "r.jsonl")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": "1", "label": "a"}, "is no recorded verdict"),
        ({"id": "1", "label": "c", "verdicts": {"ab": "a"}}, "has a wrong answer"),
        ({"id": "1", "label": "a", "verdicts": {"first": "a"}}, "verdicts are wrong"),
        ({"id": "1", "label": "a", "verdicts": {"ab": "a"}, "group": "q"}, "name it 'cluster'"),
        ({"id": "1", "labels": ["a", "b"], "verdicts": {"ab": "a"}}, "no verdict that can be used"),
    ],
)
def test_a_wrong_plain_row_is_named(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", [row])
    with pytest.raises(DataError, match=words):
        read_recorded(tmp_path / "r.jsonl")
