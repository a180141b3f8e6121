"""What comes of running a program on a problem, and the limits it is run under."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Literal, cast

from pydantic import Field, model_validator

from groupwise.core import Config
from groupwise.inference.model import RequestCause, Sampling, Usage
from groupwise.inference.settings import RetrySettings
from groupwise.sandbox import Limits

PolicyReason = Literal[
    "error",
    "operator_error",
    "timeout",
    "memory",
    "output",
    "crashed",
    "calls",
    "tokens",
    "no_value",
    "wrong_type",
    "too_long",
]
Reason = PolicyReason | RequestCause | Literal["", "sandbox"]
"""Why there is no value. Of the program: ``error`` (it raised one), ``operator_error`` (of an
operator, not caught), ``timeout``, ``memory``, ``output`` and ``crashed`` as of the sandbox,
``calls`` and ``tokens`` (a limit of operators), ``no_value`` (None or white space), ``wrong_type``
(neither text nor a number), ``too_long``. Of the executor: the cause of the last failed request,
or ``sandbox`` if the program could not be started."""


@dataclass(frozen=True)
class OperatorLimits:
    """Limits of one operator within one program.

    Attributes:
        max_calls: more end the program.
        max_tokens: of prompts and replies together; what is asked after that ends the program.
        max_characters: of the arguments of one call; more are an OperatorError.
    """

    max_calls: int = 16
    max_tokens: int = 200_000
    max_characters: int = 100_000


MAX_ANSWER_CHARACTERS = 20_000
"""Of what a program returns."""
PROGRAM_LIMITS = Limits(timeout_s=20, cpu_s=2, memory_mib=256, output_kib=64, file_mib=1)
"""Of the program itself; waiting for operators does not count. Processor time is the narrow one:
on a busy machine a program waits for its turn, and that is not its fault."""
WRITTEN_LIMITS = Limits(timeout_s=20, cpu_s=5, memory_mib=256, output_kib=64, file_mib=1)
"""Of programs that operators write and run."""


class ExecutionSettings(Config):
    """How programs are run and the model behind the operators is asked.

    Attributes:
        max_at_once: programs that run at the same time.
        max_calls: of all operators in one program.
        timeout_s: of one call of an operator with all its requests; longer is the executor's
            fault, because programs that an operator runs have limits of their own.
        sampling: of every request. Its seed, if any, goes into the seeds of all requests. The
            temperature should be above 0: at 0 a question asked again has the same answer.
        retry: of requests that failed. One that was cut off or empty is asked again with twice
            the tokens.
    """

    retired: ClassVar = {
        "max_answer_characters": (MAX_ANSWER_CHARACTERS,),
        "operators": ({},),
        "program": (PROGRAM_LIMITS.model_dump(mode="json"),),
        "written": (WRITTEN_LIMITS.model_dump(mode="json"),),
    }
    max_at_once: int = Field(default=64, ge=1, le=65_536)
    max_calls: int = Field(default=32, ge=0)
    timeout_s: float = Field(default=600.0, gt=0, le=604_800)
    sampling: Sampling = Sampling(temperature=0.7, max_new_tokens=1024)
    retry: RetrySettings = RetrySettings()

    @model_validator(mode="before")
    @classmethod
    def _read_others(cls, values: Any) -> Any:
        """Take the time of a call from where finished runs say it, beside the limits."""
        others = values.get("others") if isinstance(values, Mapping) else None
        if not isinstance(others, Mapping) or "timeout_s" not in others:
            return values
        given = cast("Mapping[str, Any]", values)
        limits = {**cast("Mapping[str, Any]", others)}
        timeout_s = limits.pop("timeout_s")
        if limits != asdict(OperatorLimits()):
            return values
        rest = {name: value for name, value in given.items() if name != "others"}
        return {"timeout_s": timeout_s, **rest}


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator; long texts are cut.

    Attributes:
        operator: its name, whether there is such an operator or not.
        arguments: by name; by place if they did not fit.
        result: what it returned; None if it did not.
        error: why it returned nothing; empty if it did, or was still at work at the end.
        tokens: of prompts and replies.
        seconds: by the clock.
        cost: in the currency of the server's prices; 0 without prices.
    """

    operator: str
    arguments: Mapping[str, Any]
    result: Any
    error: str
    tokens: int
    seconds: float = field(compare=False)
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a program on a problem.

    It depends on the program, the problem, the model and the settings alone, but for the seconds
    in the trace: replies that were kept count like those that were asked for.

    Attributes:
        value: what the program returned, as text; None if ``fault`` is set.
        fault: whose fault it is that there is no value. ``executor``: the reward is None, because
            the model or the sandbox failed, whatever the program did about it.
        reason: a word to count by; empty if there is a value.
        message: for a person to read.
        calls: calls of operators, refused ones too.
        usage: by operator: requests with a reply, their tokens and their cost.
        trace: the calls in the order in which they ended.
    """

    value: str | None
    fault: Literal["policy", "executor"] | None = None
    reason: Reason = ""
    message: str = ""
    calls: int = 0
    usage: Mapping[str, Usage] = field(default_factory=dict[str, Usage])
    trace: tuple[Call, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens of prompts and replies of all operators."""
        return sum(u.prompt_tokens + u.completion_tokens for u in self.usage.values())

    @property
    def cost(self) -> float:
        """In the currency of the server's prices; 0 without prices."""
        return sum(usage.cost for usage in self.usage.values())
