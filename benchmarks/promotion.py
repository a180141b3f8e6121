"""How often a loop of learning promotes what is no better, and how much it takes to see a gain.

    python benchmarks/promotion.py --json benchmarks/results/promotion.json
    python benchmarks/promotion.py --loops 200

A loop has rounds in which corrected sessions come in, with several looks in each; after some rounds
the next candidate takes the place of one that was not promoted. The rule is the library's. Beside
it, on the same loops, what is done today: promote when the 95 % interval of a bootstrap of items,
or of sessions, is above 0 on the corrected items and above the margin on the held-out set, at every
look.

Where people speak of mistakes alone (``tested on mistakes alone``), the sessions are no sample: any
version that answers otherwise looks better there. That is why the library asks about answers that
are drawn before anybody sees them.

In false-promotion loops nothing may be promoted: a candidate answers otherwise than the served
version, no more often right (``alike``), or it is better on corrected sessions and exactly the
margin worse on the held-out set (``paid by others``; ``paid by few`` where it loses whole sessions,
a session in fifty). One in ten items is answered otherwise, and
a session's items go the same way more often than not; a candidate is much like the one before it.
"""

import argparse
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import describe_machine
from groupwise.evaluation.statistics import bound_share
from groupwise.learning.evidence import weigh_gains
from groupwise.learning.promotion import (
    MARGIN,
    Sessions,
    find_level,
    is_promoted,
    score_loss,
)

CHANGED, TILT, KEPT, ITEMS = 0.1, 0.6, 0.5, (1, 12)
RESAMPLES, DRAWS = 400, 4_999
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Loop:
    """What a loop is like.

    Attributes:
        corrected: mean gain of candidates on corrected sessions, in [-1, 1].
        held_out: their mean gain on the held-out set.
        rounds: rounds of corrected sessions.
        sessions: corrected sessions that come in each round.
        looks: looks in each round.
        held_out_items: items of the held-out set, about 6.5 a session.
        life: rounds in which a candidate is looked at before the next one is trained.
        loses_sessions: on the held-out set a session in 1 / margin loses all, and no other changes.
        only_mistakes: people speak of what the served version gets wrong, and of nothing else.
    """

    corrected: float = 0.0
    held_out: float = 0.0
    rounds: int = 10
    sessions: int = 40
    looks: int = 4
    held_out_items: int = 2000
    life: int = 5
    loses_sessions: bool = False
    only_mistakes: bool = field(default=False, repr=False)


def draw_sizes(random: np.random.Generator, num: int) -> Floats:
    """Return items (num,) of sessions."""
    return random.integers(ITEMS[0], ITEMS[1] + 1, num).astype(float)


def draw_sums(random: np.random.Generator, sizes: Floats, gain: float) -> Floats:
    """Return sums (G,) of items' differences: what changes in a session leans to one side."""
    changed = random.binomial(sizes.astype(int), CHANGED)
    lean = (1 + random.choice((-TILT, TILT), len(sizes)) + gain / CHANGED) / 2
    better = random.binomial(changed, np.clip(lean, 0, 1))
    return 2.0 * better - changed


def draw_held_out(random: np.random.Generator, sizes: Floats, loop: Loop) -> Floats:
    """Return sums (H,) of differences on the held-out set."""
    if loop.loses_sessions:
        return np.where(random.random(len(sizes)) < MARGIN, -sizes, 0.0)
    return draw_sums(random, sizes, loop.held_out)


def draw_spoken(random: np.random.Generator, sizes: Floats, loop: Loop) -> Floats:
    """Return the items (G,) that people speak of in sessions with so many."""
    return (
        random.binomial(sizes.astype(int), CHANGED).astype(float) if loop.only_mistakes else sizes
    )


def draw_corrected(random: np.random.Generator, spoken: Floats, loop: Loop) -> Floats:
    """Return sums (G,) of differences on what people speak of.

    Of what is answered otherwise half was right before: so half of the mistakes are right now.
    """
    if loop.only_mistakes:
        return random.binomial(spoken.astype(int), 0.5).astype(float)
    return draw_sums(random, spoken, loop.corrected)


def draw_next(random: np.random.Generator, sessions: Sessions, drawn: Floats) -> Sessions:
    """Return the next candidate, which answers like this one in a part of the sessions."""
    kept = random.random(len(sessions.sizes)) < KEPT
    return Sessions(np.where(kept, sessions.sums, drawn), sessions.sizes)


def bound_items(random: np.random.Generator, sessions: Sessions) -> float:
    """Return the lower end of the 95 % bootstrap interval of items, taken as independent.

    An item gains or loses 1 or nothing; of a session's changes all but a few go one way, so that
    its sum tells them.
    """
    num = sessions.sizes.sum()
    better, worse = np.maximum(sessions.sums, 0).sum(), np.maximum(-sessions.sums, 0).sum()
    shares = np.array([better, worse, num - better - worse]) / num
    counts = random.multinomial(int(num), shares, RESAMPLES)
    return float(np.quantile((counts[:, 0] - counts[:, 1]) / num, 0.025))


