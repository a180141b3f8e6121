"""Verdicts on candidates: both claims need evidence, and rounds share one level."""

import itertools
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageChops
from scipy.stats import ttest_1samp

from groupwise.core import DataError
from groupwise.learning.evidence import bound_gain_below, weigh_gains
from groupwise.learning.promotion import (
    Sessions,
    find_level,
    is_promoted,
    judge_candidate,
    score_loss,
)
from groupwise.learning.settings import VariantSettings
from groupwise.learning.variants import load_thesaurus, make_variants, replace_words
from groupwise.serving import Request


def make(num: int, gain: float, changed: float = 0.1) -> Sessions:
    """Sessions of four items, a share of which is answered otherwise."""
    random = np.random.default_rng(3)
    values = random.choice(
        [-1.0, 0.0, 1.0],
        p=[(changed - gain) / 2, 1 - changed, (changed + gain) / 2],
        size=(num, 4),
    )
    return Sessions(values.sum(axis=1), np.full(num, 4.0))


BETTER, ALIKE, WORSE = make(80, 0.3, 0.3), make(1500, 0.0), make(1500, -0.08)


def take(sessions: Sessions, num: int) -> Sessions:
    return Sessions(sessions.sums[:num], sessions.sizes[:num])


def judge(corrected: Sessions, held_out: Sessions):
    return judge_candidate(corrected, held_out, level=0.025)


def test_a_gain_that_costs_nobody_is_promoted():
    found = judge(BETTER, ALIKE)
    assert found.verdict == "promoted"
    assert found.corrected_low > 0
    assert found.better >= 40
    assert found.not_worse <= 0.025


@pytest.mark.parametrize(
    ("corrected", "held_out", "verdict"),
    [
        (BETTER, WORSE, "rejected"),
        (Sessions(-BETTER.sums, BETTER.sizes), ALIKE, "rejected"),
        (BETTER, take(ALIKE, 100), "undecided"),
        (take(BETTER, 5), ALIKE, "undecided"),
        (take(BETTER, 0), ALIKE, "undecided"),
        (BETTER, take(ALIKE, 0), "undecided"),
    ],
)
def test_neither_claim_makes_up_for_the_other(corrected, held_out, verdict):
    assert judge(corrected, held_out).verdict == verdict


@given(st.floats(0, 1e6), st.floats(0, 1))
def test_both_need_the_whole_level(better, not_worse):
    assert is_promoted(better, not_worse, 0.01) == (better >= 100 and not_worse <= 0.01)


@given(st.integers(1, 400), st.floats(0.01, 0.5))
def test_sessions_without_a_loss_tell_no_more_than_they_can(num, margin):
    """The share of one more that loses all is above the margin with (1 - margin) ** num."""
    alike = Sessions(np.zeros(num), np.ones(num))
    assert score_loss(alike, margin) == pytest.approx((1 - margin) ** num, abs=0.01)
    assert score_loss(Sessions(-np.ones(num), np.ones(num)), margin) == 1


def draw_leaning(random, sizes):
    """One in ten items is answered otherwise, to one side in a session."""
    changed = random.binomial(sizes.astype(int), 0.1)
    lean = np.clip(0.5 - 0.1 + random.choice((-0.3, 0.3), len(sizes)), 0, 1)
    return 2.0 * random.binomial(changed, lean) - changed


def draw_whole(random, sizes):
    """One in fifty sessions is lost as a whole, and nothing else changes."""
    return np.where(random.random(len(sizes)) < 0.02, -sizes, 0.0)


def draw_paid_back(random, sizes):
    """One in twenty-five sessions is lost as a whole, and every other one gains a little."""
    return np.where(random.random(len(sizes)) < 0.04, -sizes, 0.02 / 0.96 * sizes)


