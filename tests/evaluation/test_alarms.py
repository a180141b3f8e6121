"""Every alarm with a series that raises it, and near ones that do not."""

from collections.abc import Sequence

import pytest

from groupwise.evaluation.alarms import History, Series, find_alarms, find_stop
from groupwise.evaluation.report.phrases import Phrases

Columns = dict[str, Sequence[float | None]]


def make_history(**columns: Sequence[float | None]) -> History:
    """Rows at steps 1, 2, 3 …; None leaves a value out; ``heldout_x`` stands for ``heldout/x``."""
    named = {name.replace("heldout_", "heldout/"): values for name, values in columns.items()}
    return History(
        {"step": place + 1, **{k: v[place] for k, v in named.items() if place < len(v)}}
        for place in range(max(map(len, columns.values())))
    )


def name_alarms(history: History) -> list[str]:
    return [alarm.name for alarm in find_alarms(history)]


def checks(*values: float) -> list[float | None]:
    """One held-out check every fourth row."""
    return [value for check in values for value in (None, None, None, check)]


RISING = [0.5 + 0.01 * step for step in range(20)]
FALLING = checks(0.80, 0.90, 0.85, 0.70, 0.72)
SLIGHT = checks(0.80, 0.90, 0.88, 0.85, 0.85)  # within two standard errors, 0.06, of 96 items
LOOKED = {"heldout_majority": checks(*[0.5] * 5), "heldout_n": checks(*[96] * 5)}
CONSTANT = {**LOOKED, "heldout_commonest": checks(*[0.99] * 5)}
NONE_EARNED = {"num_groups": [8] * 8, "num_dead_groups": [8] * 8, "reward": [0.0] * 8}
WARM = [0.5, *[1.0] * 19]
JUMPS = [0.02] * 6 + [0.5] + [0.02] * 6 + [0.8] + [0.02] * 3
RAISED: dict[str, list[Columns]] = {
    "all_groups_dead": [{"dead_groups": [0.4, 1, 1, 1, 1, 1]}],
    "reward_up_heldout_down": [
        {"reward": RISING, "heldout_accuracy": FALLING},
        {"reward": RISING, "heldout_exact": FALLING},
        {"reward": RISING, "heldout_accuracy": SLIGHT, "heldout_n": checks(*[960] * 5)},
    ],
    "kl_jump": [{"kl": [0.03] * 12 + [0.16]}, {"kl": [0.0] * 5 + [0.9]}, {"kl": JUMPS}],
    "entropy_collapse": [
        {"entropy": [1.0] * 5 + [0.19] * 5, "reward": [0.7] * 10},
        {"entropy": [1.0] * 5 + [0.01] * 5, "reward": [0.97] * 10},
    ],
    "invalid": [{"invalid": [0.21] * 5}],
    "loss_not_falling": [
        {"loss": [3.23] * 10 + [3.40] * 10, "learning_rate": WARM},
        {"loss": [0.71] * 20},
    ],
    "constant_answers": [CONSTANT],
    "nothing_earned": [{**NONE_EARNED, "dead_groups": [1] * 8}],
}
QUIET: dict[str, Columns] = {
    "one row without a dead group": {"dead_groups": [0.4, 1, 1, 0.99, 1, 1]},
    "a reward that stays": {"reward": [0.5] * 20, "heldout_accuracy": FALLING},
    "a fall that chance explains": {
        "reward": RISING,
        "heldout_accuracy": SLIGHT,
        "heldout_n": checks(*[96] * 5),
    },
    "one low look, the last": {"reward": RISING, "heldout_accuracy": checks(0.8, 0.9, 0.5)},
    "low looks before": {"reward": RISING, "heldout_accuracy": checks(0.8, 0.9, 0.7, 0.7, 0.9)},
    "a small rise of kl": {"kl": [0.03] * 12 + [0.14]},
    "too few rows before a jump": {"kl": [0.0] * 4 + [0.9]},
    "a jump below what counts": {"kl": [0.001] * 10 + [0.09]},
    "entropy that is left": {"entropy": [1.0] * 5 + [0.21] * 5, "reward": [0.7] * 10},
    "everything is solved": {"entropy": [1.0] * 5 + [0.01] * 5, "reward": [0.99] * 10},
    "entropy without rewards": {"entropy": [1.0] * 5 + [0.01] * 5},
    "few invalid answers": {"invalid": [0.19] * 5},
    "a loss that falls": {"loss": [3.23] * 10 + [3.10] * 10, "learning_rate": WARM},
    "a loss that was low from the start": {"loss": [0.69] * 20},
    "the loss of rewards": {"loss": [3.0] * 20, "reward": [0.5] * 20},
    "a rate that still rises": {"loss": [3.0] * 20, "learning_rate": RISING},
    "too few steps of sft": {"loss": [3.0] * 19},
    "another answer at the last look": {**LOOKED, "heldout_commonest": checks(*[0.99] * 4, 0.97)},
    "one answer that is nearly always right": {**CONSTANT, "heldout_majority": checks(*[0.91] * 5)},
    "little was asked": {**CONSTANT, "heldout_n": checks(*[19] * 5)},
    "one group that differed": {**NONE_EARNED, "num_dead_groups": [8] * 7 + [7]},
}


