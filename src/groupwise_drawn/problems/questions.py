"""Questions whose answers follow from the calendar or from what is said of a made world."""

from itertools import pairwise
from typing import Any

from groupwise_drawn.problems.pen import Pen
from groupwise_drawn.problems.phrases import MONTHS, TOWNS, WATERS, WEEKDAYS


def draw_question(pen: Pen) -> dict[str, Any]:
    """Return the fields of a question, with options or answered in words."""
    if pen.language == "zh":
        return _ask_weekday(pen)
    forms = (_ask_weekday, _ask_month, _ask_north, _ask_article, _ask_article)
    return pen.rng.choice(forms)(pen)


def _ask_weekday(pen: Pen) -> dict[str, Any]:
    days, days_later = WEEKDAYS[pen.language], pen.rng.randint(2, 60)
    start = pen.rng.randrange(7)
    question = pen.say("weekday", day=days[start], k=days_later, name=pen.name())
    return pen.ask_choice(question, days[(start + days_later) % 7], days)


def _ask_month(pen: Pen) -> dict[str, Any]:
    start, months_later = pen.rng.randrange(12), pen.rng.randint(2, 30)
    question = pen.say("month", month=MONTHS[start], k=months_later, name=pen.name())
    return pen.ask_choice(question, MONTHS[(start + months_later) % 12], MONTHS)


def _ask_north(pen: Pen) -> dict[str, Any]:
    """Return a question about four or five towns, of which each pair of neighbours is told."""
    towns = pen.rng.sample(TOWNS, pen.rng.choice((4, 5)))
    facts = [pen.say("north", a=a, b=b) for a, b in pairwise(towns)]
    pen.rng.shuffle(facts)
    question = " ".join([*facts, pen.say("northmost")])
    return pen.ask_choice(question, towns[0], towns)


def _ask_article(pen: Pen) -> dict[str, Any]:
    """Return a question about one of two towns; the answer stands in its article."""
    articles: list[str] = []
    asked: dict[str, str] = {}
    towns, waters = pen.rng.sample(TOWNS, 2), pen.rng.sample(WATERS, 2)
    for town, water in zip(towns, waters, strict=True):
        facts = {"water": water, "mayor": pen.name(), "year": str(pen.rng.randint(1150, 1890))}
        people = pen.rng.randint(900, 98000)
        articles.append(pen.say("article", town=town, people=people, name=facts["mayor"], **facts))
        kind = pen.pick(sorted(facts))
        asked[pen.say(f"ask_{kind}", town=town)] = facts[kind]
    question = pen.pick(sorted(asked))
    pen.rng.shuffle(articles)
    return {
        "problem_type": "qa",
        "problem": "\n\n".join([*articles, f"Question: {question}"]),
        "ground_truth": asked[question],
    }
