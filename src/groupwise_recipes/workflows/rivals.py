"""Programs that are written once and not for each problem: what a policy has to beat."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from groupwise.core import read_json, write_json
from groupwise.evaluation.predictions import RunPolicy
from groupwise.run.steps import StepContext
from groupwise_recipes.workflows.deciding import extract_answer
from groupwise_recipes.workflows.forms import list_sound_forms
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.scoring import ProgramScorer

_START = "async def workflow(problem, entry_point):\n"
_CODE = "    if entry_point is not None:\n"
_VOTE = """    answers = []
    for i in range(5):
        a = await answer_generate(problem)
        answers.append(a.answer)
    v = await sc_ensemble(answers, problem)
    return v.response"""
DIRECT = (
    f"{_START}{_CODE}        c = await code_generate(problem, entry_point)\n        return c.code\n"
    "    a = await answer_generate(problem)\n    return a.answer"
)
"""One call: of ``code_generate`` where code is asked for, else of ``answer_generate``."""
SELF_CONSISTENCY = (
    f"{_START}{_CODE}        codes = []\n        for i in range(5):\n"
    "            c = await code_generate(problem, entry_point)\n"
    "            codes.append(c.code)\n"
    f"        v = await sc_ensemble(codes, problem)\n        return v.response\n{_VOTE}"
)
"""The same five times, and a vote (Wang et al. 2022, 2203.11171)."""


@dataclass(frozen=True, slots=True)
class Rival:
    """Programs for a problem; several of them vote.

    Attributes:
        name, title, title_zh, note, note_zh: as of a ``RunPolicy``.
        choose: returns the programs for a problem.
    """

    name: str
    title: str
    title_zh: str
    note: str
    note_zh: str
    choose: Callable[[Problem], Sequence[str]]

    def describe(self) -> RunPolicy:
        """Return what it is in a report."""
        return RunPolicy(
            name=self.name,
            title=self.title,
            title_zh=self.title_zh,
            note=self.note,
            note_zh=self.note_zh,
            kind="baseline",
        )


@dataclass(frozen=True, slots=True)
class Tried:
    """How a program did on validation problems of a type.

    Attributes:
        problem_type: the type.
        program: the program.
        num_right, num_tried: problems.
        tokens: of the executor, on all of them.
    """

    problem_type: str
    program: str
    num_right: float
    num_tried: int
    tokens: int


_SAID = {
    "direct": ("One call", "一次调用", "one operator, asked once", "一个算子，只问一次"),
    "self_consistency": (
        "Self-consistency of 5",
        "五次自洽投票",
        "five answers and a vote",
        "五个答案投票",
    ),
    "best_operator": (
        "Best operator by type",
        "每类最佳算子",
        "the operator that does best alone on a type, chosen on validation",
        "每类单独表现最好的算子，由验证集选出",
    ),
    "best_single": (
        "Best single program",
        "最佳单一程序",
        "one program for all types, chosen on validation",
        "所有类型共用一个程序，由验证集选出",
    ),
    "best_by_type": (
        "Best program by type",
        "每类最佳程序",
        "a fixed program for each type, chosen on validation",
        "每类一个固定程序，由验证集选出",
    ),
    "top_by_type": (
        "Top programs by type",
        "每类最好的几个程序",
        "the best programs of each type, and a vote of their answers",
        "每类最好的几个程序，对其答案投票",
    ),
}
RIVALS = tuple(_SAID)
"""Names of the fixed programs, as in predictions."""
_TRIED = TypeAdapter(list[Tried])
_PROGRAMS = "programs.json"
NUM_VOTERS = 3
"""Of the best programs of a type, whose answers vote (``top_by_type``)."""


def try_programs(
    scorer: ProgramScorer, problems: Sequence[Problem], *, num_problems: int
) -> list[Tried]:
    """Return how every program of the grammar does on each type, on validation problems alone."""
    programs = list_sound_forms()
    tried: list[Tried] = []
    for kind in dict.fromkeys(one.problem_type for one in problems):
        rows = [one for one in problems if one.problem_type == kind][:num_problems]
        pairs = [(row, program) for program in programs for row in rows]
        found = scorer.score_all(pairs)
        for place, program in enumerate(programs):
            part = found[place * len(rows) : (place + 1) * len(rows)]
            right = sum(one.worth or 0.0 for one in part)
            tokens = sum(one.outcome.tokens for one in part if one.outcome)
            tried.append(Tried(kind, program, right, len(rows), tokens))
    return tried


def list_rivals(tried: Sequence[Tried]) -> list[Rival]:
    """Return the rivals; of programs that do equally well, the cheaper one is better."""
    by_type: dict[str, list[Tried]] = {}
    for one in tried:
        by_type.setdefault(one.problem_type, []).append(one)
    best = {kind: _order(rows) for kind, rows in by_type.items()}
    once = {kind: _order(_find_single_calls(rows)) for kind, rows in by_type.items()}
    overall: dict[str, float] = {}
    for one in tried:
        share = one.num_right / one.num_tried
        overall[one.program] = overall.get(one.program, 0.0) + share
    single = max(overall, key=lambda program: overall[program])
    choices: dict[str, Callable[[Problem], Sequence[str]]] = {
        "direct": lambda _: (DIRECT,),
        "self_consistency": lambda _: (SELF_CONSISTENCY,),
        "best_operator": lambda one: once.get(one.problem_type, [DIRECT])[:1],
        "best_single": lambda _: (single,),
        "best_by_type": lambda one: best.get(one.problem_type, [single])[:1],
        "top_by_type": lambda one: best.get(one.problem_type, [single])[:NUM_VOTERS],
    }
    return [Rival(name, *_SAID[name], choose) for name, choose in choices.items()]


def _order(tried: Sequence[Tried]) -> list[str]:
    """Return the programs, the best first."""
    return [one.program for one in sorted(tried, key=lambda one: (-one.num_right, one.tokens))]


def _find_single_calls(tried: Sequence[Tried]) -> list[Tried]:
    return [one for one in tried if one.program.count("await ") == 1 and "for " not in one.program]


def run_rivals(scorer: ProgramScorer, context: StepContext, problems: Sequence[Problem]) -> None:
    """Write how the programs did on validation problems into ``programs.json``."""
    rows = try_programs(scorer, problems, num_problems=context.config.rivals.num_problems)
    write_json(context.folder / _PROGRAMS, _TRIED.dump_python(rows, mode="json"))


def read_tried(folder: Path) -> list[Tried]:
    """Return what ``run_rivals`` wrote into a folder."""
    return _TRIED.validate_python(read_json(folder / _PROGRAMS, list))


def vote(answers: Mapping[str, str | None]) -> str | None:
    """Return a program whose answer most others gave, too, the first of equals; None: no answer."""
    said = {program: extract_answer(a) for program, a in answers.items() if a is not None}
    counts = Counter(said.values())
    return max(said, key=lambda program: counts[said[program]]) if said else None