@pytest.mark.parametrize(
    ("name", "columns"), [(name, one) for name, some in RAISED.items() for one in some]
)
def test_an_alarm_is_raised_and_says_its_numbers_and_what_to_do(name, columns):
    history = make_history(**columns)
    (alarm,) = find_alarms(history)
    assert alarm.name == name
    assert alarm.step > 0
    for language in ("en", "zh"):
        said = Phrases(language).say(alarm.said) + Phrases(language).say(alarm.advice)
        assert "{" not in said
        assert said.isascii() == (language == "en") or "\u00a0" in said
        assert any(digit in said for digit in "0123456789")


@pytest.mark.parametrize("why", QUIET)
def test_near_series_raise_nothing(why):
    assert name_alarms(make_history(**QUIET[why])) == []


def test_too_few_rows_raise_nothing():
    for name, (raising, *_) in RAISED.items():
        if name not in ("reward_up_heldout_down", "kl_jump", "nothing_earned"):
            assert name_alarms(make_history(**{k: v[-4:] for k, v in raising.items()})) == []


def test_the_heldout_alarm_says_since_when_and_by_how_much():
    (alarm,) = find_alarms(make_history(reward=RISING, heldout_accuracy=FALLING))
    assert alarm.step == 20
    assert alarm.numbers == pytest.approx(
        {"best": 0.9, "best_step": 8, "now": 0.72, "reward_then": 0.55, "reward_now": 0.67}
    )
    assert Phrases("en").say(alarm.said) == (
        "since step 8 the mean reward rose from 0.55 to 0.67, but held-out accuracy fell from "
        "0.9 to 0.72"
    )


def test_a_jump_is_the_last_one_and_counts_all():
    (alarm,) = find_alarms(make_history(kl=JUMPS))
    assert (alarm.step, alarm.numbers["value"], alarm.numbers["num_jumps"]) == (14, 0.8, 2)


def test_a_loss_is_not_judged_before_half_of_the_steps():
    flat = make_history(loss=[3.0] * 20)
    assert [a.name for a in find_alarms(flat, num_steps=40)] == ["loss_not_falling"]
    assert find_alarms(flat, num_steps=41) == ()


def test_one_answer_to_everything_is_an_alarm_early_and_the_end_from_half_of_the_steps_on():
    history = make_history(**CONSTANT)
    (early,), (late,) = find_alarms(history, num_steps=41), find_alarms(history, num_steps=40)
    assert (early.name, early.level) == ("constant_answers", "warning")
    assert (late.name, late.level) == ("constant_answers", "error")
    assert find_stop(history, num_steps=41) is None
    assert find_stop(history, num_steps=40) == late


@pytest.mark.parametrize(
    ("num_groups", "reward", "stops"), [(60, 0.0, True), (59, 0.0, False), (60, 1.0, False)]
)
def test_groups_that_never_differ_stop_a_training_unless_all_is_earned_or_they_are_few(
    num_groups, reward, stops
):
    history = make_history(num_groups=[num_groups], num_dead_groups=[num_groups], reward=[reward])
    assert (find_stop(history, num_steps=1000) is not None) == stops


def test_what_a_solved_training_raises_does_not_stop_it():
    history = make_history(dead_groups=[1.0] * 30, grad_norm=[0.0] * 30, reward=[1.0] * 30)
    assert name_alarms(history) == ["all_groups_dead"]
    assert find_stop(history, num_steps=30) is None


def test_errors_come_first():
    found = find_alarms(make_history(invalid=[0.3] * 20, **CONSTANT))
    assert [one.name for one in found] == ["constant_answers", "invalid"]


def test_rows_become_series_of_their_numbers():
    rows = [
        {"step": 1, "loss": 2, "note": "x", "is_last": True, "kl": None},
        {"step": 4, "loss": 1.5, "kl": 0.1, "reward": float("nan"), "entropy": float("inf")},
        {"loss": 3.0},
        {"step": "2", "loss": 3.0},
        {"step": 9, "kl": 0},
    ]
    history = History(rows)
    assert history.read("loss") == Series("loss", (1, 4), (2.0, 1.5))
    assert history.read("kl") == Series("kl", (4, 9), (0.1, 0.0))
    assert (history.last_step, history.is_rewarded, history.is_empty) == (9, False, False)
    assert not history.read("reward")
    assert [series.key for series in history.list_series()] == ["loss", "kl"]
    assert History().is_empty


def test_series_stand_in_the_order_people_look_at_them():
    keys = "tokens_per_s zeta loss heldout/n heldout/invalid heldout/accuracy reward/format"
    keys += " reward/format_std reward/brief reward epoch skipped_rows step"
    history = History([dict.fromkeys(keys.split(), 1)])
    assert [series.key for series in history.list_series()] == [
        *("reward", "reward/brief", "reward/format", "heldout/accuracy", "heldout/invalid"),
        *("loss", "tokens_per_s", "zeta"),
    ]
    assert history.is_rewarded
