"""What every layer speaks of: an item of a task, an answer, what it earned, what was found."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from groupwise.core.errors import DataError, ScoreRangeError
from groupwise.core.files import digest_file, digest_json

Role = Literal["system", "user", "assistant"]
FindingLevel = Literal["error", "warning", "info"]
MAX_PLACES = 20
ROW_FIELD = "_row"
"""Field that says where the row of an example was found; it is no part of the example's id."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file and the digest of its bytes; the path is not part of its identity."""

    path: Path = field(compare=False)
    digest: str


def read_picture(path: Path) -> Picture:
    """Return the Picture at ``path``.

    Raises:
        DataError: if the file does not exist or cannot be read.
    """
    try:
        return Picture(path, digest_file(path))
    except OSError as error:
        raise DataError(f"cannot read picture {path} ({error.strerror})") from error


@dataclass(frozen=True, slots=True, init=False)
class Message:
    """One turn of a conversation: words and pictures in the order in which they are shown.

    Attributes:
        role: whose turn it is; only a user shows pictures.
        parts: words and pictures; no words are empty or follow other words.

    Raises:
        DataError: if a turn that is not the user's has pictures.
    """

    role: Role
    parts: tuple[str | Picture, ...]

    def __init__(self, role: Role, parts: str | Iterable[str | Picture]) -> None:
        """Take words, or words and pictures in order; words that follow words are joined."""
        joined: list[str | Picture] = []
        for part in [parts] if isinstance(parts, str) else parts:
            if isinstance(part, str) and joined and isinstance(joined[-1], str):
                joined[-1] += part
            elif part != "":
                joined.append(part)
        object.__setattr__(self, "role", role)
        object.__setattr__(self, "parts", tuple(joined))
        if role != "user" and self.pictures:
            raise DataError("only a user's turn shows pictures", got=f"one of the role {role!r}")

    @property
    def text(self) -> str:
        """The words alone; those before and behind a picture stand on lines of their own."""
        return "\n".join(part for part in self.parts if isinstance(part, str))

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """The pictures alone, in order."""
        return tuple(part for part in self.parts if isinstance(part, Picture))


@dataclass(frozen=True, slots=True)
class Example:
    """One item of a task.

    Attributes:
        id: digest of everything but ``cluster`` and the pictures' paths.
        prompt: the conversation so far; it ends with a user turn.
        label: the reference answer, or None where there is none.
        cluster: what is never split and what statistics are clustered by (a session, an order).
        fields: JSON values that rewards and reports look up by name.
    """

    id: str
    prompt: tuple[Message, ...]
    label: str | None
    cluster: str
    fields: Mapping[str, Any]

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """All pictures of the prompt, in order."""
        return tuple(picture for message in self.prompt for picture in message.pictures)

    def with_pictures(self, pictures: Sequence[Picture]) -> Self:
        """Return this item, its id included, with other pictures: they open the first user turn."""
        words = [Message(message.role, message.text) for message in self.prompt]
        return replace(self, prompt=_open_with(pictures, words))


def make_example(
    prompt: Sequence[Message],
    *,
    cluster: str,
    pictures: Sequence[Picture] = (),
    label: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Example:
    """Build an Example with its content id; ``pictures`` come first in the first user turn.

    Raises:
        DataError: if the prompt is empty or does not end with a user turn.
    """
    if not prompt or prompt[-1].role != "user":
        raise DataError("a prompt must end with a user turn", got=[m.role for m in prompt])
    given = dict(fields or {})
    whole = _open_with(pictures, prompt) if pictures else tuple(prompt)
    has_pictures = any(isinstance(part, Picture) for turn in whole for part in turn.parts)
    opening, rest = split_opening(whole) if has_pictures else ((), whole)

    def describe(message: Message) -> str | list[str | dict[str, str]]:
        if not (has_pictures and message.pictures):
            return message.text
        return [p if isinstance(p, str) else {"picture": p.digest} for p in message.parts]

    content = {
        "prompt": [[message.role, describe(message)] for message in rest],
        "pictures": [picture.digest for picture in opening],
        "label": label,
        "fields": given,
    }
    return Example(digest_json(content), whole, label, cluster, given)


def split_opening(prompt: Sequence[Message]) -> tuple[tuple[Picture, ...], tuple[Message, ...]]:
    """Return the pictures that open the first user turn, and the prompt without them."""
    place, turn = _find_first_user(prompt)
    num_opening = next((n for n, part in enumerate(turn.parts) if isinstance(part, str)), None)
    rest = Message("user", turn.parts[len(turn.parts) if num_opening is None else num_opening :])
    return turn.pictures[:num_opening], (*prompt[:place], rest, *prompt[place + 1 :])


def _open_with(pictures: Sequence[Picture], prompt: Sequence[Message]) -> tuple[Message, ...]:
    place, turn = _find_first_user(prompt)
    return (*prompt[:place], Message("user", (*pictures, *turn.parts)), *prompt[place + 1 :])


def _find_first_user(prompt: Sequence[Message]) -> tuple[int, Message]:
    return next((n, message) for n, message in enumerate(prompt) if message.role == "user")


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy answered.

    Attributes:
        text: decoded text without special tokens.
        token_ids: sampled ids up to and including the first end token.
        log_probs: one per token at the sampling temperature, or None where not known.
        finish_reason: ``stop`` (an end token was sampled) or ``length`` (truncated).
    """

    text: str
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] | None = None
    finish_reason: Literal["stop", "length"] = "stop"


Fact = bool | float | str
"""What is told of a completion: whether something is so, a number, or a text."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a completion earned.

    Attributes:
        value: in [0, 1]; None = unscored (it is never turned into 0).
        reason: why, for a person to read.
        breakdown: values of the parts by name.
        invalid: the completion is no answer (value is 0 and it is counted).
        facts: what else is told of the completion by name, for those who watch a training: truth
            values are counted, numbers added up, texts tallied. Of a text whose name has a kind,
            as in ``program/math``, the share of the commonest is a curve, and that one text is the
            commonest of all kinds raises the alarm ``collapsed``.

    Raises:
        ScoreRangeError: if a value is outside [0, 1] or not a number.
    """

    value: float | None
    reason: str = ""
    breakdown: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    invalid: bool = False
    facts: Mapping[str, Fact] = field(default_factory=dict[str, Fact])

    def __post_init__(self) -> None:
        """Refuse values that would clash with other rewards' scale."""
        for name, value in [("value", self.value), *self.breakdown.items()]:
            if value is not None and not 0.0 <= value <= 1.0:
                raise ScoreRangeError(
                    f"a score's {name} is outside its range", got=value, expected="[0, 1] or None"
                )


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
