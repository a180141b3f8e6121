"""What an audit says: findings with a level, a fixed name, a sentence, a count and places."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

MAX_PLACES = 20

FindingLevel = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing an audit found.

    Attributes:
        level: ``error`` makes results wrong, ``warning`` may, ``info`` is worth knowing.
        name: fixed name of the kind, for programs.
        message: one sentence for people.
        count: how many items it concerns.
        where: the first of them, at most 20.
    """

    level: FindingLevel
    name: str
    message: str
    count: int
    where: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON values."""
        return {**asdict(self), "where": list(self.where)}


def report_places(
    level: FindingLevel, name: str, message: str, places: Sequence[str]
) -> list[Finding]:
    """Return one finding counted by its places, or none if there are no places.

    ``{count}`` in the message becomes their number.
    """
    if not places:
        return []
    text = message.replace("{count}", str(len(places)))
    return [Finding(level, name, text, len(places), tuple(places[:MAX_PLACES]))]
