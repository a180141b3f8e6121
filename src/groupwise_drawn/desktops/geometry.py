"""Rectangles in pixels and the ways to divide them into panes.

Every division clamps, so a layout meant for a large window still gives valid (possibly empty)
boxes in a tiny one. Nothing is drawn here.
"""

from dataclasses import dataclass

__all__ = ["Box"]


@dataclass(frozen=True, slots=True)
class Box:
    """A half-open pixel rectangle: ``left <= x < right``, ``top <= y < bottom``."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        """Pixels across, never negative."""
        return max(0, self.right - self.left)

    @property
    def height(self) -> int:
        """Pixels down, never negative."""
        return max(0, self.bottom - self.top)

    @property
    def empty(self) -> bool:
        """Whether no pixel lies inside."""
        return self.right <= self.left or self.bottom <= self.top

    def inset(self, dx: int, dy: int | None = None) -> "Box":
        """The box without a margin of ``dx`` at the sides and ``dy`` above and below."""
        dy = dx if dy is None else dy
        return Box(self.left + dx, self.top + dy, self.right - dx, self.bottom - dy)

    def shift(self, dx: int, dy: int) -> "Box":
        """The box moved by ``(dx, dy)`` pixels."""
        return Box(self.left + dx, self.top + dy, self.right + dx, self.bottom + dy)

    def cut_top(self, height: float) -> tuple["Box", "Box"]:
        """Split into (the top ``height`` pixels, the rest)."""
        y = self.top + max(0, min(self.height, round(height)))
        return Box(self.left, self.top, self.right, y), Box(self.left, y, self.right, self.bottom)

    def cut_bottom(self, height: float) -> tuple["Box", "Box"]:
        """Split into (the bottom ``height`` pixels, the rest)."""
        rest, low = self.cut_top(self.height - height)
        return low, rest

    def cut_left(self, width: float) -> tuple["Box", "Box"]:
        """Split into (the left ``width`` pixels, the rest)."""
        x = self.left + max(0, min(self.width, round(width)))
        return Box(self.left, self.top, x, self.bottom), Box(x, self.top, self.right, self.bottom)

    def cut_right(self, width: float) -> tuple["Box", "Box"]:
        """Split into (the right ``width`` pixels, the rest)."""
        rest, low = self.cut_left(self.width - width)
        return low, rest

    def grid(self, num_columns: int, num_rows: int, gap: int = 0) -> list["Box"]:
        """Cells of equal size, row by row, ``gap`` pixels apart."""
        cell_w = (self.width - gap * (num_columns - 1)) / num_columns
        cell_h = (self.height - gap * (num_rows - 1)) / num_rows
        cells: list[Box] = []
        for row in range(num_rows):
            top = self.top + row * (cell_h + gap)
            for column in range(num_columns):
                left = self.left + column * (cell_w + gap)
                edges = (left, top, left + cell_w, top + cell_h)
                cells.append(Box(*(round(edge) for edge in edges)))
        return cells

    def middle(self, width: float, height: float) -> "Box":
        """A box of that size (at most this one's) with the same centre."""
        w, h = min(self.width, round(width)), min(self.height, round(height))
        left = self.left + (self.width - w) // 2
        top = self.top + (self.height - h) // 2
        return Box(left, top, left + w, top + h)

    def within(self, other: "Box") -> bool:
        """Whether every pixel of this box lies in ``other``."""
        return (
            self.left >= other.left
            and self.top >= other.top
            and self.right <= other.right
            and self.bottom <= other.bottom
        )

    def clip(self, other: "Box") -> "Box":
        """The part that both boxes share (empty when they are apart)."""
        left, top = max(self.left, other.left), max(self.top, other.top)
        right, bottom = min(self.right, other.right), min(self.bottom, other.bottom)
        return Box(left, top, max(left, right), max(top, bottom))