def bound_sessions(random: np.random.Generator, sessions: Sessions) -> float:
    """Return the lower end of the 95 % bootstrap interval of sessions."""
    num = len(sessions.sizes)
    weights = random.multinomial(num, np.full(num, 1 / num), RESAMPLES)
    return float(np.quantile((weights @ sessions.sums) / (weights @ sessions.sizes), 0.025))


BOUNDS = {"bootstrap of sessions": bound_sessions, "bootstrap of items": bound_items}
RULES = ("groupwise", *BOUNDS)


def run_loop(random: np.random.Generator, loop: Loop, rules: Sequence[str]) -> dict[str, int]:
    """Return the round in which each rule promotes for the first time; 0 for never."""
    spared, not_worse = dict[str, bool](), 1.0
    found, bounds = dict.fromkeys(rules, 0), {rule: BOUNDS[rule] for rule in rules[1:]}
    sizes = draw_sizes(random, loop.sessions * loop.rounds)
    held_sizes = draw_sizes(random, round(loop.held_out_items / np.mean(ITEMS)))
    sizes = draw_spoken(random, sizes, loop)
    corrected = Sessions(draw_corrected(random, sizes, loop), sizes)
    held_out = Sessions(draw_held_out(random, held_sizes, loop), held_sizes)
    for number in range(1, loop.rounds + 1):
        candidate = (number - 1) // loop.life + 1
        if number % loop.life == 1 % loop.life:
            spared = {rule: bound(random, held_out) >= -MARGIN for rule, bound in bounds.items()}
            not_worse = score_loss(held_out, MARGIN, num_draws=DRAWS)
        for look in range(1, loop.looks + 1):
            num = loop.sessions * (number - 1) + loop.sessions * look // loop.looks
            spoken = np.flatnonzero(corrected.sizes[:num])
            seen = Sessions(corrected.sums[spoken], corrected.sizes[spoken])
            better = float(weigh_gains(seen.gains))
            if not found["groupwise"] and is_promoted(better, not_worse, find_level(candidate)):
                found["groupwise"] = number
            for rule, bound in bounds.items():
                if not found[rule] and spared[rule] and bound(random, seen) > 0:
                    found[rule] = number
        if number % loop.life == 0:
            corrected = draw_next(random, corrected, draw_corrected(random, sizes, loop))
            held_out = draw_next(random, held_out, draw_held_out(random, held_sizes, loop))
    return found


def run_loops(name: str, loop: Loop, num: int) -> list[dict[str, Any]]:
    """Return a row for each rule: how many of the loops promoted, and when.

    Bootstraps take their time and are wrong so often that a fifth of the loops shows it.
    """
    random = np.random.default_rng(zlib.crc32(repr((name, loop)).encode()))
    found = [run_loop(random, loop, RULES[: 1 if i % 5 else None]) for i in range(num)]
    table: list[dict[str, Any]] = []
    for rule in RULES:
        rows = [row for row in found if rule in row]
        rounds = [row[rule] for row in rows if row[rule]]
        low, high = bound_share(len(rounds), len(rows))
        line = {
            "case": name,
            **asdict(loop),
            "rule": rule,
            "loops": len(rows),
            "promoted": len(rounds),
            "share": len(rounds) / len(rows),
            "low": low,
            "high": high,
            "median_round": float(np.median(rounds)) if rounds else None,
        }
        table.append(line)
    return table


def list_cases(num: int) -> Iterator[tuple[str, Loop, int]]:
    """Yield name, loop and number of loops of each case."""
    yield "alike", Loop(), num
    yield "alike", Loop(life=1), num // 5
    yield "alike", Loop(held_out=0.05), num
    yield "alike", Loop(rounds=40, sessions=10, looks=2), num // 5
    yield "alike, tested on mistakes alone", Loop(only_mistakes=True), num // 5
    yield "paid by others", Loop(corrected=0.1, held_out=-MARGIN), num
    yield "paid by few", Loop(corrected=0.1, held_out=-MARGIN, loses_sessions=True), num
    for gain in (0.02, 0.05, 0.1):
        for held_out_items in (1000, 2000, 4000, 8000):
            yield "gain", Loop(corrected=gain, held_out_items=held_out_items), num // 10
    for sessions in (10, 20, 80):
        yield "gain", Loop(corrected=0.05, sessions=sessions), num // 10
    for life in (1, 2, 3, 10):
        yield "gain", Loop(corrected=0.05, life=life), num // 10


def main() -> None:
    """Run the loops and write what they promoted."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--loops", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with ProcessPoolExecutor() as pool:
        for table in pool.map(run_loops, *zip(*list_cases(arguments.loops), strict=True)):
            rows += table
            for row in table:
                print(json.dumps(row), file=sys.stderr, flush=True)
    if arguments.json:
        command = f"python benchmarks/promotion.py --loops {arguments.loops}"
        found = {"command": command, **describe_machine(), "rows": rows}
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
