"""Pairs of a screenshot and a task, on-task or off-task, made by crossing sessions' tasks.

Screens that carry a label are used as they are. For the others every task text stands in as many
on-task as off-task pairs where the activities allow it, so that a text alone says nothing about
the label. Nothing here looks at pictures or builds prompts.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from groupwise.core import ConfigError, DataError, derive_seed
from groupwise_recipes.on_task.screenshots import LABELS, Screenshot

PairLabel = Literal["on-task", "off-task"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A screenshot and a task to judge it against.

    Attributes:
        screen: the screenshot; its own ``task`` is what its person works on.
        task: the task of this pair.
        task_activity: activity of the task, or None.
        label: whether the screenshot is on-task for the task; None where it is asked.
        task_session: session the task comes from.
    """

    screen: Screenshot
    task: str
    task_activity: str | None
    label: PairLabel | None
    task_session: str


def make_pairs(
    screens: Sequence[Screenshot],
    *,
    seed: int,
    pairs_per_screen: int = 2,
    on_tasks: Literal["own", "activity"] = "own",
) -> list[Pair]:
    """Return labelled pairs, the same for any order of ``screens``; pairs of a screen together.

    Of every screen without a label, half the pairs are on-task; of an odd number, one more is
    on for every second screen and off for the others. On-task pairs have the screen's own task;
    with ``on_tasks="activity"`` every second one has the task of another session with the same
    activity, if there is one. Off-task pairs have the task of a session with another activity
    (of any other session where an activity is not known), never the same text twice for one
    screen. An on-task pair is repeated if ``pairs_per_screen`` is above 3. Tasks come from the
    screens given and nowhere else: split first.

    Raises:
        ConfigError: if ``pairs_per_screen`` is below 1 or ``on_tasks`` is unknown.
        DataError: if a screen has too few tasks of other activities to be crossed with.
    """
    if pairs_per_screen < 1:
        raise ConfigError("pairs_per_screen is too small", got=pairs_per_screen, expected=">= 1")
    if on_tasks not in ("own", "activity"):
        raise ConfigError("on_tasks is unknown", got=on_tasks, expected="own or activity")
    ordered = sorted(screens, key=lambda screen: _rank_screen(screen, seed))
    pairs: list[Pair] = []
    for screen in ordered:
        if screen.label is not None and screen.label not in LABELS:
            got = screen.label
            raise DataError("a label is outside the set", got=got, expected="on-task, off-task")
        if screen.label is not None:
            pairs.append(_join(screen, screen, screen.label))
    free = [screen for screen in ordered if screen.label is None]
    crossing = _Crossing(free)
    for turn in range(pairs_per_screen // 2):
        rng = random.Random(derive_seed(seed, "pairs", turn))
        pairs += _match_tasks(free, turn, rng) if on_tasks == "activity" else _keep_tasks(free)
        pairs += crossing.cross(free, free, rng)
    if pairs_per_screen % 2:
        rng = random.Random(derive_seed(seed, "pairs", "odd"))
        pairs += _keep_tasks(free[::2])
        pairs += crossing.cross(free[1::2], free[::2], rng)
    return sorted(pairs, key=lambda pair: _rank_screen(pair.screen, seed))


def _rank_screen(screen: Screenshot, seed: int) -> tuple[int, str, str, str, str]:
    """Return a key for an order that depends on the seed but not on the order of rows."""
    identity = (screen.picture.digest, screen.session, screen.task)
    return (derive_seed(seed, "screen", *identity), *identity, str(screen.picture.path))


def _join(screen: Screenshot, donor: Screenshot, label: str) -> Pair:
    return Pair(screen, donor.task, donor.activity, cast("PairLabel", label), donor.session)


def _keep_tasks(screens: Sequence[Screenshot]) -> list[Pair]:
    return [_join(screen, screen, "on-task") for screen in screens]


def _match_tasks(screens: Sequence[Screenshot], turn: int, rng: random.Random) -> list[Pair]:
    """Return on-task pairs in which every second screen has a task of its activity."""
    movers: dict[str, list[Screenshot]] = defaultdict(list)
    pairs: list[Pair] = []
    for position, screen in enumerate(screens):
        if screen.activity is not None and (position + turn) % 2:
            movers[screen.activity].append(screen)
        else:
            pairs.append(_join(screen, screen, "on-task"))
    for activity in sorted(movers):
        # Each session's screens stand together, so that a shift changes the session.
        sessions = sorted({screen.session for screen in movers[activity]})
        rng.shuffle(sessions)
        places = {session: place for place, session in enumerate(sessions)}
        group = sorted(movers[activity], key=lambda screen, at=places: at[screen.session])
        shift = max(Counter(screen.session for screen in group).values())
        donors = group[shift:] + group[:shift]
        pairs += [_join(s, donor, "on-task") for s, donor in zip(group, donors, strict=True)]
    return pairs


class _Crossing:
    """Gives screens the tasks of others, each task as often as it is handed in.

    A random assignment is mended by swaps; as long as no activity has more than half of the
    screens such a swap exists, and the counts of tasks stay exact.
    """

    def __init__(self, screens: Sequence[Screenshot]) -> None:
        self._pool = list(screens)
        self._texts = {screen.task: " ".join(screen.task.casefold().split()) for screen in screens}
        self._met: set[tuple[Screenshot, str]] = set()
        self._uses: Counter[str] = Counter()

    def cross(
        self, screens: Sequence[Screenshot], donors: Sequence[Screenshot], rng: random.Random
    ) -> list[Pair]:
        """Return one off-task pair per screen; ``donors`` are at least as many as ``screens``."""
        given = rng.sample(list(donors), len(donors))
        order = rng.sample(range(len(screens)), len(screens))
        is_mended = [self._mend(index, screens, given, order) for index in range(len(screens))]
        pairs: list[Pair] = []
        for screen, donor, is_good in zip(screens, given, is_mended, strict=False):
            chosen = donor if is_good else self._find_donor(screen, rng)
            self._met.add((screen, self._texts[chosen.task]))
            self._uses[self._texts[chosen.task]] += 1
            pairs.append(_join(screen, chosen, "off-task"))
        return pairs

    def _accepts(self, screen: Screenshot, donor: Screenshot) -> bool:
        text = self._texts[donor.task]
        return (
            screen.session != donor.session
            and (screen.activity is None or screen.activity != donor.activity)
            and text != self._texts[screen.task]
            and (screen, text) not in self._met
        )

    def _mend(
        self,
        index: int,
        screens: Sequence[Screenshot],
        given: list[Screenshot],
        order: Sequence[int],
    ) -> bool:
        """Make ``given[index]`` fit its screen, if needed by a swap that suits both sides."""
        screen, donor = screens[index], given[index]
        if self._accepts(screen, donor):
            return True
        for other in order:
            if self._accepts(screen, given[other]) and self._accepts(screens[other], donor):
                given[index], given[other] = given[other], donor
                return True
        return False

    def _find_donor(self, screen: Screenshot, rng: random.Random) -> Screenshot:
        """Return a donor whose task was used least; only where no swap can keep counts exact."""
        fitting = [donor for donor in self._pool if self._accepts(screen, donor)]
        if not fitting:
            raise DataError(
                f"no further off-task task for {screen.picture.path.name} of session "
                f"{screen.session} (activity {screen.activity})",
                fix="give sessions with other activities, or lower pairs_per_screen",
            )
        fewest = min(self._uses[self._texts[donor.task]] for donor in fitting)
        return rng.choice([d for d in fitting if self._uses[self._texts[d.task]] == fewest])
