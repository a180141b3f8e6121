"""What sets are made of: nothing but the photos' states tells the verdict."""

import itertools
import random
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score

from groupwise_drawn.cabinets import CABINET_MISSIONS, judge_descriptions
from groupwise_drawn.cabinets.planning import PHOTO_COUNTS, GroupPlan, deal_states, plan_group
from groupwise_drawn.cabinets.views import choose_view, describe_view
from groupwise_drawn.cabinets.vocabulary import KEY_THINGS, State

STATES: tuple[State, ...] = ("right", "wrong", "unclear", "irrelevant")


def plan_set(num_groups: int, *, seed: int = 1, pass_share: float = 0.5) -> list[GroupPlan]:
    return [
        plan_group(index, seed=seed, missions=CABINET_MISSIONS, pass_share=pass_share)
        for index in range(num_groups)
    ]


def test_missions_counts_and_verdicts_are_balanced():
    plans = plan_set(640)
    cells = Counter((plan.mission, len(plan.states), plan.passes) for plan in plans)
    assert len(cells) == 4 * len(PHOTO_COUNTS) * 2
    assert set(cells.values()) == {20}
    assert len({plan.group_id for plan in plans}) == 640


@pytest.mark.parametrize("pass_share", [0.0, 0.3, 0.55, 0.9, 1.0])
def test_every_number_of_photos_has_its_share_of_passes(pass_share: float):
    found = defaultdict[tuple[str, int], list[bool]](list)
    for plan in plan_set(1600, pass_share=pass_share):
        found[plan.mission, len(plan.states)].append(plan.passes)
    for verdicts in found.values():
        assert len(verdicts) == 100
        assert abs(sum(verdicts) - 100 * pass_share) <= 15


def test_counts_and_missions_do_not_tell_the_verdict():
    plans = plan_set(1000, seed=7)
    labels = np.array([plan.passes for plan in plans])
    features = np.array(
        [
            [plan.mission == name for name in CABINET_MISSIONS]
            + [len(plan.states) == count for count in PHOTO_COUNTS]
            + [len(plan.states) * (plan.mission == name) for name in CABINET_MISSIONS]
            + [index % 2, index / 1000]
            for index, plan in enumerate(plans)
        ],
        dtype=float,
    )
    assert abs(labels.mean() - 0.5) < 0.02
    scores = cross_val_score(LogisticRegression(max_iter=500), features, labels, cv=5)
    assert scores.mean() < 0.54


def test_the_group_before_does_not_tell_the_verdict():
    for mission in CABINET_MISSIONS:
        verdicts = [plan.passes for plan in plan_set(800, seed=4) if plan.mission == mission]
        changes = np.mean([a != b for a, b in itertools.pairwise(verdicts)])
        assert 0.4 < changes < 0.65


def test_neither_a_right_photo_nor_the_lack_of_a_wrong_one_is_enough():
    plans = plan_set(1000, seed=2)
    some_right = np.mean([("right" in plan.states) == plan.passes for plan in plans])
    none_wrong = np.mean([("wrong" not in plan.states) == plan.passes for plan in plans])
    assert 0.6 < some_right < 0.9
    assert 0.6 < none_wrong < 0.9


@given(num_photos=st.integers(1, 9), passes=st.booleans(), seed=st.integers(0, 2**32))
def test_states_give_the_verdict_that_they_were_dealt_for(num_photos: int, passes: bool, seed: int):
    states = deal_states(num_photos, passes, random.Random(seed))
    assert len(states) == num_photos
    assert ("right" in states and "wrong" not in states) == passes


@given(
    mission=st.sampled_from(CABINET_MISSIONS),
    states=st.lists(st.sampled_from(STATES), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
)
def test_the_rule_on_descriptions_agrees_with_the_states(
    mission: str, states: list[State], seed: int
):
    rng = random.Random(seed)
    lines = [describe_view(choose_view(mission, state, rng)) for state in states]
    expected = "right" in states and "wrong" not in states
    assert judge_descriptions(mission, lines) == expected


def test_descriptions_are_short_and_few():
    lines = {
        describe_view(choose_view(mission, state, random.Random(seed)))
        for mission in CABINET_MISSIONS
        for state in STATES
        for seed in range(150)
    }
    assert all(len(line) <= 40 for line in lines)
    assert all(len(line) >= 15 for line in lines - {"无关图片"})
    assert 40 < len(lines) < 70


def test_every_fault_and_every_way_to_see_nothing_occurs():
    rng = random.Random(0)
    for mission, thing in KEY_THINGS.items():
        faults = {choose_view(mission, "wrong", rng).variant for _ in range(60)}
        assert faults == set(thing.wrong)
        unclear = [choose_view(mission, "unclear", rng) for _ in range(80)]
        assert {view.variant for view in unclear if view.covered} == {"right"}
        kinds = {view.kind for view in unclear if not view.covered}
        assert kinds == {"closed"} | {t.kind for n, t in KEY_THINGS.items() if n != mission}
        away = {choose_view(mission, "irrelevant", rng).kind for _ in range(60)}
        assert away == {"floor", "door", "sky"}
