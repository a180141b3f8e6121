"""Training as the monitor sees it: the same series and alarms, for the pages of a report."""

from collections.abc import Iterator, Mapping
from typing import Any

from groupwise.evaluation.monitor import (
    History,
    Series,
    advise,
    describe_alarm,
    describe_value,
    find_alarms,
    title_series,
)
from groupwise.evaluation.report.content import (
    Notice,
    SeriesRow,
    TrainingLog,
    TrainingTable,
    title_policy,
)


def note_alarms(
    logs: Mapping[str, TrainingLog], judges: Mapping[str, Mapping[str, Any]]
) -> Iterator[Notice]:
    """Yield a notice for every alarm of every training.

    Args:
        logs: by step.
        judges: what the judge of a step counted (``judge.json``), by step.
    """
    for name, log in logs.items():
        for alarm in find_alarms(History(log.rows), judge=judges.get(name)):
            said = describe_alarm(alarm)
            text = f"{title_policy(name)}, step {alarm.step}: {said}. To do: {advise(alarm)}."
            yield Notice(alarm.level, text, f"{name}/metrics.jsonl")


def tabulate_trainings(logs: Mapping[str, TrainingLog]) -> tuple[TrainingTable, ...]:
    """Return first, last, lowest and highest value of every series of every training."""
    return tuple(
        TrainingTable(
            step=name,
            num_steps=history.last_step,
            rows=tuple(_describe_series(series) for series in history.list_series()),
        )
        for name, log in logs.items()
        if not (history := History(log.rows)).is_empty
    )


def _describe_series(series: Series) -> SeriesRow:
    values = series.values
    first, last, low, high = (
        describe_value(series.key, value)
        for value in (values[0], values[-1], min(values), max(values))
    )
    title = title_series(series.key)
    is_part = title.startswith(" ")
    return SeriesRow(
        title=f"Reward: {title.strip()}" if is_part else title,
        first=first,
        last=last,
        low=low,
        high=high,
        num_rows=len(series),
    )
