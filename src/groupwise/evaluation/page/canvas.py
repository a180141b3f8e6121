"""How plots look: colours, fonts and the two forms they are saved in (SVG and PNG).

What is drawn is decided elsewhere.
"""

import io
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from typing import Any

import matplotlib as mpl
from matplotlib import font_manager
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from groupwise.evaluation.policies import Policies

_UNKNOWN = Policies()
Axes = Any  # matplotlib.axes.Axes; its methods take keywords without types
INK = "#24292f"
MUTED = "#7a828c"
FAINT = "#b4bac2"
GRID = "#e6e8eb"
CARD = "#ffffff"
_PNG_DPI = 170
_CHINESE_FONTS = (
    "Noto Sans CJK SC",
    "Noto Sans SC",
    "Source Han Sans SC",
    "PingFang SC",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "WenQuanYi Micro Hei",
    "SimHei",
)
_POLICY_COLORS = (
    *("#8b949e", "#a6761d", "#b5578f", "#4a7fd4", "#e08a1e", "#c8502b", "#12856b"),
    *("#7a5bb5", "#3f8fa8"),
)
_PALETTE = ("#12856b", "#4a7fd4", "#c8502b", "#7a5bb5", "#a6761d", "#b5578f", "#3f8fa8")
_STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": FAINT,
    "axes.facecolor": CARD,
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.unicode_minus": True,
    "figure.facecolor": CARD,
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "groupwise",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
    "ytick.labelsize": 8.5,
}


def color_policy(policy: str, policies: Policies = _UNKNOWN) -> str:
    """Return the colour of a policy or a training step by its place, the same in every plot."""
    rank = policies.rank(policy)
    if rank < len(policies.listed):
        return _POLICY_COLORS[rank % len(_POLICY_COLORS)]
    return pick_color(sum(policy.encode()))


def pick_color(index: int) -> str:
    """Return the colour of the ``index``-th line."""
    return _PALETTE[index % len(_PALETTE)]


@cache
def _find_fonts() -> tuple[str, ...]:
    known = set(font_manager.get_font_names())
    return ("DejaVu Sans", *(name for name in _CHINESE_FONTS if name in known))


def make_percent_axis() -> PercentFormatter:
    """Return an axis formatter that writes 0.4 as ``40 %``, as in the text."""
    return PercentFormatter(1, decimals=0, symbol="\u00a0%")


def can_draw(text: str) -> bool:
    """Whether the fonts of this machine have the characters of ``text``."""
    return text.isascii() or len(_find_fonts()) > 1


def render_svg(draw: Callable[[Axes], None], size: tuple[float, float]) -> bytes:
    """Return an SVG whose text stays text; the same drawing gives the same bytes."""
    with _style():
        return _save_svg(_lay_out(draw, size))


def render_both(draw: Callable[[Axes], None], size: tuple[float, float]) -> tuple[bytes, bytes]:
    """Return the SVG and a PNG at 170 dots per inch, drawn and laid out once."""
    with _style():
        figure = _lay_out(draw, size)
        return _save_svg(figure), _save_png(figure)


@contextmanager
def _style() -> Generator[None]:
    style: Any = {**_STYLE, "font.family": list(_find_fonts())}
    with mpl.rc_context(style), warnings.catch_warnings():  # pyright: ignore[reportUnknownMemberType]
        # An SVG keeps its text: the reader's fonts draw what this machine has no glyphs for.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        yield


def _lay_out(draw: Callable[[Axes], None], size: tuple[float, float]) -> Any:
    """Return a figure whose layout stays: saving one that is not laid out draws it twice."""
    figure: Any = Figure(figsize=size, dpi=_PNG_DPI, layout="constrained")
    draw(figure.add_subplot())
    figure.get_layout_engine().execute(figure)
    figure.set_layout_engine("none")
    return figure


def _save_svg(figure: Any) -> bytes:
    return _save(figure, format="svg", metadata={"Date": None, "Creator": None})


def _save_png(figure: Any) -> bytes:
    return _save(figure, format="png", dpi=_PNG_DPI, metadata={"Software": None})


def _save(figure: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, **options)
    return buffer.getvalue()
