"""What series and alarms are called, what an alarm says and what to do about it.

The sentences are in the vocabulary of the pages and are filled with the alarm's numbers only.
"""

from groupwise.evaluation.monitor.alarms import Alarm
from groupwise.evaluation.report.phrases import (
    Language,
    Phrases,
    Statement,
    format_plain,
    format_share,
)

_SHARES = (
    "reward",
    "dead_groups",
    "invalid",
    "truncated",
    "unscored",
    "mean_token_accuracy",
    "heldout/accuracy",
    "heldout/invalid",
    "heldout/commonest",
)


def title_series(key: str, language: Language = "en") -> str:
    """Return what a series is called; one that is not known keeps its key."""
    phrases = Phrases(language)
    title = phrases.title("series", key)
    kind, stroke, name = key.partition("/")
    if title != key or not stroke:
        return title
    if kind == "heldout":
        return phrases.say("heldout", name=name)
    if kind == "mean":
        return f"  {phrases.say('mean_of', name=name)}"
    return f"  {name}" if kind == "reward" else key


def is_share(key: str) -> bool:
    """Whether the values of a series are shares."""
    return key in _SHARES


def describe_value(key: str, value: float) -> str:
    """Return a value of a series: shares in per cent, other numbers with three digits."""
    is_percent = is_share(key) or (key.startswith("reward/") and 0 <= value <= 1)
    return format_share(value) if is_percent else format_plain(value)


def state_alarm(alarm: Alarm) -> dict[str, Statement]:
    """Return what was seen (``said``) and what to do (``advice``), clauses without a final stop."""
    said = Statement(
        f"alarm.{alarm.name}", {**alarm.numbers, "subject": alarm.subject or Statement("the_judge")}
    )
    return {"said": said, "advice": Statement(f"advice.{alarm.name}")}


def describe_alarm(alarm: Alarm, language: Language = "en") -> str:
    """Return what was seen, a clause without a final stop."""
    return Phrases(language).say(state_alarm(alarm)["said"])


def advise(alarm: Alarm, language: Language = "en") -> str:
    """Return what to do about an alarm, a clause without a final stop."""
    return Phrases(language).say(state_alarm(alarm)["advice"])
