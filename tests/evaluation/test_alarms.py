"""Every alarm with a series that raises it, and a near one that does not."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from groupwise.evaluation.alarms import History, Series, find_alarms, find_stop
from groupwise.evaluation.report.phrases import Phrases


def make_history(**columns: Sequence[float | None]) -> History:
    """Rows at steps 1, 2, 3 …; None leaves a value out; ``heldout_x`` stands for ``heldout/x``."""
    num_rows = max(map(len, columns.values()))
    rows: list[Mapping[str, Any]] = []
    for place in range(num_rows):
        row: dict[str, Any] = {"step": place + 1}
        for name, values in columns.items():
            if place < len(values) and values[place] is not None:
                row[name.replace("heldout_", "heldout/")] = values[place]
        rows.append(row)
    return History(rows)


def name_alarms(history: History) -> list[str]:
    return [alarm.name for alarm in find_alarms(history)]


def checks(*values: float) -> list[float | None]:
    """One held-out check every fourth row."""
    return [value for check in values for value in (None, None, None, check)]


RISING = [0.5 + 0.01 * step for step in range(20)]
FLAT = [0.5] * 20
FALLING_HELDOUT = checks(0.80, 0.90, 0.85, 0.70, 0.72)
LOOKED = {"heldout_majority": checks(*[0.5] * 5), "heldout_n": checks(*[96] * 5)}
NONE_EARNED = {"reward": [0.0] * 8}
RAISED: dict[str, tuple[dict[str, Sequence[float | None]], dict[str, Sequence[float | None]]]] = {
    "all_groups_dead": (
        {"dead_groups": [0.4, 1, 1, 1, 1, 1]},
        {"dead_groups": [0.4, 1, 1, 0.99, 1, 1]},
    ),
    "reward_up_heldout_down": (
        {"reward": RISING, "heldout_accuracy": FALLING_HELDOUT},
        {"reward": FLAT, "heldout_accuracy": FALLING_HELDOUT},
    ),
    "kl_jump": (
        {"kl": [0.03] * 12 + [0.16]},
        {"kl": [0.03] * 12 + [0.14]},
    ),
    "entropy_collapse": (
        {"entropy": [1.0] * 5 + [0.19] * 5, "reward": [0.7] * 10},
        {"entropy": [1.0] * 5 + [0.21] * 5, "reward": [0.7] * 10},
    ),
    "invalid": ({"invalid": [0.21] * 5}, {"invalid": [0.19] * 5}),
    "loss_not_falling": (
        {"loss": [3.23] * 10 + [3.40] * 10, "learning_rate": [0.5, *[1.0] * 19]},
        {"loss": [3.23] * 10 + [3.10] * 10, "learning_rate": [0.5, *[1.0] * 19]},
    ),
    "constant_answers": (
        {"heldout_commonest": checks(*[0.99] * 5), **LOOKED},
        {"heldout_commonest": checks(*[0.99] * 4, 0.97), **LOOKED},
    ),
    "nothing_earned": (
        {"num_groups": [8] * 8, "num_dead_groups": [8] * 8, "dead_groups": [1] * 8, **NONE_EARNED},
        {"num_groups": [8] * 8, "num_dead_groups": [8] * 7 + [7], **NONE_EARNED},
    ),
}


def test_a_heldout_fall_that_chance_explains_raises_nothing():
    """One standard error of 0.9 on 96 items is 0.031: a fall of 0.05 is within two of them."""
    heldout = checks(0.80, 0.90, 0.88, 0.85, 0.85)
    few = make_history(reward=RISING, heldout_accuracy=heldout, heldout_n=checks(*[96] * 5))
    many = make_history(reward=RISING, heldout_accuracy=heldout, heldout_n=checks(*[960] * 5))
    assert name_alarms(few) == []
    assert name_alarms(many) == ["reward_up_heldout_down"]


def test_one_low_heldout_check_raises_nothing():
    assert name_alarms(make_history(reward=RISING, heldout_accuracy=checks(0.8, 0.9, 0.5))) == []
    recovered = checks(0.80, 0.90, 0.70, 0.70, 0.90)
    assert name_alarms(make_history(reward=RISING, heldout_accuracy=recovered)) == []


def test_the_heldout_alarm_says_since_when_and_by_how_much():
    history = make_history(reward=RISING, heldout_accuracy=FALLING_HELDOUT)
    (alarm,) = find_alarms(history)
    assert alarm.step == 20
    assert alarm.subject == "accuracy"
    assert alarm.numbers == pytest.approx(
        {"best": 0.9, "best_step": 8, "now": 0.72, "reward_then": 0.55, "reward_now": 0.67}
    )
    assert Phrases("en").say(alarm.said) == (
        "since step 8 the mean reward rose from 0.55 to 0.67, but held-out accuracy fell from "
        "0.9 to 0.72"
    )


def test_low_entropy_is_right_where_everything_is_solved():
    entropy = [1.0] * 5 + [0.01] * 5
    assert name_alarms(make_history(entropy=entropy, reward=[0.99] * 10)) == []
    assert name_alarms(make_history(entropy=entropy, reward=[0.97] * 10)) == ["entropy_collapse"]
    assert name_alarms(make_history(entropy=entropy)) == []


def test_a_jump_is_the_last_one_and_counts_all():
    history = make_history(kl=[0.02] * 6 + [0.5] + [0.02] * 6 + [0.8] + [0.02] * 3)
    (alarm,) = find_alarms(history)
    assert (alarm.step, alarm.numbers["value"], alarm.numbers["num_jumps"]) == (14, 0.8, 2)


def test_a_jump_needs_rows_before_it_and_an_absolute_size():
    assert name_alarms(make_history(kl=[0.0, 0.0, 0.0, 0.0, 0.9])) == []
    assert name_alarms(make_history(kl=[0.0, 0.0, 0.0, 0.0, 0.0, 0.9])) == ["kl_jump"]
    assert name_alarms(make_history(kl=[0.001] * 10 + [0.09])) == []


def test_a_loss_that_was_low_from_the_start_need_not_fall():
    assert name_alarms(make_history(loss=[0.69] * 20)) == []
    assert name_alarms(make_history(loss=[0.71] * 20)) == ["loss_not_falling"]
    assert name_alarms(make_history(loss=[3.0] * 20, reward=[0.5] * 20)) == []


def test_a_loss_is_not_judged_while_the_rate_rises_or_before_half_of_the_steps():
    """A slow start is none of its business: the rate has to be at its highest, and half be done."""
    rising = make_history(loss=[3.0] * 20, learning_rate=[0.1 * step for step in range(20)])
    assert name_alarms(rising) == []
    flat = make_history(loss=[3.0] * 20)
    assert [a.name for a in find_alarms(flat, num_steps=40)] == ["loss_not_falling"]
    assert find_alarms(flat, num_steps=41) == ()
    assert find_alarms(make_history(loss=[3.0] * 19), num_steps=19) == ()


def test_one_answer_to_everything_is_an_alarm_early_and_the_end_from_half_of_the_steps_on():
    history = make_history(heldout_commonest=checks(*[1.0] * 5), **LOOKED)
    (early,), (late,) = find_alarms(history, num_steps=41), find_alarms(history, num_steps=40)
    assert (early.name, early.level) == ("constant_answers", "warning")
    assert (late.name, late.level) == ("constant_answers", "error")
    assert find_stop(history, num_steps=41) is None
    assert find_stop(history, num_steps=40) == late


def test_rows_become_series():
    rows = [{"step": 1, "loss": 2}, {"step": 4, "loss": 1.5, "kl": 0.1}]
    history = History(rows)
    assert history.read("loss") == Series("loss", (1, 4), (2.0, 1.5))
    assert history.read("kl") == Series("kl", (4,), (0.1,))
    assert not history.read("reward")
    assert history.last_step == 4
    history = History([*rows, {"step": 9, "loss": 1}])
    assert history.read("loss").values == (2.0, 1.5, 1.0)
    assert history.last_step == 9


def test_what_is_no_number_is_left_out():
    rows = [
        {"step": 1, "loss": float("nan"), "note": "x", "is_last": True, "empty": None},
        {"loss": 3.0},
        {"step": "2", "loss": 3.0},
        {"step": 3, "loss": float("inf")},
    ]
    history = History(rows)
    assert [series.key for series in history.list_series()] == []
    assert History().is_empty
    assert not history.is_empty


def test_series_stand_in_the_order_people_look_at_them():
    keys = "tokens_per_s zeta loss heldout/n heldout/invalid heldout/accuracy reward/format"
    keys += " reward/format_std reward epoch skipped_rows step"
    row = dict.fromkeys(keys.split(), 1)
    assert [series.key for series in History([row]).list_series()] == [
        "reward",
        "reward/format",
        "heldout/accuracy",
        "heldout/invalid",
        "loss",
        "tokens_per_s",
        "zeta",
    ]


def test_a_log_is_read_where_it_has_numbers():
    rows = ({"step": 1, "kl": 0.1}, {"step": 2, "kl": None}, {"kl": 3.0}, {"step": 3, "kl": 0})
    found = History(rows).read("kl")
    assert (found.steps, found.values) == ((1, 3), (0.1, 0.0))
    parts = History([{"step": 1, "reward": 1, "reward/b": 1, "reward/a": 1, "reward/a_std": 0}])
    assert parts.list_parts() == ["a", "b"]
    assert parts.is_rewarded
    assert not History(rows).is_rewarded


@pytest.mark.parametrize("name", RAISED)
def test_an_alarm_is_raised_by_its_series_and_not_by_a_near_one(name: str):
    raising, near = RAISED[name]
    assert name_alarms(make_history(**raising)) == [name]
    assert name_alarms(make_history(**near)) == []


@pytest.mark.parametrize("name", RAISED)
def test_an_alarm_says_its_numbers_and_what_to_do_in_both_languages(name: str):
    (alarm,) = find_alarms(make_history(**RAISED[name][0]))
    assert alarm.step > 0
    assert alarm.numbers
    for language in ("en", "zh"):
        said = Phrases(language).say(alarm.said) + Phrases(language).say(alarm.advice)
        assert "{" not in said
        assert said.isascii() == (language == "en") or "\u00a0" in said
        assert any(digit in said for digit in "0123456789")


@pytest.mark.parametrize("changed", [{"heldout_majority": 0.91}, {"heldout_n": 19}])
def test_one_answer_is_no_fault_where_it_is_nearly_always_right_or_little_was_asked(
    changed: dict[str, float],
):
    looked = {**LOOKED, **{name: checks(*[value] * 5) for name, value in changed.items()}}
    assert name_alarms(make_history(heldout_commonest=checks(*[1.0] * 5), **looked)) == []


@pytest.mark.parametrize(
    ("num_groups", "reward", "stops"), [(60, 0.0, True), (59, 0.0, False), (60, 1.0, False)]
)
def test_groups_that_never_differ_stop_a_training_unless_all_is_earned_or_they_are_few(
    num_groups: int, reward: float, stops: bool
):
    history = make_history(num_groups=[num_groups], num_dead_groups=[num_groups], reward=[reward])
    assert (find_stop(history, num_steps=1000) is not None) == stops


def test_what_a_solved_training_raises_does_not_stop_it():
    history = make_history(dead_groups=[1.0] * 30, grad_norm=[0.0] * 30, reward=[1.0] * 30)
    assert name_alarms(history) == ["all_groups_dead"]
    assert find_stop(history, num_steps=30) is None


def test_too_few_rows_raise_nothing():
    for name, (raising, _) in RAISED.items():
        if name not in ("reward_up_heldout_down", "kl_jump", "nothing_earned"):
            assert name_alarms(make_history(**{k: v[-4:] for k, v in raising.items()})) == []


def test_errors_come_first():
    one_answer = {"heldout_commonest": checks(*[1.0] * 5), **LOOKED}
    found = find_alarms(make_history(invalid=[0.3] * 20, **one_answer))
    assert [one.name for one in found] == ["constant_answers", "invalid"]
