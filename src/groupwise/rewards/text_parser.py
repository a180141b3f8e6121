"""The answer parser of free text: all of it is the answer, if it has words."""

from typing import Literal

from groupwise.core import Example
from groupwise.rewards.parser import OpenParser, Parsed
from groupwise.rewards.reward import Reward
from groupwise.rewards.text_answers import has_words


class TextParser(OpenParser):
    """Free text, compared as SQuAD does: case, punctuation and articles do not count."""

    kind: Literal["text"] = "text"

    def make_reward(self) -> Reward:
        """Return the reward of the same words."""
        from groupwise.rewards.exact_match import ExactMatch

        return ExactMatch(self)

    def _read(self, text: str, example: Example | None) -> Parsed:
        del example
        if not has_words(text):
            return Parsed(None, "the answer has no words")
        return Parsed(text.strip(), prefix=text[: len(text) - len(text.lstrip())])

    def _normalize(self, target: str) -> str:
        return target.strip()
