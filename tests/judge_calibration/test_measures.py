"""What is measured about judges whose figures can be counted by hand."""

import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.judge_calibration.measures import measure_judge
from groupwise.judge_calibration.rows import VerdictRow


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
    found = measure_judge(rows, judge="j", **named)
    return {metric.measure: metric for metric in found.metrics if metric.split == "all"}


def draw_pairs(num_pairs, seed=0):
    """(label, longer) of each pair; 63 % of the better answers are the longer one."""
    dice = random.Random(seed)
    for _ in range(num_pairs):
        label = dice.choice("ab")
        is_longer = dice.random() < 0.63
        yield label, label if is_longer else "ba"["ab".index(label)]


def ask_both_orders(pairs, choose):
    return [
        make_row(n, label, choose(order, longer), order=order, longer=longer)
        for n, (label, longer) in enumerate(pairs)
        for order in ("ab", "ba")
    ]


PAIRS = list(draw_pairs(150))


def test_always_the_first_position():
    found = measure(ask_both_orders(PAIRS, lambda order, _: order[0]))
    for name, value in {
        "agreement": 0.5,
        "kappa": 0,
        "flip_rate": 1,
        "first_position": 1,
        "longer_judge": 0.5,
        "agreement_if_longer": 0.5,
        "agreement_if_shorter": 0.5,
        "no_verdict_rate": 0,
    }.items():
        assert found[name].value == pytest.approx(value, abs=1e-12), name
    num_longer = sum(label == longer for label, longer in PAIRS)
    assert found["longer_people"].value == num_longer / 150
    assert found["length_bias"].value == pytest.approx(0.5 - num_longer / 150)
    assert "agreement_unflipped" not in found
    assert "self_consistency" not in found


def test_always_the_longer_answer():
    found = measure(ask_both_orders(PAIRS, lambda _, longer: longer))
    num_longer = sum(label == longer for label, longer in PAIRS)
    cells = {(p, j): PAIRS.count((p, j)) for p in "ab" for j in "ab"}
    by_chance = sum(
        Fraction(sum(cells[one, x] for x in "ab") * sum(cells[x, one] for x in "ab"), 150**2)
        for one in "ab"
    )
    kappa = (Fraction(num_longer, 150) - by_chance) / (1 - by_chance)
    for name, value in {
        "agreement": num_longer / 150,
        "agreement_unflipped": num_longer / 150,
        "kappa": float(kappa),
        "flip_rate": 0,
        "first_position": 0.5,
        "longer_judge": 1,
        "longer_people": num_longer / 150,
        "length_bias": 1 - num_longer / 150,
        "agreement_if_longer": 1,
        "agreement_if_shorter": 0,
    }.items():
        assert found[name].value == pytest.approx(value, abs=1e-12), name
    assert found["agreement"].n == 150


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
        [make_row(n, *cell, repeat=r) for n, cell in enumerate(cells) for r in range(2)]
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


def test_flips_need_a_verdict_in_both_orders():
    verdicts = {0: ("a", "a"), 1: ("a", "b"), 2: ("b", None), 3: (None, None), 4: ("b", "a")}
    rows = [
        make_row(n, "a", verdict, order=order)
        for n, pair in verdicts.items()
        for order, verdict in zip(("ab", "ba"), pair, strict=True)
    ]
    found = measure(rows)
    assert found["flip_rate"].value == pytest.approx(2 / 3)
    assert found["flip_rate"].n == 3
    # item 0: first and second, item 1: first twice, item 4: second twice
    assert found["first_position"].value == pytest.approx(0.5)
    assert (found["agreement_unflipped"].value, found["agreement_unflipped"].n) == (1, 1)
    # item 0: 1, item 1: 1/2, item 2: 0, item 4: 1/2
    assert found["agreement"].value == pytest.approx(0.5)


def test_a_tie_is_a_verdict_for_neither_answer():
    verdicts = {0: ("tie", "tie"), 1: ("a", "tie"), 2: ("a", "a")}
    rows = [
        make_row(n, "a", verdict, order=order, longer="a")
        for n, pair in verdicts.items()
        for order, verdict in zip(("ab", "ba"), pair, strict=True)
    ]
    found = measure(rows)
    assert found["agreement"].value == pytest.approx((0 + 0.5 + 1) / 3)
    assert found["flip_rate"].value == pytest.approx(1 / 3)
    # item 1: first in its only choice, item 2: once first, once second
    assert (found["first_position"].value, found["first_position"].n) == (0.75, 2)
    assert (found["longer_judge"].value, found["longer_judge"].n) == (1, 2)
    assert found["length_bias"].n == 2


def test_self_consistency_is_the_chance_that_two_askings_agree():
    verdicts = {0: "aaaa", 1: "aabb", 2: "aaab"}
    rows = [
        make_row(n, "a", verdict, repeat=repeat)
        for n, said in verdicts.items()
        for repeat, verdict in enumerate(said)
    ]
    found = measure(rows)["self_consistency"]
    assert found.value == pytest.approx((1 + 2 / 6 + 3 / 6) / 3)
    assert found.n == 3
    certain = measure(rows[:1], is_deterministic=True)["self_consistency"]
    assert (certain.value, certain.n) == (1, 1)


def test_calibration_of_a_judge_that_is_too_sure():
    rows = [
        make_row(n, "a", "a" if n < 6 else "b", confidence=0.98 if n % 2 else 0.96)
        for n in range(10)
    ]
    result = measure_judge(rows, judge="j")
    found = {metric.measure: metric for metric in result.metrics}
    # one bin: confidence 0.97 on average, right 0.6 of the time
    last = result.reliability["all"][-1]
    assert (last.num_items, last.accuracy) == (10, pytest.approx(0.6))
    assert found["ece"].value == pytest.approx(0.97 - 0.6)
    assert found["ece"].low <= found["ece"].value <= found["ece"].high
    wrong = (0.96**2 * 2 + 0.98**2 * 2) / 10
    assert found["brier"].value == pytest.approx(wrong + (0.04**2 * 3 + 0.02**2 * 3) / 10)


def test_a_judge_that_only_names_labels_has_no_curve():
    result = measure_judge(
        [make_row(n, "a", "ab"[n % 2], confidence=1.0) for n in range(4)], judge="j"
    )
    assert result.reliability["all"] == ()
    assert not {"ece", "brier"} & {metric.measure for metric in result.metrics}


def test_subsets_and_the_levels_above_them():
    rows = [
        make_row(n, "a", "a" if n < 3 else "b", subset=subset)
        for n, subset in enumerate(["Natural", "Hard/One", "Hard/Two", "Hard/Two", ""])
    ]
    found = measure_judge(rows, judge="j").metrics
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
    for metric in measure_judge(rows, judge="j").metrics:
        assert metric.low <= metric.value <= metric.high
        assert (-1 if metric.measure == "kappa" else 0) <= metric.low
        assert metric.high <= 1
