"""Whether an answer is right: by rules, by a judge where no rule decides, or by the judge alone."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from groupwise.core import Completion, Example, Message, Score, make_example
from groupwise.judges import Judge, NoVerdict, Question, Verdict, judge_all
from groupwise.rewards import (
    ChoiceParser,
    CodeParser,
    CodeTests,
    ExactMatch,
    MathEquality,
    NumberParser,
    TokenF1,
)
from groupwise.sandbox import Limits
from groupwise_recipes.workflows.agreement import Opinions, count_agreement
from groupwise_recipes.workflows.problem_sets import Problem

Mode = Literal["rules_first", "judge_only"]

_MARKED = re.compile(r"####|\\boxed\b")
_LEAD = re.compile(
    r"\s*(?:so,?\s+|thus,?\s+|therefore,?\s+)?"
    r"(?:(?:the )?(?:final |correct )?answer\b(?: is\b)?|答案(?:是|为)?)\s*[:：]?\s*",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Decision:
    """What an answer is worth.

    Attributes:
        value: 1 right, 0 wrong, between them partly right (words in common with the reference);
            None: nothing could decide.
        by: what decided; None: nothing.
        reason: for a person to read.
        asked: whether the judge was asked.
    """

    value: float | None
    by: Literal["rule", "judge"] | None
    reason: str
    asked: bool = False


class Decider:
    """Decides about answers.

    Args:
        mode: ``rules_first``: the judge is asked only where no rule decides; ``judge_only``: it
            decides everything, and rules are only compared with it.
        judge: of a question, a reference and an answer, with the labels True and False; None:
            none is there, and words that are partly those of the reference are partly right.
        limits: of code with its tests.

    Raises:
        ValueError: if there is nothing that decides.
    """

    def __init__(
        self, mode: Mode = "rules_first", judge: Judge | None = None, *, limits: Limits
    ) -> None:
        if mode == "judge_only" and judge is None:
            raise ValueError("judge_only needs a judge")
        self.mode = mode
        self.judge = judge
        self.compared: defaultdict[str, list[Opinions]] = defaultdict(list)
        self._maths = MathEquality()
        self._number = MathEquality(NumberParser())
        self._code = CodeTests(CodeParser(), limits=limits)
        self._match, self._f1 = ExactMatch(), TokenF1()

    def decide(self, pairs: Sequence[tuple[Problem, str]]) -> list[Decision]:
        """Return a decision for each problem and answer, in order; equal pairs are decided once."""
        unique = {(problem.id, answer): (problem, answer) for problem, answer in pairs}
        found = dict(zip(unique, self._decide(list(unique.values())), strict=True))
        return [found[problem.id, answer] for problem, answer in pairs]

    def compare(self, pairs: Sequence[tuple[Problem, str]]) -> list[Opinions]:
        """Return what rules and judge say of each answer; none without a judge."""
        if self.judge is None:
            return []
        rules, verdicts = self._apply_rules(pairs), self._ask(pairs)
        return [
            _confront(problem, *both)
            for (problem, _), *both in zip(pairs, rules, verdicts, strict=True)
        ]

    def _decide(self, pairs: Sequence[tuple[Problem, str]]) -> list[Decision]:
        rules = self._apply_rules(pairs)
        wanted = [n for n, rule in enumerate(rules) if self._asks_judge(pairs[n][0], rule)]
        verdicts = dict(zip(wanted, self._ask([pairs[n] for n in wanted]), strict=True))
        for n, verdict in verdicts.items():
            problem = pairs[n][0]
            self.compared[problem.problem_type].append(_confront(problem, rules[n], verdict))
        return [verdicts.get(n, rule) for n, rule in enumerate(rules)]

    def report(self) -> dict[str, Any]:
        """Return how often rules and judge agreed, by type, where the judge was asked."""
        counts = {
            kind: count_agreement(found).to_json() for kind, found in sorted(self.compared.items())
        }
        judged: Callable[[], Mapping[str, Any]] = getattr(self.judge, "report", dict)
        return {"mode": self.mode, "agreement": counts, "judge": dict(judged())}

    def _asks_judge(self, problem: Problem, rule: Decision) -> bool:
        return self.judge is not None and (self.mode == "judge_only" or _is_open(problem, rule))

    def _ask(self, pairs: Sequence[tuple[Problem, str]]) -> list[Decision]:
        if self.judge is None:
            return []
        questions = [
            Question({"question": one.problem, "reference": _refer(one), "answer": answer})
            for one, answer in pairs
        ]
        return [_read_verdict(found) for found in judge_all(self.judge, questions)]

    def _apply_rules(self, pairs: Sequence[tuple[Problem, str]]) -> list[Decision]:
        found: dict[int, Score] = {}
        for reward, chosen in self._share_out(pairs):
            examples = [make_decidable(pairs[n][0]) for n in chosen]
            texts = [Completion(self._spell(*pairs[n])) for n in chosen]
            found |= dict(zip(chosen, reward(examples, texts), strict=True))
        return [_read_score(found[n]) for n in range(len(pairs))]

    def _share_out(self, pairs: Sequence[tuple[Problem, str]]) -> list[tuple[Any, list[int]]]:
        """Return each rule with the places of the pairs that it decides."""
        by_rule: dict[str, list[int]] = {}
        for n, (problem, answer) in enumerate(pairs):
            by_rule.setdefault(self._choose(problem, answer), []).append(n)
        rules = {
            "maths": self._maths.score_batch,
            "number": self._number.score_batch,
            "code": self._code.score_batch,
            "choice": _score_choices,
            "prose": _refuse_prose,
            "words": self._score_words,
        }
        return [(rules[name], places) for name, places in by_rule.items()]

    def _choose(self, problem: Problem, answer: str) -> str:
        if problem.problem_type == "math":
            said = extract_answer(answer)
            is_prose = "\n" in said and not _MARKED.search(said)
            is_number = self._number.parser.parse(said).label is not None
            return "prose" if is_prose else "number" if is_number else "maths"
        if problem.problem_type == "code":
            return "code"
        return "choice" if problem.options else "words"

    def _spell(self, problem: Problem, answer: str) -> str:
        """Return an answer as its rule reads it."""
        if problem.problem_type == "code":
            return answer
        said, rule = extract_answer(answer), self._choose(problem, answer)
        if rule == "words":  # words that introduce an answer may be the answer: `Answer Me!`
            example = make_decidable(problem)
            return max(said, answer, key=lambda t: self._f1(example, Completion(t)).value or 0.0)
        is_bare = rule == "maths" and not _MARKED.search(said)
        return rf"\boxed{{{said}}}" if is_bare else said

    def _score_words(self, examples: Sequence[Example], texts: Sequence[Completion]) -> list[Score]:
        pairs = list(zip(examples, texts, strict=True))
        matched = [self._match(*pair) for pair in pairs]
        return [
            one if one.value == 1.0 else self._f1(*pair)
            for one, pair in zip(matched, pairs, strict=True)
        ]


def extract_answer(text: str) -> str:
    """Return an answer without the words that introduce it and the full stop after it.

    It is a normalisation: what is left stands in the text, and nothing is chosen from it. A text of
    nothing else is left as it is.
    """
    lead = _LEAD.match(text)
    if lead and not text[lead.end() :].strip(" \t\n.。"):
        lead = None
    said = text[lead.end() :].strip() if lead else text.strip()
    return said[:-1].rstrip() if said.endswith(("。", ".")) and not said.endswith("..") else said


def make_decidable(problem: Problem) -> Example:
    """Return the problem as rewards of the library read it: references, options and hidden tests.

    Never shown to a policy or an executor.
    """
    fields: dict[str, Any] = {}
    if problem.problem_type == "code":
        tests = "\n".join((problem.setup, *problem.hidden_tests))
        fields = {"tests": tests, "entry_point": problem.entry_point}
        fields["solution"] = problem.ground_truth
    elif problem.options:
        fields = {"options": list(problem.options)}
    elif problem.problem_type == "qa":
        fields = {"answers": [problem.ground_truth, *problem.answers]}
    return make_example(
        [Message("user", problem.problem)],
        label=problem.ground_truth,
        cluster=problem.cluster,
        fields=fields,
    )


def _is_open(problem: Problem, rule: Decision) -> bool:
    """Other words may mean the same: a rule decides about words only where they are equal."""
    are_words = problem.problem_type == "qa" and not problem.options
    return rule.value is None or (are_words and rule.value < 1.0)


def _confront(problem: Problem, rule: Decision, verdict: Decision) -> Opinions:
    return Opinions(None if _is_open(problem, rule) else rule.value, verdict.value)


def _score_choices(examples: Sequence[Example], texts: Sequence[Completion]) -> list[Score]:
    return [_score_choice(*pair) for pair in zip(examples, texts, strict=True)]


def _refuse_prose(examples: Sequence[Example], _: Sequence[Completion]) -> list[Score]:
    """Several lines of which none is marked as the answer are no value of mathematics."""
    return [Score(0.0, "several lines, and no answer is marked", invalid=True) for _ in examples]


def _score_choice(example: Example, completion: Completion) -> Score:
    options: Any = example.fields["options"]
    reward = ChoiceParser(num_options=max(2, len(options))).make_reward()
    return reward(example, completion)


def _refer(problem: Problem) -> str:
    """Return what the judge is to compare with: an option's letter with its text."""
    if problem.options:
        place = ord(problem.ground_truth) - ord("A")
        return f"{problem.ground_truth}: {problem.options[place]}"
    return " / ".join((problem.ground_truth, *problem.answers))


def _read_score(score: Score) -> Decision:
    return Decision(score.value, None if score.value is None else "rule", score.reason)


def _read_verdict(found: Verdict | NoVerdict) -> Decision:
    if isinstance(found, NoVerdict):
        return Decision(None, None, f"no verdict ({found.cause})", asked=True)
    said = f"the judge says {found.label}"
    return Decision(float(found.label == "True"), "judge", said, asked=True)
