"""Word problems of one to four steps; each answer is a whole number."""

from typing import Any

from groupwise_drawn.problems.pen import Pen
from groupwise_drawn.problems.phrases import THINGS


def draw_maths(pen: Pen) -> dict[str, Any]:
    """Return the fields of a word problem."""
    forms = [_tell_story] * 3
    if pen.language == "en":
        forms += [_draw_change, _draw_distance, _draw_fence, _draw_mean]
    problem, answer = pen.rng.choice(forms)(pen)
    return {"problem_type": "math", "problem": problem, "ground_truth": str(answer)}


def _tell_story(pen: Pen) -> tuple[str, int]:
    """Return a story of one to four steps, and how many are left."""
    rng, name, thing = pen.rng, pen.name(), pen.pick(THINGS[pen.language])
    number = rng.randint(6, 90)
    lines = [pen.say("story_start", name=name, thing=thing, x=number)]
    for _ in range(rng.randint(1, 4)):
        step, amount, number = _take_step(pen, number)
        lines.append(pen.say(f"story_{step}", name=name, n=amount))
    lines.append(pen.say("story_end", name=name, thing=thing))
    return ("" if pen.language == "zh" else " ").join(lines), number


def _take_step(pen: Pen, number: int) -> tuple[str, int, int]:
    """Return a step, its amount and the number after it, which stays above 0."""
    rng = pen.rng
    parts = [part for part in range(2, 10) if number % part == 0 and number > part]
    steps = [
        "gain",
        *["lose"] * (number > 3),
        *["times"] * (number < 200),
        *["share"] * bool(parts),
    ]
    match pen.pick(steps):
        case "gain":
            amount = rng.randint(2, 60)
            return "gain", amount, number + amount
        case "lose":
            amount = rng.randint(2, number - 1)
            return "lose", amount, number - amount
        case "times":
            amount = rng.randint(2, 5)
            return "times", amount, number * amount
        case _:
            amount = rng.choice(parts)
            return "share", amount, number // amount


def _draw_change(pen: Pen) -> tuple[str, int]:
    price, number = pen.rng.randint(3, 60), pen.rng.randint(2, 9)
    paid = price * number + pen.rng.randint(1, 90)
    thing = pen.pick(THINGS["en"])
    text = pen.say("change", name=pen.name(), thing=thing, p=price, n=number, m=paid)
    return text, paid - price * number


def _draw_distance(pen: Pen) -> tuple[str, int]:
    speed, hours, more = pen.rng.randint(8, 95), pen.rng.randint(2, 9), pen.rng.randint(2, 60)
    return pen.say("distance", name=pen.name(), v=speed, t=hours, d=more), speed * hours + more


def _draw_fence(pen: Pen) -> tuple[str, int]:
    long, wide = pen.rng.randint(5, 95), pen.rng.randint(3, 80)
    return pen.say("fence", name=pen.name(), a=long, b=wide), 2 * (long + wide)


def _draw_mean(pen: Pen) -> tuple[str, int]:
    mean, first, second = (pen.rng.randint(20, 60) for _ in range(3))
    third = 3 * mean - first - second
    if third < 1:
        return _draw_mean(pen)
    return pen.say("mean", name=pen.name(), a=first, b=second, c=third), mean
