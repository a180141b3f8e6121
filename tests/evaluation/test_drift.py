"""Pictures like those of the training raise an alarm as seldom as is said; others raise it."""

import numpy as np
import pytest
from PIL import Image

from groupwise.core import DataError
from groupwise.evaluation import ALARM_LEVEL, DriftReference, fit_reference
from groupwise.evaluation.drift import MIN_HELD_OUT


def draw(folder, num_pictures, *, seed, base=(60, 90, 120)):
    """Write pictures of a few kinds, each with its own shades."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number in range(num_pictures):
        colours = np.asarray(base)[None, None] + 40 * (number % 3) + rng.normal(0, 12, (24, 32, 3))
        path = folder / f"{number}.png"
        Image.fromarray(np.clip(colours, 0, 255).astype(np.uint8)).resize((64, 48)).save(path)
        paths.append(path)
    return paths


@pytest.fixture
def reference(tmp_path):
    train = draw(tmp_path / "train", 60, seed=1)
    return fit_reference(train, draw(tmp_path / "held", 40, seed=2), seed=0)


def test_pictures_like_before_are_as_far_away_as_before(reference, tmp_path):
    new = [reference.measure(path) for path in draw(tmp_path / "new", 100, seed=3)]
    gap, p_value = reference.compare(new)
    assert p_value > ALARM_LEVEL
    assert gap < 0.3


def test_other_pictures_are_farther_away(reference, tmp_path):
    others = draw(tmp_path / "others", 100, seed=3, base=(160, 20, 20))
    gap, p_value = reference.compare([reference.measure(path) for path in others])
    assert p_value <= ALARM_LEVEL
    assert gap == 1.0


def test_a_picture_of_the_training_is_near_whatever_its_size(reference, tmp_path):
    path = draw(tmp_path / "one", 1, seed=1)[0]
    before = reference.measure(path)
    assert 0 <= before < 0.1
    Image.open(path).resize((640, 480)).save(tmp_path / "large.png")
    assert reference.measure(tmp_path / "large.png") == pytest.approx(before, abs=0.02)


@pytest.mark.parametrize(
    "num_held_out",
    [20, *(pytest.param(num, marks=pytest.mark.slow) for num in (50, 300))],
)
def test_false_alarms_are_as_rare_as_is_said(num_held_out):
    rng = np.random.default_rng(num_held_out)
    num_windows, none = 4000, np.zeros((1, 1))
    alarms = 0
    for _ in range(num_windows):
        distances = rng.gamma(3.0, 0.05, num_held_out + 200)
        found = DriftReference(none, distances[:num_held_out]).compare(distances[num_held_out:])
        alarms += found[1] <= ALARM_LEVEL
    # 4 are expected at most; more than 12 would be chance once in thousands of times.
    assert alarms <= 12


def test_too_few_pictures_are_no_reference(tmp_path):
    train, held_out = draw(tmp_path / "a", 16, seed=1), draw(tmp_path / "b", MIN_HELD_OUT, seed=2)
    assert fit_reference(train, held_out, seed=0) is not None
    assert fit_reference(train[1:], held_out, seed=0) is None
    assert fit_reference(train, held_out[1:], seed=0) is None
    held_out[0].write_bytes(b"no picture")
    with pytest.raises(DataError):
        fit_reference(train, held_out, seed=0)
