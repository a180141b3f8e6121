"""What is counted of an answerer that looks words up, and of one that does not."""

import pytest
import torch

from groupwise.core import Completion, DataError, derive_seed
from groupwise.inference import LocalEngine
from groupwise.models import load_policy
from groupwise_drawn.dialects import Split, read_dialects, write_dialects
from groupwise_recipes.demo_selection.answerer import (
    ANSWERER_FORM,
    AnswererSettings,
    teach_answerer,
)
from groupwise_recipes.demo_selection.demonstration_use import measure_demonstration_use


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    sizes: dict[Split, int] = {"train": 300, "anchors": 20}
    return read_dialects(write_dialects(folder, seed=2, sizes=sizes))


class LookingUp:
    """Says the last word (or, if ``first``, the first) that was shown for dialect and colour."""

    def __init__(self, items, *, first=False):
        self.colors = {item.picture: item.scene.color for item in items}
        self.first = first
        self.asked = []

    def generate(self, examples, *, sampling, num_completions=1, report_progress=None):
        return [[Completion(self.answer(example), ())] for example in examples]

    def label_probabilities(self, examples, *, labels, leads=None, report_progress=None):
        raise NotImplementedError

    def answer(self, example):
        (turn,) = example.prompt
        self.asked.append(turn.pictures)
        words = [part for part in turn.parts if isinstance(part, str)]
        asked = [one.rpartition(" ")[2] for one in words[: len(turn.pictures)]]
        cells = [(name, self.colors[one]) for name, one in zip(asked, turn.pictures, strict=True)]
        told = [word.partition("\n")[0] for word in words[1:]]
        known = [word for cell, word in zip(cells, told, strict=False) if cell == cells[-1]]
        return (known[0] if self.first else known[-1]) if known else "?"


def collect(engine, items):
    figures = measure_demonstration_use(engine, items, form=ANSWERER_FORM, seed=0)
    return {(figure.situation, figure.num_shots): figure for figure in figures}


def test_the_counts_are_those_of_an_answerer_that_looks_up(items):
    figures = collect(LookingUp(items), items)
    assert len(figures) == 1 + 3 * 4 + 3
    for (situation, num_shots), one in figures.items():
        if situation in ("no demonstrations", "none right"):
            assert (one.num_asked, one.num_right, one.num_changed) == (20, 0, 0)
        if situation == "one right":
            assert one.num_asked == one.num_right == one.num_right_reversed > 10
        if situation == "contradicting":
            assert one.num_right == one.num_changed == one.num_asked > 5
            assert one.num_right_reversed == 0
            assert num_shots >= 2
    assert sum(one.num_right for one in figures.values() if one.situation == "random") < 20


def test_an_answerer_that_takes_the_first_word_is_right_when_lists_are_reversed(items):
    one = collect(LookingUp(items, first=True), items)["contradicting", 3]
    assert (one.num_right, one.num_right_reversed) == (0, one.num_asked)


def test_anchors_are_asked_about_behind_train_items(items):
    engine = LookingUp(items)
    figures = measure_demonstration_use(engine, items, form=ANSWERER_FORM, seed=0, num_queries=7)
    splits = {item.picture: item.split for item in items}
    for *shown, query in engine.asked:
        assert splits[query] == "anchors"
        assert {splits[one] for one in shown} <= {"train"}
    assert max(one.num_asked for one in figures) == 7
    assert len({query for *_, query in engine.asked}) == 7


def test_the_right_one_stands_at_every_place(items):
    cells = {item.picture: (item.dialect, item.scene.color) for item in items}
    engine = LookingUp(items)
    collect(engine, items)
    places = {
        [cells[one] for one in shown].index(cells[query])
        for *shown, query in engine.asked
        if len(shown) == 3 and [cells[one] for one in shown].count(cells[query]) == 1
    }
    assert places == {0, 1, 2}


@pytest.mark.slow
def test_a_taught_answerer_uses_demonstrations(tmp_path):
    sizes: dict[Split, int] = {"train": 800, "anchors": 150}
    items = read_dialects(write_dialects(tmp_path / "world", seed=2, sizes=sizes))
    folder = teach_answerer(tmp_path / "answerer", AnswererSettings(), seed=derive_seed(0, "teach"))
    figures = collect(LocalEngine(load_policy(folder, device=torch.device("cpu"))), items)
    for num_shots in (1, 2):
        one = figures["one right", num_shots]
        assert one.num_right >= 0.85 * one.num_asked
    for num_shots in (2, 3):
        one = figures["contradicting", num_shots]
        assert one.num_right >= 0.75 * one.num_asked
    wrong = [one for (situation, _), one in figures.items() if situation == "none right"]
    assert sum(one.num_right for one in wrong) <= 0.15 * sum(one.num_asked for one in wrong)


def test_too_few_items_are_refused(items):
    few = [item for item in items if item.split == "train"]
    with pytest.raises(DataError, match="too few items to ask with demonstrations; got 0 anchors"):
        measure_demonstration_use(LookingUp(items), few, form=ANSWERER_FORM, seed=0)
