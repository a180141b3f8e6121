"""How an answerer uses demonstrations: how often it is right with lists made for that.

The lists are made of what is known of a world of dialects. Each answer is one that the engine
generates, so the figures come about as an evaluation's do.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from groupwise.core import DataError, derive_seed, make_example
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise_drawn.dialects import DialectItem
from groupwise_recipes.demo_selection.items import make_dialect_example
from groupwise_recipes.demo_selection.vqa import FewShotForm

Situation = Literal["no demonstrations", "random", "none right", "one right", "contradicting"]
"""``random``: drawn from all. ``none right``: none is of the query's dialect and colour. ``one
right``: one is, and has its answer, at a random place. ``contradicting``: one has the former word
of the query's dialect and colour, and one behind it the revised word, which counts."""

_FEWEST: dict[Situation, int] = {"no demonstrations": 0, "contradicting": 2}
_GREEDY = Sampling(max_new_tokens=8)


@dataclass(frozen=True, slots=True)
class UseFigure:
    """How often an answerer was right in a situation.

    Attributes:
        situation: what the lists are like.
        num_shots: demonstrations of a list.
        num_asked: queries for which there is such a list.
        num_right: answers that are the query's.
        num_right_reversed: the same with every list from its end, where of contradicting
            demonstrations the former word is the last.
        num_changed: answers that the reversed list changed.
    """

    situation: Situation
    num_shots: int
    num_asked: int
    num_right: int
    num_right_reversed: int
    num_changed: int


def measure_demonstration_use(
    model: LocalModel,
    items: Sequence[DialectItem],
    *,
    form: FewShotForm,
    seed: int,
    num_queries: int = 200,
    max_shots: int = 4,
) -> list[UseFigure]:
    """Ask an answerer with lists of each situation, of up to ``max_shots`` demonstrations."""
    rng = random.Random(derive_seed(seed, "use of demonstrations"))
    queries = [item for item in items if item.split == "anchors"]
    train = [item for item in items if item.split == "train"]
    if not queries or len(train) <= max_shots:
        raise DataError(
            "too few items to ask with demonstrations",
            got=f"{len(queries)} anchors and {len(train)} train items",
            expected=f"an anchor and more than {max_shots} train items",
        )
    queries = rng.sample(queries, min(num_queries, len(queries)))
    figures: list[UseFigure] = []
    for situation in get_args(Situation):
        fewest = _FEWEST.get(situation, 1)
        for num_shots in range(fewest, max(max_shots, fewest) + 1 if fewest else 1):
            shown = [
                (query, found)
                for query in queries
                if (found := _draw_list(situation, query, train, num_shots, rng)) is not None
            ]
            figures.append(_ask_both_ways(model, form, situation, num_shots, shown))
    return figures


def _draw_list(
    situation: Situation,
    query: DialectItem,
    train: Sequence[DialectItem],
    num_shots: int,
    rng: random.Random,
) -> list[DialectItem] | None:
    """Return the demonstrations in their order, or None where there are none of this kind."""
    if situation == "random":
        return rng.sample(train, num_shots)
    same = [item for item in train if _cell(item) == _cell(query)]
    right = [item for item in same if item.answer == query.answer]
    former = [item for item in same if item.answer != query.answer]
    wanted = {"one right": [right], "contradicting": [former, right]}.get(situation, [])
    others = [item for item in train if _cell(item) != _cell(query)]
    if not all(wanted) or len(others) < num_shots - len(wanted):
        return None
    shown = rng.sample(others, num_shots - len(wanted))
    places = sorted(rng.sample(range(num_shots), len(wanted)))
    for place, kind in zip(places, wanted, strict=True):
        shown.insert(place, rng.choice(kind))
    return shown


def _cell(item: DialectItem) -> tuple[str, str]:
    return item.dialect, item.scene.color


def _ask_both_ways(
    model: LocalModel,
    form: FewShotForm,
    situation: Situation,
    num_shots: int,
    lists: Sequence[tuple[DialectItem, Sequence[DialectItem]]],
) -> UseFigure:
    answers = _ask(model, form, lists)
    turned = [(query, shown[::-1]) for query, shown in lists]
    reversed_answers = _ask(model, form, turned) if num_shots > 1 else answers
    wanted = [query.answer for query, _ in lists]
    return UseFigure(
        situation,
        num_shots,
        num_asked=len(lists),
        num_right=sum(a == b for a, b in zip(answers, wanted, strict=True)),
        num_right_reversed=sum(a == b for a, b in zip(reversed_answers, wanted, strict=True)),
        num_changed=sum(a != b for a, b in zip(answers, reversed_answers, strict=True)),
    )


def _ask(
    model: LocalModel,
    form: FewShotForm,
    lists: Sequence[tuple[DialectItem, Sequence[DialectItem]]],
) -> list[str]:
    prompts = [
        make_example(
            form.write(make_dialect_example(query), list(map(make_dialect_example, shown))),
            cluster=query.id,
        )
        for query, shown in lists
    ]
    completions = model.generate(prompts, sampling=_GREEDY)
    return [completion.text.strip() for (completion,) in completions]
