"""What is measured about judges whose figures can be counted by hand."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError, EvaluationError, read_jsonl, write_jsonl
from groupwise.evaluation.metrics import Metric
from groupwise.evaluation.report.phrases import Phrases
from groupwise.judge_calibration import calibration
from groupwise.judge_calibration.calibration import (
    Calibration,
    list_notices,
    measure_judge,
    measure_recorded,
)
from groupwise.judge_calibration.verdicts import VerdictRow, read_recorded, read_verdicts


def make_row(number, label, verdict, **named):
    values = {
        "item_id": f"i{number:04}",
        "cluster": f"g{number}",
        "subset": "",
        "label": label,
        "verdict": verdict,
        "cause": "" if verdict else "timeout",
    }
    return VerdictRow(**{**values, **named})


def measure(rows, **named):
    _, metrics = measure_judge(rows, judge="j", **named)
    return {metric.measure: metric for metric in metrics if metric.split == "all"}


def test_wilson_counts_items_and_not_calls():
    """Newcombe 1998, table I: 81 of 263 is 0.2553 to 0.3662."""
    rows = [
        make_row(n, "a", "a" if n < 81 else "b", order=order)
        for n in range(263)
        for order in ("ab", "ba")
    ]
    found = measure(rows)["agreement"]
    assert (found.low, found.high) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert found.n == 263


def test_kappa_of_a_known_table():
    """20, 5, 10, 15: observed 0.7, by chance 0.5, so 0.4."""
    cells = [("a", "a")] * 20 + [("a", "b")] * 5 + [("b", "a")] * 10 + [("b", "b")] * 15
    found = measure([make_row(n, *cell) for n, cell in enumerate(cells)])["kappa"]
    assert found.value == pytest.approx(0.4)
    assert found.low < 0.4 < found.high < 1
    twice = measure(
        [make_row(n, *cell, order=order) for n, cell in enumerate(cells) for order in ("ab", "ba")]
    )["kappa"]
    assert (twice.value, twice.low, twice.high) == pytest.approx(
        (found.value, found.low, found.high)
    )


def test_kappa_is_left_out_where_everyone_says_the_same():
    rows = [make_row(n, "a", "a") for n in range(5)]
    assert "kappa" not in measure(rows)
    unlike = measure([make_row(n, "a", "b") for n in range(5)])
    assert unlike["kappa"].value == 0


def test_questions_of_one_cluster_are_no_independent_items():
    alone = measure([make_row(n, "a", "ab"[n % 2]) for n in range(40)])["agreement"]
    alike = measure([make_row(n, "a", "ab"[n % 2], cluster=f"g{n // 4}") for n in range(40)])
    fewer = measure([make_row(n, "a", "ab"[n % 2]) for n in range(10)])["agreement"]
    assert alike["agreement"].value == alone.value == 0.5
    assert (alike["agreement"].low, alike["agreement"].high) == pytest.approx(
        (fewer.low, fewer.high)
    )
    assert alike["agreement"].n == 40


def test_no_verdict_is_neither_right_nor_wrong():
    rows = [make_row(n, "a", verdict) for n, verdict in enumerate(["a", "a", "b", None])]
    found = measure(rows)
    assert found["agreement"].value == pytest.approx(2 / 3)
    assert found["agreement"].n == 3
    assert found["no_verdict_rate"].value == 0.25
    nothing = measure([make_row(n, "a", None) for n in range(4)])
    assert set(nothing) == {"no_verdict_rate"}
    assert nothing["no_verdict_rate"].value == 1


def measure_pairs(*verdicts, **named):
    """Measure items by their verdicts in both orders; the right answer is ``a``."""
    rows = [
        make_row(n, "a", verdict, order=order, **named)
        for n, pair in enumerate(verdicts)
        for order, verdict in zip(("ab", "ba"), pair, strict=True)
    ]
    return measure(rows)


def test_flips_need_a_verdict_in_both_orders():
    found = measure_pairs(("a", "a"), ("a", "b"), ("b", None), (None, None), ("b", "a"))
    assert found["flip_rate"].value == pytest.approx(2 / 3)
    assert found["flip_rate"].n == 3
    # item 0: first and second, item 1: first twice, item 4: second twice
    assert found["first_position"].value == pytest.approx(0.5)
    assert (found["agreement_unflipped"].value, found["agreement_unflipped"].n) == (1, 1)
    # item 0: 1, item 1: 1/2, item 2: 0, item 4: 1/2
    assert found["agreement"].value == pytest.approx(0.5)


def test_a_tie_is_a_verdict_for_neither_answer():
    found = measure_pairs(("tie", "tie"), ("a", "tie"), ("a", "a"), longer="a")
    assert found["agreement"].value == pytest.approx((0 + 0.5 + 1) / 3)
    assert found["flip_rate"].value == pytest.approx(1 / 3)
    # item 1: first in its only choice, item 2: once first, once second
    assert (found["first_position"].value, found["first_position"].n) == (0.75, 2)
    assert (found["longer_judge"].value, found["longer_judge"].n) == (1, 2)
    assert found["length_bias"].n == 2


def test_calibration_of_a_judge_that_is_too_sure():
    rows = [
        make_row(n, "a", "a" if n < 6 else "b", confidence=0.98 if n % 2 else 0.96)
        for n in range(10)
    ]
    _, metrics = measure_judge(rows, judge="j")
    found = {metric.measure: metric for metric in metrics}
    # one bin: confidence 0.97 on average, right 0.6 of the time
    assert found["ece"].value == pytest.approx(0.97 - 0.6)
    assert found["ece"].low <= found["ece"].value <= found["ece"].high
    wrong = (0.96**2 * 2 + 0.98**2 * 2) / 10
    assert found["brier"].value == pytest.approx(wrong + (0.04**2 * 3 + 0.02**2 * 3) / 10)


def test_a_judge_that_only_names_labels_has_no_calibration():
    _, metrics = measure_judge(
        [make_row(n, "a", "ab"[n % 2], confidence=1.0) for n in range(4)], judge="j"
    )
    assert not {"ece", "brier"} & {metric.measure for metric in metrics}


def test_subsets_and_the_levels_above_them():
    rows = [
        make_row(n, "a", "a" if n < 3 else "b", subset=subset)
        for n, subset in enumerate(["Natural", "Hard/One", "Hard/Two", "Hard/Two", ""])
    ]
    found = measure_judge(rows, judge="j")[1]
    shares = {m.split: (m.value, m.n) for m in found if m.measure == "agreement"}
    assert shares == {
        "all": (pytest.approx(3 / 5), 5),
        "Hard": (pytest.approx(2 / 3), 3),
        "Hard/One": (1, 1),
        "Hard/Two": (0.5, 2),
        "Natural": (1, 1),
    }
    assert len({m.split_digest for m in found}) == 5


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from(["x", "y", "z", None]))))
def test_every_number_is_inside_its_interval_and_range(cells):
    rows = [make_row(n, *cell) for n, cell in enumerate(cells)]
    if not rows:
        return
    for metric in measure_judge(rows, judge="j")[1]:
        assert metric.low <= metric.value <= metric.high
        assert (-1 if metric.measure == "kappa" else 0) <= metric.low
        assert metric.high <= 1


PHRASES = Phrases("en", own=Path(calibration.__file__).with_name("phrases.yaml"))
NO_DROPS = {"total": 0, "counts": {}}
GOOD = {
    "agreement": (0.8, 0.7, 0.9),
    "kappa": (0.6, 0.4, 0.8),
    "flip_rate": (0.05, 0.0, 0.2),
    "no_verdict_rate": (0.0, 0.0, 0.1),
    "length_bias": (0.02, -0.1, 0.1),
}


def notice(drops=NO_DROPS, **changes):
    values = {name: ends for name, ends in (GOOD | changes).items() if ends}
    metrics = [Metric(f"j/{name}", "all", *ends, 100, "d") for name, ends in values.items()]
    metrics.append(Metric("j/flip_rate", "Hard", 0.9, 0.8, 1.0, 10, "e"))
    found = list_notices(metrics, drops)
    return [(one.level, PHRASES.say(one).replace("\u00a0", " ")) for one in found]


def test_a_good_judge_gets_none():
    assert notice() == []


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        (
            {"kappa": (0.1, -0.1, 0.3)},
            "error",
            "is not shown to be better than chance: Cohen's κ is 0.100 (−0.100 to 0.300).",
        ),
        ({"kappa": (-0.4, -0.5, -0.3)}, "error", "is worse than chance: Cohen's κ is −0.400"),
        ({"agreement": None, "kappa": None}, "error", "The judge gave no verdict at all."),
        ({"no_verdict_rate": (0.25, 0.2, 0.3)}, "warning", "No verdict in 25.0 % of the calls"),
        ({"flip_rate": (0.11, 0.0, 0.2)}, "warning", "11.0 % of the verdicts change with the"),
        ({"length_bias": (0.2, 0.1, 0.3)}, "warning", "prefers the longer answer more often"),
        ({"length_bias": (-0.2, -0.3, -0.1)}, "warning", "shorter answer more often than people"),
    ],
)
def test_what_a_reader_must_know(changes, level, words):
    [(given, text)] = notice(**changes)
    assert given == level
    assert words in text


def test_the_gravest_comes_first_and_drops_are_told():
    drops = {"total": 3, "counts": {"repeated": 2, "empty answer": 1}}
    found = notice(drops, kappa=(0.0, -0.1, 0.1), flip_rate=(0.5, 0.4, 0.6))
    assert [level for level, _ in found] == ["error", "warning", "info"]
    assert found[-1][1] == "3 rows of the data were not used: 2 repeated, 1 empty answer."


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


def measure_rows(folder: Path, rows: list[dict[str, Any]]) -> tuple[Calibration, dict[str, Any]]:
    write_jsonl(folder / "recorded.jsonl", rows)
    source = folder / "recorded.jsonl"
    found = measure_recorded(read_recorded(source), source, out=folder / "out")
    written = json.loads((folder / "out/calibration.json").read_text())
    values = {m["name"].rpartition("/")[2]: m for m in written["metrics"] if m["split"] == "all"}
    return found, {**written, "values": values}


def test_both_definitions_over_both_orders_stand_beside_the_mean(tmp_path: Path) -> None:
    found, written = measure_rows(tmp_path, make_judgebench())
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
    _, written = measure_rows(tmp_path, rows)
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
    _, written = measure_rows(tmp_path, rows)
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
    _, written = measure_rows(tmp_path, rows)
    assert written["num_items"] == 2
    assert written["drops"]["counts"] == {"people are divided": 1, "nobody judged it": 1}
    assert written["values"]["agreement"]["value"] == 1


def test_verdicts_of_an_earlier_calibration_are_measured_alike(tmp_path: Path) -> None:
    _, first = measure_rows(tmp_path, make_judgebench())
    again = read_recorded(tmp_path / "out/verdicts.jsonl")
    assert list(again.rows) == read_verdicts(tmp_path / "out/verdicts.jsonl")
    assert len(again.rows) == 700
    assert first["num_items"] == 350
    rows = read_jsonl(tmp_path / "out/verdicts.jsonl")
    write_jsonl(tmp_path / "twice.jsonl", (row | {"repeat": n % 2} for n, row in enumerate(rows)))
    with pytest.raises(EvaluationError, match=r"row 2 is another verdict .*rows with repeat 0"):
        read_verdicts(tmp_path / "twice.jsonl")


FIRST, SECOND = make_judgebench()[:2]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (FIRST | {"label": "A"}, "a decision is wrong"),
        (FIRST | {"judgments": []}, "has no judgments"),
        (FIRST | {"judgments": [{"decision": "first"}]}, "a decision is wrong"),
        (FIRST | {"pair_id": "p1"}, "appears twice"),
        ({"id": "1", "label": "a"}, "is no recorded verdict"),
        ({"id": "1", "label": "c", "verdicts": {"ab": "a"}}, "has a wrong answer"),
        ({"id": "1", "label": "a", "verdicts": {"first": "a"}}, "verdicts are wrong"),
        ({"id": "1", "label": "a", "verdicts": {"ab": "a"}, "group": "q"}, "name it 'cluster'"),
        ({"id": "1", "labels": ["a", "b"], "verdicts": {"ab": "a"}}, "no verdict that can be used"),
    ],
)
def test_a_wrong_row_is_named(row: dict[str, Any], words: str, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "r.jsonl", [row, SECOND] if "pair_id" in row else [row])
    with pytest.raises(DataError, match=words):
        read_recorded(tmp_path / "r.jsonl")
