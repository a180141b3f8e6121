"""One problem: what is asked, and what decides whether an answer is right."""

from typing import Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config

ProblemType = Literal["math", "code", "qa"]


class Problem(Config):
    """A row of any set, in one form; it is written as JSON.

    Attributes:
        id: unique in a mix: the set's name, and the row's name in it.
        source: the set it is from (``gsm8k``).
        problem_type: how an answer is decided.
        problem: the whole text that is asked, with options and contexts where there are any;
            nothing that decides is in it.
        ground_truth: the reference: a number or expression (math), a solution (code), the letter
            of the right option, or an answer in words (qa).
        answers: further answers in words that are right, too (qa without options).
        options: texts of the options A, B, C ... in order; empty where there are none.
        entry_point: the function that code has to define.
        setup: code that tests need before them.
        public_tests: what a solver may see and run; asserts, one each.
        hidden_tests: what decides; none of them is public.
        cluster: problems that resemble each other (a subject, an article); never divided.
    """

    id: str = Field(min_length=1)
    source: str = Field(min_length=1)
    problem_type: ProblemType
    problem: str = Field(min_length=1)
    ground_truth: str = Field(min_length=1)
    answers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    entry_point: str | None = None
    setup: str = ""
    public_tests: tuple[str, ...] = ()
    hidden_tests: tuple[str, ...] = ()
    cluster: str = Field(min_length=1)

    @model_validator(mode="after")
    def _check_code(self) -> Self:
        is_code = self.problem_type == "code"
        if is_code != (self.entry_point is not None) or is_code != bool(self.hidden_tests):
            raise ValueError("code, and only code, has an entry point and hidden tests")
        return self
