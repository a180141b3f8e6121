r"""Reward: is the marked answer mathematically equal to the reference?

Range: 0 or 1. Source: the comparison is that of the library math-verify
(https://github.com/huggingface/Math-Verify), with these deviations: an answer must be marked
(``\boxed{}`` or ``####``), its numbers may not be split by spaces, no fallback to equal strings is
made, and an answer that states a false equation (``17 = 18``) is wrong.

Left as the library has it: 50%, 0.5 and 50 are taken for equal if one of the two is a percentage;
``x = 5`` equals 5; ``(1, 2)`` equals the set {1, 2}; decimals count to six places; units behind a
number do not count.
"""

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.math_answers import clean_math_answer, find_math_answer
from groupwise.rewards.math_process import MathProcess
from groupwise.rewards.reward import RewardKind


class MathEquality:
    r"""1 if the last marked answer equals the example's label, else 0.

    A label is an answer or a solution with a marked answer (``#### 18``, ``\boxed{18}``). An
    answer that is not marked, cannot be parsed or takes too much time is invalid. Without a label,
    or if the machine ends the comparison, there is no score.

    Args:
        process: compares; None: one with the usual limits.
    """

    name = "math_equality"
    kind: RewardKind = "truth"

    def __init__(self, process: MathProcess | None = None) -> None:
        self._process = process or MathProcess()
        self._known: set[str] = set()

    def __call__(self, example: Example, completion: Completion) -> Score:
        """Return the score.

        Raises:
            RewardError: if the label cannot be parsed.
        """
        if example.label is None:
            return Score(None, "no label")
        gold = find_math_answer(example.label)[0] or clean_math_answer(example.label)
        if not self._is_known(gold, example):
            return Score(None, f"reading the label {gold} was cut off")
        answer, problem = find_math_answer(completion.text)
        if answer is None:
            return Score(0.0, problem, invalid=True)
        verdict = self._process.compare(gold, answer)
        if verdict == "equal":
            return Score(1.0, f"{answer} equals {gold}")
        if verdict == "different":
            return Score(0.0, f"{answer} does not equal {gold}")
        if verdict == "unknown":
            return Score(None, f"the comparison of {answer} with {gold} was cut off")
        return Score(0.0, f"the marked answer is {verdict}", invalid=True)

    def _is_known(self, gold: str, example: Example) -> bool:
        """Say whether the label can be parsed; False if nobody could say."""
        if gold not in self._known:
            verdict = self._process.parse(gold)
            if verdict == "unknown":
                return False
            if verdict != "parsed":
                raise RewardError(
                    f"the label of example {example.id} is {verdict}",
                    got=repr(example.label),
                    expected="a mathematical expression",
                )
            self._known.add(gold)
        return True
