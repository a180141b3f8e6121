"""When a loop trains, looks again, waits or goes on."""

from dataclasses import replace

import pytest
from small_task import LORA, SmallConfig

from groupwise.learning import LoopSettings, RoundSettings, Standing, choose_next

SETTINGS = LoopSettings(every=10, look_every=4, life=3)
IDLE = Standing(0, 0, 0, is_unfinished=False, certificate=None, is_pending=False)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "wait"),
        ({"num_new": 9}, "wait"),
        ({"num_new": 10}, "train"),
        ({"num_new": 10, "is_unfinished": True}, "finish"),
        ({"num_new_sessions": 9}, "wait"),
        ({"is_pending": True, "num_new_sessions": 3}, "wait"),
        ({"is_pending": True, "num_new_sessions": 4}, "look"),
        ({"is_pending": True, "num_new": 29}, "wait"),
        ({"is_pending": True, "num_new": 30}, "train"),
        ({"is_pending": True, "num_new": 30, "num_new_sessions": 4}, "look"),
    ],
)
def test_what_a_loop_does_next(changes: dict[str, object], expected: str) -> None:
    assert choose_next(replace(IDLE, **changes), SETTINGS) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "wait"),
        ({"num_new": 1}, "train"),
        ({"num_new": 1, "is_pending": True}, "train"),
        ({"num_new": 1, "is_unfinished": True}, "finish"),
        ({"is_pending": True, "num_new_sessions": 4}, "look"),
    ],
)
def test_a_round_on_request_needs_one_new_label(changes: dict[str, object], expected: str) -> None:
    assert choose_next(replace(IDLE, **changes), SETTINGS, is_wanted=True) == expected


def test_labels_are_taught_as_the_origin_taught_in_one_epoch() -> None:
    origin = SmallConfig(**LORA)
    assert origin.sft is not None
    assert origin.sft.learning_rate != origin.grpo.learning_rate
    found = RoundSettings().choose_sft(origin)
    assert found is not None
    assert (found.epochs, found.learning_rate) == (1, origin.sft.learning_rate)
    assert found.trainable == origin.sft.trainable
