"""Example, Completion and Score: one task item, one answer to it, what the answer earned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from groupwise.core.digests import digest_file, digest_json
from groupwise.core.errors import DataError, ScoreRangeError

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation. Pictures of an Example stand before its first user turn."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture file and the digest of its bytes; the path is not part of its identity."""

    path: Path
    digest: str = field(compare=True)


def read_picture(path: Path) -> Picture:
    """Return the Picture at ``path``.

    Raises:
        DataError: if the file does not exist or cannot be read.
    """
    try:
        return Picture(path, digest_file(path))
    except OSError as error:
        raise DataError(f"cannot read picture {path} ({error.strerror})") from error


@dataclass(frozen=True, slots=True)
class Example:
    """One item of a task.

    Attributes:
        id: digest of everything but ``group`` and the pictures' paths.
        prompt: the conversation so far; it ends with a user turn.
        pictures: pictures that stand before the first user turn's text, in order.
        label: the reference answer, or None where there is none.
        group: what is never split and what statistics are clustered by (a session, an order).
        fields: JSON values that rewards and reports look up by name.
    """

    id: str
    prompt: tuple[Message, ...]
    pictures: tuple[Picture, ...]
    label: str | None
    group: str
    fields: Mapping[str, Any]


def make_example(
    prompt: Sequence[Message],
    *,
    group: str,
    pictures: Sequence[Picture] = (),
    label: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> Example:
    """Build an Example with its content id.

    Raises:
        DataError: if the prompt is empty or does not end with a user turn.
    """
    if not prompt or prompt[-1].role != "user":
        raise DataError("a prompt must end with a user turn", got=[m.role for m in prompt])
    given = dict(fields or {})
    content = {
        "prompt": [[message.role, message.text] for message in prompt],
        "pictures": [picture.digest for picture in pictures],
        "label": label,
        "fields": given,
    }
    return Example(digest_json(content), tuple(prompt), tuple(pictures), label, group, given)


@dataclass(frozen=True, slots=True)
class Completion:
    """What a policy answered.

    Attributes:
        text: decoded text without special tokens.
        token_ids: sampled ids up to and including the first end token.
        log_probs: one per token at the sampling temperature, or None where not known.
        finish_reason: ``stop`` (an end token was sampled) or ``length`` (cut off).
    """

    text: str
    token_ids: tuple[int, ...] = ()
    log_probs: tuple[float, ...] | None = None
    finish_reason: Literal["stop", "length"] = "stop"


@dataclass(frozen=True, slots=True)
class Score:
    """What a completion earned.

    Attributes:
        value: in [0, 1]; None = could not be scored (it is never turned into 0).
        reason: why, for a person to read.
        breakdown: values of the parts by name.
        invalid: the completion is no answer (value is 0 and it is counted).

    Raises:
        ScoreRangeError: if a value is outside [0, 1] or not a number.
    """

    value: float | None
    reason: str = ""
    breakdown: Mapping[str, float | None] = field(default_factory=dict[str, float | None])
    invalid: bool = False

    def __post_init__(self) -> None:
        """Refuse values that would clash with other rewards' scale."""
        for name, value in [("value", self.value), *self.breakdown.items()]:
            if value is not None and not 0.0 <= value <= 1.0:
                raise ScoreRangeError(
                    f"a score's {name} is outside its range", got=value, expected="[0, 1] or None"
                )
