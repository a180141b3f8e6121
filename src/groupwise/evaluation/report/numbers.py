"""How numbers look in a report, and nowhere else: shares, points, p-values, times, counts.

Nothing is computed here.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from groupwise.evaluation.metrics import Metric

_NBSP = "\u00a0"
_MINUS = "\u2212"
_DASH = "\u2013"


def format_share(value: float | None) -> str:
    """Format 0.9421 as ``94.2 %``; None as a dash."""
    return _DASH if value is None else f"{100 * value:.1f}{_NBSP}%"


def format_share_interval(low: float, high: float) -> str:
    """Format an interval of shares as ``91.7-96.0 %`` with an en dash."""
    return f"{100 * low:.1f}{_DASH}{100 * high:.1f}{_NBSP}%"


def format_points(value: float) -> str:
    """Format a difference of shares, 0.123, as ``+12.3`` (percentage points)."""
    rounded = round(100 * value, 1)
    sign = "+" if rounded > 0 else _MINUS if rounded < 0 else "\u00b1"
    return f"{sign}{abs(rounded):.1f}"


def format_points_interval(low: float, high: float) -> str:
    """Format an interval of differences as ``+8.1 to +16.4``."""
    return f"{format_points(low)}{_NBSP}to{_NBSP}{format_points(high)}"


def format_p_value(value: float) -> str:
    """Format a p-value as ``p = 0.012`` or ``p < 0.001``."""
    return f"p{_NBSP}<{_NBSP}0.001" if value < 0.001 else f"p{_NBSP}={_NBSP}{value:.3f}"


def format_p_cell(value: float) -> str:
    """Format a p-value for a table's cell: ``0.012`` or ``< 0.001``."""
    return format_p_value(value).removeprefix(f"p{_NBSP}").removeprefix(f"={_NBSP}")


def format_moment(text: str) -> str:
    """Format an ISO time as ``2026-03-02 09:14 UTC``; what is not a time stays as it is."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        return f"{moment:%Y-%m-%d %H:%M}"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def format_duration(seconds: float) -> str:
    """Format seconds as ``85 ms``, ``1.20 s`` or ``12 min``."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.{1 if seconds < 0.00995 else 0}f}{_NBSP}ms"
    if seconds < 119.5:
        return f"{seconds:.3g}{_NBSP}s"
    return f"{seconds / 60:.0f}{_NBSP}min"


def format_count(value: int) -> str:
    """Format 12345 as ``12 345`` with a narrow no-break space."""
    return f"{value:,}".replace(",", "\u202f")


def format_score(value: float) -> str:
    """Format a score such as a Brier score with three digits."""
    return f"{value:.3f}"


def format_plain(value: float) -> str:
    """Format any number with at most four digits, such as ``0.0512`` or ``2e-05``."""
    return f"{value:.4g}"


def format_value(metric: Metric) -> str:
    """Format a metric's value by its kind: a time, a score or a share."""
    return _choose_format(metric)(metric.value)


def format_interval(metric: Metric) -> str:
    """Format a metric's interval by its kind."""
    if _choose_format(metric) is format_share:
        return format_share_interval(metric.low, metric.high)
    form = _choose_format(metric)
    return f"{form(metric.low)}{_DASH}{form(metric.high)}"


def _choose_format(metric: Metric) -> Callable[[float], str]:
    if metric.measure.endswith("_s"):
        return format_duration
    return format_score if metric.measure in ("brier", "ece") else format_share


def count_things(number: int, one: str, many: str | None = None) -> str:
    """Return ``1 item`` or ``12 items``."""
    return f"{format_count(number)} {one if number == 1 else many or one + 's'}"