@pytest.mark.parametrize("draw", [draw_leaning, draw_whole, draw_paid_back])
@pytest.mark.parametrize("num", [307, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_loss_of_the_margin_is_let_through_no_oftener_than_it_says(draw, num: int):
    random = np.random.default_rng(0)
    sizes = random.integers(1, 13, num).astype(float)
    p_values = np.array(
        [score_loss(Sessions(draw(random, sizes), sizes), 0.02, num_draws=999) for _ in range(1000)]
    )
    for level in (0.05, 0.025, 0.01):
        assert (p_values <= level).mean() <= level + 3 * (level / len(p_values)) ** 0.5


def test_students_t_lets_through_what_loses_whole_sessions():
    """Three times as often as it says, and more: so that the test above can fail."""
    random = np.random.default_rng(0)
    p_values = []
    for _ in range(1000):
        gains = draw_whole(random, np.ones(307))
        p_values.append(ttest_1samp(gains, -0.02, alternative="greater").pvalue)
    assert (np.array(p_values) <= 0.01).mean() > 0.03


def test_rounds_share_one_level():
    assert find_level(1) == 0.025
    levels = [find_level(candidate) for candidate in range(1, 10_000)]
    assert 0.0499 < sum(levels) <= 0.05


GAINS = st.lists(st.floats(-1, 1), min_size=1, max_size=30).map(np.array)
MARGINS = st.floats(-0.9, 0.9)


def expect_wealth(low: float, high: float, share: float, margin: float) -> float:
    """The expected wealth after four sessions that gain ``high`` with this probability."""
    draws = np.array(list(itertools.product((low, high), repeat=4)))
    num_high = (draws == high).sum(axis=1)
    chances = share**num_high * (1 - share) ** (4 - num_high)
    return float((chances * weigh_gains(draws, margin)).sum())


@given(st.floats(-1, 0), st.floats(0.01, 1), st.floats(0.01, 0.99))
def test_against_the_true_mean_bets_are_fair_and_against_more_they_lose(low, high, share):
    mean = share * high + (1 - share) * low
    if abs(mean) < 0.99:
        assert expect_wealth(low, high, share, mean) == pytest.approx(1, rel=1e-9)
        above = mean + 0.1 * (1 - abs(mean))
        assert expect_wealth(low, high, share, above) < 1 - 1e-6


@given(GAINS, MARGINS, st.randoms())
def test_the_order_of_sessions_does_not_matter(gains, margin, random):
    shuffled = gains.tolist()
    random.shuffle(shuffled)
    assert weigh_gains(shuffled, margin) == pytest.approx(weigh_gains(gains, margin), rel=1e-9)


@given(GAINS, MARGINS, st.floats(0.001, 0.05))
def test_more_is_known_of_a_lower_margin(gains, margin, step):
    assert weigh_gains(gains, margin - step) >= weigh_gains(gains, margin) * (1 - 1e-9)


@given(GAINS, st.floats(0.001, 0.5))
def test_the_lower_end_is_where_the_evidence_is_enough(gains, level):
    low = bound_gain_below(gains, level)
    assert -1 <= low <= gains.mean() + 1e-9
    if low > -0.999:
        assert weigh_gains(gains, low - 1e-6) >= (1 - 1e-9) / level
    assert weigh_gains(gains, min(low + 1e-6, 0.999)) <= (1 + 1e-3) / level


def test_without_sessions_nothing_is_known():
    assert weigh_gains([]) == 1
    assert bound_gain_below([], 0.05) == -1


@pytest.mark.parametrize(
    ("gains", "margin"), [([1.1], 0), ([np.nan], 0), ([0.5], 1.0), ([0.5], -1)]
)
def test_what_is_out_of_range_is_refused(gains, margin):
    with pytest.raises(ValueError, match=r"in \[-1, 1\]|in \(-1, 1\)"):
        weigh_gains(gains, margin)


def test_looking_after_every_session_does_not_spend_the_level():
    """A one-sided t-interval, looked at as often, is wrong several times as often as it says."""
    random = np.random.default_rng(0)
    gains = random.choice([-0.5, 0.0, 0.5], size=(2000, 150), p=[0.2, 0.6, 0.2])
    looks = np.stack([weigh_gains(gains[:, :num]) for num in range(3, 151, 3)], axis=1)
    assert (looks.max(axis=1) >= 20).mean() < 0.05
    counts = np.arange(1, 151)
    means = gains.cumsum(axis=1) / counts
    errors = np.sqrt(((gains**2).cumsum(axis=1) / counts - means**2) / counts)
    assert ((means > 1.645 * errors) & (counts >= 20)).any(axis=1).mean() > 0.15


def test_a_gain_is_found():
    random = np.random.default_rng(1)
    gains = random.choice([-0.5, 0.0, 0.5], size=(500, 150), p=[0.1, 0.6, 0.3])
    assert (weigh_gains(gains) >= 20).mean() > 0.8


WORDS = sorted(load_thesaurus().others)


@pytest.fixture
def request_(tmp_path: Path) -> Request:
    """A row with a picture and words that have synonyms."""
    picture = tmp_path / "screen.png"
    noise = Image.effect_noise((120, 80), 80).convert("RGB")
    noise.save(picture)
    return Request("answer-1", {"task": "Fix the login form, 修改图片", "user": "fix"}, (picture,))


def _make(request: Request, folder: Path, **changes: object) -> list[Request]:
    folder.mkdir(exist_ok=True)
    settings = VariantSettings(**changes)  # pyright: ignore[reportArgumentType]
    return make_variants(request, worded=("task",), settings=settings, seed=1, folder=folder)


def test_there_are_as_many_as_wanted_each_another_and_the_same_again(
    request_: Request, tmp_path: Path
) -> None:
    found = _make(request_, tmp_path / "a")
    again = _make(request_, tmp_path / "b")
    assert len(found) == 10
    assert len({one.digest() for one in [*found, request_]}) == 11
    assert [one.digest() for one in found] == [one.digest() for one in again]


def test_another_answer_has_other_variants(request_: Request, tmp_path: Path) -> None:
    other = Request("answer-2", request_.row, request_.pictures)
    first, second = _make(request_, tmp_path / "a"), _make(other, tmp_path / "b")
    assert not {one.digest() for one in first} & {one.digest() for one in second}


def test_pictures_are_changed_a_little_and_keep_their_size(
    request_: Request, tmp_path: Path
) -> None:
    source = Image.open(request_.pictures[0])
    for variant in _make(request_, tmp_path / "a"):
        changed = Image.open(variant.pictures[0])
        assert changed.size == source.size
        assert ImageChops.difference(changed, source).getbbox() is not None


def test_only_columns_of_words_are_reworded(request_: Request, tmp_path: Path) -> None:
    found = _make(request_, tmp_path / "a")
    assert {one.row["user"] for one in found} == {"fix"}
    assert any("修改图片" not in one.row["task"] for one in found)
    assert {one.row["task"].split()[0] for one in found} <= {"Fix", "Repair", "Mend"}
    assert len({one.row["task"] for one in found}) > 1


def test_a_text_without_synonyms_has_no_variants(tmp_path: Path) -> None:
    assert _make(Request("x", {"task": "zzz"}), tmp_path / "a") == []


def test_a_broken_picture_is_a_data_error(tmp_path: Path) -> None:
    path = tmp_path / "broken.png"
    path.write_bytes(b"\x89PNG no")
    with pytest.raises(DataError):
        _make(Request("x", {}, (path,)), tmp_path / "a")


@given(text=st.text(max_size=80), seed=st.integers(0, 100))
def test_with_probability_0_no_word_changes(text: str, seed: int) -> None:
    assert replace_words(text, random.Random(seed), probability=0.0) == text


@given(
    parts=st.lists(st.sampled_from([*WORDS, "cat", "的", "login"]), max_size=8),
    seed=st.integers(0, 1000),
)
def test_a_word_becomes_one_of_its_set_and_others_stay(parts: list[str], seed: int) -> None:
    changed = replace_words(" | ".join(parts), random.Random(seed), probability=1.0).split(" | ")
    others = load_thesaurus().others
    for before, after in zip(parts, changed if parts else [], strict=True):
        assert after in others[before] if before in others else after == before


@pytest.mark.parametrize("text", ["password", "prefix the name", "a shoemaker", "Affix"])
def test_parts_of_words_are_no_words(text: str) -> None:
    assert replace_words(text, random.Random(0), probability=1.0) == text


def test_synonyms_are_mutual_and_of_one_set_only() -> None:
    others = load_thesaurus().others
    assert all(word == word.lower() and word not in others[word] for word in others)
    assert all(
        set(others[other]) | {other} == {*others[w], w} for w in others for other in others[w]
    )
    assert all(len(word) > 1 for word in others if not word.isascii())
