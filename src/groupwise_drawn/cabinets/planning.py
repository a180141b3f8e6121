"""What a set of groups is made of: missions, verdicts, numbers of photos and the photos' states.

Each mission's groups are dealt in blocks in which every number of photos has its share of passes,
so that neither tells the verdict; a small set is the beginning of a larger one of the same seed.
"""

import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from groupwise.core import derive_seed
from groupwise_drawn.cabinets.vocabulary import State

__all__ = ["PHOTO_COUNTS", "GroupPlan", "deal_states", "plan_group"]

PHOTO_COUNTS = (2, 3, 4, 5)
GROUPS_PER_COUNT = 4
UNCONFIRMED_SHARE = 0.3
"""Of the groups that fail: nothing is wrong, but the key thing cannot be confirmed."""
_FIRST_DAY = date(2025, 1, 1)
_OTHERS_OF_PASS: dict[State, int] = {"right": 40, "unclear": 40, "irrelevant": 20}
_OTHERS_OF_FAULT: dict[State, int] = {"right": 35, "wrong": 30, "unclear": 20, "irrelevant": 15}
_OTHERS_OF_UNCONFIRMED: dict[State, int] = {"unclear": 60, "irrelevant": 40}


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group before it is drawn; ``states`` are those of its photos, in order."""

    group_id: str
    mission: str
    passes: bool
    states: tuple[State, ...]
    seed: int


def plan_group(index: int, *, seed: int, missions: Sequence[str], pass_share: float) -> GroupPlan:
    """Plan the group with that number; missions take turns in an order dealt anew each time."""
    block, turn = divmod(index, len(missions))
    order = random.Random(derive_seed(seed, "missions", block)).sample(missions, len(missions))
    mission = order[turn]
    num_photos, passes = _deal_verdict(block, seed, mission, pass_share)
    own_seed = derive_seed(seed, "group", index)
    day = _FIRST_DAY + timedelta(days=random.Random(own_seed).randrange(365))
    states = deal_states(num_photos, passes, random.Random(derive_seed(own_seed, "states")))
    group_id = f"QC-DRAWN-{day:%Y%m%d}-{index:07d}"
    return GroupPlan(group_id, mission, passes, states, own_seed)


def deal_states(num_photos: int, passes: bool, rng: random.Random) -> tuple[State, ...]:
    """Deal the photos' states so that the rule gives this verdict."""
    first: State = "right" if passes else "wrong"
    others = _OTHERS_OF_PASS if passes else _OTHERS_OF_FAULT
    if not passes and rng.random() < UNCONFIRMED_SHARE:
        first, others = "unclear", _OTHERS_OF_UNCONFIRMED
    rest = rng.choices(tuple(others), tuple(others.values()), k=num_photos - 1)
    return tuple(rng.sample([first, *rest], num_photos))


def _deal_verdict(number: int, seed: int, mission: str, pass_share: float) -> tuple[int, bool]:
    """Return how many photos the mission's group of that number has, and whether it passes."""
    block, place = divmod(number, len(PHOTO_COUNTS) * GROUPS_PER_COUNT)
    rng = random.Random(derive_seed(seed, "verdicts", mission, block))
    hand: list[tuple[int, bool]] = []
    for count in PHOTO_COUNTS:
        start = rng.random()
        steps = [math.floor(start + k * pass_share) for k in range(GROUPS_PER_COUNT + 1)]
        hand += [(count, after > before) for before, after in itertools.pairwise(steps)]
    rng.shuffle(hand)
    return hand[place]
