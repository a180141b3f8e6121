"""How long is left: shared work counts once, and nothing is said before anything is known."""

from pathlib import Path

import pytest

from groupwise.core import Config, write_json
from groupwise.pipeline import Step
from groupwise.pipeline.sweep import PlannedCell
from groupwise.pipeline.sweep.children import SweepClock


def make_cell(folder: Path, name: str, training: str) -> PlannedCell:
    steps = [Step("train", print), Step("ask", print)]
    return PlannedCell(name, {}, folder / name, Config(), steps, {"train": training, "ask": name})


def finish(cell: PlannedCell, **durations: float) -> PlannedCell:
    for step, duration_s in durations.items():
        write_json(cell.folder / step / "step.json", {"duration_s": duration_s})
    return cell


def test_shared_work_is_estimated_once(tmp_path: Path):
    a, b, c, d = (
        make_cell(tmp_path, name, work) for name, work in zip("abcd", "xxyy", strict=True)
    )
    clock = SweepClock()
    assert clock.estimate_s([a, b, c, d], 1) is None
    clock.add(finish(a, train=100.0, ask=10.0), 115.0)
    # b: ask and what a process takes besides; c and d: one training, two asks.
    assert clock.estimate_s([b, c, d], 1) == pytest.approx((10 + 5) + (100 + 2 * (10 + 5)))
    assert clock.estimate_s([b, c, d], 2) == pytest.approx((15 + 130) / 2)
    assert clock.estimate_s([b], 2) == pytest.approx(15)
    assert clock.estimate_s([], 2) is None


def test_what_was_taken_over_teaches_nothing_about_training(tmp_path: Path):
    a, b = (make_cell(tmp_path, name, "x") for name in "ab")
    c = make_cell(tmp_path, "c", "y")
    clock = SweepClock()
    clock.add(finish(a, train=100.0, ask=10.0), 110.0)
    finish(b, ask=10.0)
    write_json(b.folder / "train" / "step.json", {"duration_s": 1.0, "taken_from": "a"})
    clock.add(b, 10.0)
    assert clock.estimate_s([c], 1) == pytest.approx(110)


def test_work_that_is_being_done_is_counted_until_it_is_done(tmp_path: Path):
    a, b, c = (make_cell(tmp_path, name, work) for name, work in zip("abc", "xxy", strict=True))
    clock = SweepClock()
    assert (clock.count_open(b, [a]), clock.count_open(c, [a])) == (1, 0)
    clock.add(finish(a, train=1.0, ask=1.0))
    assert clock.count_open(b, [a]) == 0
