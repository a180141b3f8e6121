"""Why a program is refused, what was repaired, and what a check returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

MAX_CHARACTERS = 16_384
MAX_DEPTH = 100
MAX_BLOCKS = 16

REASONS: Mapping[str, str] = MappingProxyType(
    {
        "characters": "It has characters that no program can have.",
        "too_long": f"It is longer than {MAX_CHARACTERS:,} characters.",
        "too_nested": "Its blocks or expressions are nested too deeply.",
        "open_fence": "Its fenced block is not closed: it may have been cut off.",
        "several_blocks": "It has more than one fenced block.",
        "empty": "There is no program.",
        "syntax": "It is no valid Python.",
        "top_level": "Beside functions its top level has more than imports and constants.",
        "no_workflow": "It does not define one `async def workflow`.",
        "parameters": "The parameters are not (problem[, entry_point[, tests]]).",
        "not_allowed": "It uses a part of Python that is not allowed in a workflow.",
        "import": "It imports something that is not allowed.",
        "unknown_name": "It reads a name that is defined nowhere.",
        "private_name": "It reads a name or attribute that is private to Python.",
        "taken_name": "It gives a name of an operator, module or async function to something else.",
        "unknown_operator": "It awaits an operator that does not exist.",
        "operator_as_value": "It uses an operator or an async function without calling it.",
        "arguments": "It calls an operator with arguments that this does not take.",
        "not_awaited": "It calls an operator without awaiting it.",
        "awaits_other": "It awaits something that is no call of an operator.",
        "unassigned": "It reads a variable that is not assigned on every path to there.",
        "no_answer": "It does not return a value on every path.",
    }
)

REPAIRS: Mapping[str, str] = MappingProxyType(
    {
        "fence": "The marks of the fenced block around the program were taken off.",
        "text_around": "Text before or after the fenced block was left out.",
        "indented": "Indentation that all lines have in common was taken off.",
    }
)


@dataclass(frozen=True)
class Refusal:
    """Why a program does not run.

    Attributes:
        reason: a key of ``REASONS``.
        line: of the program without its fence, from 1; 0 where it is of no single line.
        message: what exactly is wrong.
    """

    reason: str
    line: int
    message: str


@dataclass(frozen=True)
class Repair:
    """A change that cannot alter what a program means.

    Attributes:
        reason: a key of ``REPAIRS``.
        line: of the text as it was written, from 1.
    """

    reason: str
    line: int


@dataclass(frozen=True)
class Checked:
    """A program that was checked.

    Attributes:
        source: what runs; empty if the program is refused.
        refusal: the first thing that is wrong; None if the program may run.
        repairs: what was changed before it was checked.
    """

    source: str
    refusal: Refusal | None = None
    repairs: tuple[Repair, ...] = ()


class RefusedError(Exception):
    """Ends a check; never leaves this package.

    Args:
        reason: a key of ``REASONS``.
        line: where, from 1; 0 for the whole.
        message: what exactly is wrong; without one, the reason's sentence.
    """

    def __init__(self, reason: str, line: int = 0, message: str = "") -> None:
        super().__init__(reason)
        self.refusal = Refusal(reason, line, message or REASONS[reason])
