"""Colours of heat maps that are tables: how dark a cell is, and which text can be read on it."""

from dataclasses import dataclass
from typing import Literal

_Color = tuple[int, int, int]
_WHITE: _Color = (255, 255, 255)
_GAIN: _Color = (31, 98, 168)
_LOSS: _Color = (201, 104, 22)
_LIGHTEST = 0.06
_DARKEST = 0.92
_DARK_TEXT = "#1f2328"


@dataclass(frozen=True, slots=True)
class Scale:
    """The ends of the values that one set of tables shows; ``sign`` is that of their measure."""

    low: float
    high: float
    sign: Literal[1, -1] = 1

    def shade_value(self, value: float) -> str:
        """Return the style of a value: the better, the darker blue."""
        width = self.high - self.low
        worst = self.low if self.sign > 0 else self.high
        return _paint(_GAIN, abs(value - worst) / width if width > 0 else 0.0)

    def shade_difference(self, value: float) -> str:
        """Return the style of a difference: a gain is blue, a loss orange, 0 white."""
        top = max(abs(self.low), abs(self.high))
        if value == 0 or top == 0:
            return _paint(_GAIN, -_LIGHTEST / (_DARKEST - _LIGHTEST))
        return _paint(_GAIN if self.sign * value > 0 else _LOSS, abs(value) / top)


def _paint(color: _Color, share: float) -> str:
    """Return background and text colour for a share of the full colour in [0, 1]."""
    strength = _LIGHTEST + share * (_DARKEST - _LIGHTEST)
    mixed = [round(w + strength * (c - w)) for w, c in zip(_WHITE, color, strict=True)]
    brightness = 0.299 * mixed[0] + 0.587 * mixed[1] + 0.114 * mixed[2]
    text = _DARK_TEXT if brightness > 145 else "#ffffff"
    return f"background:#{mixed[0]:02x}{mixed[1]:02x}{mixed[2]:02x};color:{text}"
