"""What the stub says: right or wrong by a hash of operator, problem, fields and the seed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from groupwise.core import digest_json
from groupwise_recipes.workflows.executor_stub.abilities import Abilities, find_kind
from groupwise_recipes.workflows.executor_stub.truths import (
    NUM_WRONG,
    Truths,
    are_equal,
    draw,
    simplify,
    take_answer,
)
from groupwise_recipes.workflows.operators import read_request
from groupwise_recipes.workflows.operators.prompts import find_fences
from groupwise_recipes.workflows.problem_sets import Problem

_UNKNOWN = "unknown"
Fields = Mapping[str, str | list[str]]


@dataclass(frozen=True, slots=True)
class StubReply:
    """A reply.

    Attributes:
        text: what is said.
        reasoning_tokens: that it cost beside its text.
    """

    text: str
    reasoning_tokens: int = 0


class StubModel:
    """Answers requests of operators, and of a judge.

    Args:
        problems: whose answers it knows; others get a wrong one.
        abilities: how often it is right.
    """

    def __init__(self, problems: Sequence[Problem], abilities: Abilities | None = None) -> None:
        self.truths = Truths(problems)
        self.abilities = abilities or Abilities()

    def reply(self, text: str, seed: int) -> StubReply:
        """Return the reply to a prompt; the same prompt and seed have the same reply."""
        request = read_request(text)
        if request is None:
            return StubReply(self._judge(text, seed))
        operator, fields = request
        problem = self.truths.find(_get(fields, "problem") or _get(fields, "input"))
        said = _Turn(self, operator, fields, problem, seed).say()
        return StubReply(said, self.abilities.reasoning_tokens.get(operator, 0))

    def _judge(self, text: str, seed: int) -> str:
        fields = find_fences(text)
        if not {"reference", "answer"} <= fields.keys():
            return _UNKNOWN
        problem = self.truths.find(fields.get("question", ""))
        said = fields["answer"]
        if problem is not None:
            is_right = self.truths.is_right(problem, said)
        else:
            is_right = are_equal(said, fields["reference"])
        is_honest = draw("judge", fields["reference"], said, seed) < self.abilities.judge
        verdict = is_right if is_honest else not is_right
        return f"<analysis>They were compared.</analysis><true_false>{verdict}</true_false>"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request of an operator."""

    model: StubModel
    operator: str
    fields: Fields
    problem: Problem | None
    seed: int

    def say(self) -> str:
        if self.operator in ("custom", "answer_generate"):
            answer = self._solve()
            thought = "<thought>Step by step.</thought>"
            is_plain = self.operator == "custom"
            return answer if is_plain else f"{thought}<answer>{answer}</answer>"
        if self.operator in ("programmer", "code_generate"):
            return f"<code>\n{self._write_code()}\n</code>"
        if self.operator in ("test", "revise"):
            return f"<solution>{self._mend()}</solution>"
        if self.operator == "sc_ensemble":
            return f"<thought>They were compared.</thought><letter>{self._vote()}</letter>"
        return self._review() if self.operator == "review" else self._format()

    def _happens(self, share: float, what: str) -> bool:
        """Draw whether something happens: again for every seed and every change of a field."""
        key = digest_json([self.operator, dict(self.fields)])
        return draw(what, key, self.seed) < share

    def _solve(self) -> str:
        if self.problem is None:
            return _UNKNOWN
        abilities, kind = self.model.abilities, find_kind(self.problem)
        ability = abilities.solve.get(self.operator, {}).get(kind, 0.0)
        stuck = (1 - ability) * abilities.systematic[kind]
        if draw("stuck", self.operator, self.problem.id) < stuck:
            return self.model.truths.make_wrong(self.problem, 0)
        if self._happens(ability / (1 - stuck), "right"):
            return self.problem.ground_truth
        return self._err()

    def _err(self) -> str:
        if self.problem is None:
            return _UNKNOWN
        key = digest_json(dict(self.fields))
        number = 1 + int(draw("wrong", key, self.seed) * (NUM_WRONG - 1))
        return self.model.truths.make_wrong(self.problem, number)

    def _write_code(self) -> str:
        answer = self._solve()
        is_code = self.problem is not None and self.problem.problem_type == "code"
        if self.operator == "code_generate":
            name = _get(self.fields, "entry_point")
            return answer if is_code else f"def {name}(*args):\n    return {answer!r}"
        is_first = not _get(self.fields, "feedback")
        if is_first and self._happens(self.model.abilities.crash, "crash"):
            return "def solve():\n    return 1 // 0"
        return f"def solve():\n    return {answer!r}"

    def _mend(self) -> str:
        solution = _get(self.fields, "solution")
        if self.problem is None:
            return solution
        abilities = self.model.abilities
        if self.model.truths.is_right(self.problem, solution):
            return solution if self._happens(abilities.keep, "keep") else self._err()
        share = abilities.fix[find_kind(self.problem)]
        has_feedback = bool(_get(self.fields, "feedback").strip())
        if self._happens(share if has_feedback else share / 2, "fix"):
            return self.problem.ground_truth
        return self._err()

    def _vote(self) -> str:
        solutions = self.fields["solutions"]
        keys = [simplify(solution) for solution in solutions]
        place = max(range(len(keys)), key=lambda n: (Counter(keys)[keys[n]], -n))
        if not self._happens(self.model.abilities.vote, "vote"):
            place = int(draw("letter", digest_json(keys), self.seed) * len(keys))
        return chr(ord("A") + place)

    def _review(self) -> str:
        is_ok = self.problem is not None and self._see()
        what = "Nothing is wrong." if is_ok else "The result is wrong: check every step."
        return f"<feedback>{what}</feedback><ok>{is_ok}</ok>"

    def _see(self) -> bool:
        assert self.problem is not None
        abilities, kind = self.model.abilities, find_kind(self.problem)
        is_right = self.model.truths.is_right(self.problem, _get(self.fields, "solution"))
        share = abilities.sees_right[kind] if is_right else abilities.sees_wrong[kind]
        return is_right if self._happens(share, "see") else not is_right

    def _format(self) -> str:
        solution = _get(self.fields, "solution")
        is_short = self.problem is None or self.model.truths.is_right(self.problem, solution)
        taken = self._happens(self.model.abilities.extract, "extract") and not is_short
        is_code = self.problem is not None and self.problem.problem_type == "code"
        said = take_answer(solution) if taken and not is_code else solution
        return f"<answer>{said}</answer>"


def _get(fields: Fields, name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else ""
