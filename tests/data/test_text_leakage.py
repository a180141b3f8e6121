from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.core import DataError, read_jsonl
from groupwise.data import Pair, Screenshot, make_pairs, measure_text_leakage

Make = Callable[..., Screenshot]


def test_texts_that_give_the_label_away_are_found(make_screen: Make) -> None:
    def pair(number: int) -> Pair:
        label = "on-task" if number % 2 else "off-task"
        text = f"{'work' if number % 2 else 'play'} number {number}"
        return Pair(make_screen(f"{number}.png"), text, None, label, "s")

    leak = measure_text_leakage([pair(n) for n in range(40)], [pair(n) for n in range(40, 60)])
    assert (leak.accuracy, leak.majority, leak.ceiling) == (1.0, 0.5, 1.0)
    assert (leak.num_train, leak.num_test) == (40, 20)


def test_the_ceiling_is_the_best_rule_from_text_to_label(make_screen: Make) -> None:
    texts = [("a", "on-task")] * 3 + [("a", "off-task"), ("b", "off-task"), ("b", "off-task")]
    pairs = [Pair(make_screen(), text, None, label, "s") for text, label in texts]
    assert measure_text_leakage(pairs, pairs).ceiling == pytest.approx(5 / 6)


def test_pairs_of_the_real_set_say_nothing_by_their_text(
    make_screen: Make, screenagent: Path
) -> None:
    rows = read_jsonl(screenagent / "index.jsonl")
    sides: dict[bool, list[Screenshot]] = {True: [], False: []}
    for r in rows:
        if r["fold"] in (0, 1, 2):
            fields = {"session": r["session"], "task": r["task_en"], "activity": r["activity"]}
            sides[r["fold"] == 2].append(make_screen(r["image"], **fields))
    train, test = (make_pairs(sides[is_test], seed=0) for is_test in (False, True))
    leak = measure_text_leakage(train, test)
    assert (leak.num_train, leak.num_test) == (638, 382)
    assert leak.accuracy == pytest.approx(0.5, abs=0.02)
    assert leak.ceiling == 0.5


def test_pairs_that_cannot_be_learned_from_are_refused(make_screen: Make) -> None:
    pair = Pair(make_screen(), "t", None, "on-task", "s")
    other = Pair(make_screen(), "t", None, "off-task", "s")
    with pytest.raises(DataError, match="training pairs of both labels"):
        measure_text_leakage([pair], [pair])
    with pytest.raises(DataError, match="0 test pairs"):
        measure_text_leakage([pair, other], [])
