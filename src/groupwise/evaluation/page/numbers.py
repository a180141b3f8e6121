"""How numbers look in a report, and nowhere else: shares, points, p-values, times, counts.

Nothing is computed here.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from groupwise.evaluation.metrics import Metric

_NBSP = "\u00a0"
_MINUS = "\u2212"
_DASH = "\u2013"
_UP, _DOWN, _EVEN = "⬆️", "⬇️", "➡️"


def format_share(value: float | None, *, decimals: int = 1) -> str:
    """Format 0.9421 as ``94.2 %``; None as a dash."""
    return _DASH if value is None else f"{100 * value:.{decimals}f}{_NBSP}%"


def format_share_interval(low: float, high: float, *, decimals: int = 1) -> str:
    """Format an interval of shares as ``91.7-96.0 %`` with an en dash."""
    return f"{100 * low:.{decimals}f}{_DASH}{100 * high:.{decimals}f}{_NBSP}%"


def format_points(value: float, *, decimals: int = 1) -> str:
    """Format a difference of shares, 0.123, as ``+12.3`` (percentage points)."""
    rounded = round(100 * value, decimals)
    sign = "+" if rounded > 0 else _MINUS if rounded < 0 else "\u00b1"
    return f"{sign}{abs(rounded):.{decimals}f}"


def format_points_with_arrow(value: float) -> str:
    """Format a difference of shares as ``+12.3 ⬆️`` (percentage points)."""
    return f"{format_points(value)}{_NBSP}{choose_arrow(value)}"


def choose_arrow(value: float) -> str:
    """Return the arrow of a difference of shares: even if it rounds to 0.0 points."""
    rounded = round(100 * value, 1)
    return _UP if rounded > 0 else _DOWN if rounded < 0 else _EVEN


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
    """Format seconds as ``85 ms``, ``1.2 s``, ``12 min`` or ``2 h 05 min``."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.{1 if seconds < 0.00995 else 0}f}{_NBSP}ms"
    if seconds < 119.5:
        return f"{seconds:.3g}{_NBSP}s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes}{_NBSP}min"
    return f"{minutes // 60}{_NBSP}h{_NBSP}{minutes % 60:02d}{_NBSP}min"


def format_count(value: int) -> str:
    """Format 12345 as ``12 345`` with a narrow no-break space."""
    return f"{value:,}".replace(",", "\u202f")


def format_score(value: float) -> str:
    """Format a score such as a Brier score with three digits."""
    return f"{value:.3f}"


def format_coefficient(value: float) -> str:
    """Format a coefficient in [-1, 1] such as Cohen's kappa with three digits."""
    return format_score(value).replace("-", _MINUS)


def format_plain(value: float) -> str:
    """Format any number with at most four digits, such as ``0.0512`` or ``2e-05``."""
    return f"{value:.4g}"


def format_value(metric: "Metric") -> str:
    """Format a metric's value by its kind: a time, a score, a coefficient, points or a share."""
    return _choose_format(metric)(metric.value)


def format_interval(metric: "Metric") -> str:
    """Format a metric's interval by its kind."""
    form = _choose_format(metric)
    if form is format_share:
        return format_share_interval(metric.low, metric.high)
    between = f"{_NBSP}to{_NBSP}" if form in (format_points, format_coefficient) else _DASH
    return between.join((form(metric.low), form(metric.high)))


_KINDS: dict[str, Callable[[float], str]] = {
    "brier": format_score,
    "ece": format_score,
    "kappa": format_coefficient,
    "people_alpha": format_coefficient,
    "length_bias": format_points,
}


def _choose_format(metric: "Metric") -> Callable[[float], str]:
    if metric.measure.endswith("_s"):
        return format_duration
    return _KINDS.get(metric.measure, format_share)
