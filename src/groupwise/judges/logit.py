"""A judge whose verdict is the probability of the labels at the first token of its reply."""

import asyncio
from collections.abc import Mapping, Sequence

from groupwise.core import Example, JudgeError
from groupwise.inference.responder import RequestError, Responder, Usage
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import NoVerdict, Question, Verdict
from groupwise.judges.model_judge import JudgeSettings, ModelJudge, Outcome, Reply, build_example
from groupwise.judges.prompt import OPTIONS, JudgePrompt

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class LogitJudge(ModelJudge):
    """Reads the first token's probabilities; nothing is generated.

    A prompt with ``{{options}}`` lists the labels as ``A``, ``B``, ... and asks for the letter. It
    is asked twice, the second time with the options in the opposite order, and the probabilities
    are averaged. If the likelier label changes with the order, the verdict is flipped and its
    confidence is 0. A prompt without options asks for the label itself, once.

    Args:
        responder: what answers.
        prompt: with or without ``{{options}}``.
        labels: of the verdicts.
        option_texts: what stands behind the letters; None: the labels.
        swap_options: whether options are also listed in the opposite order. A pairwise judge
            swaps the answers instead.
        settings: how it asks.
        cache: where replies are kept.

    Raises:
        JudgeError: if the number of options does not fit.
    """

    def __init__(
        self,
        responder: Responder,
        prompt: JudgePrompt,
        *,
        labels: Sequence[str],
        option_texts: Sequence[str] | None = None,
        swap_options: bool = True,
        name: str = "logit",
        settings: JudgeSettings | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        super().__init__(
            responder, prompt, labels=labels, name=name, settings=settings, cache=cache
        )
        self.option_texts = tuple(option_texts or labels)
        self.has_options = OPTIONS in prompt.places
        self.swap_options = swap_options
        if not 2 <= len(self.labels) <= len(_LETTERS) or len(set(self.labels)) < len(self.labels):
            raise JudgeError("these cannot be options", got=list(self.labels), expected="2 to 26")
        if len(self.option_texts) != len(self.labels):
            raise JudgeError(
                "there must be one option text for each label",
                got=len(self.option_texts),
                expected=len(self.labels),
            )

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        options = list(self.option_texts) if self.has_options else None
        return {**super().describe(), "options": options, "swap_options": self.swap_options}

    async def _decide(self, question: Question) -> Verdict | NoVerdict:
        places = list(range(len(self.labels)))
        orders = [places, places[::-1]] if self.has_options and self.swap_options else [places]
        outcomes = await asyncio.gather(*(self._weigh(question, order) for order in orders))
        weighed: list[dict[str, float]] = []
        for outcome, order in zip(outcomes, orders, strict=True):
            if isinstance(outcome.result, RequestError):
                return self._give_up(outcomes, outcome.result)
            weighed.append(self._map_back(outcome.result["shares"], order))
        return self._combine(weighed, outcomes)

    def build_example(self, question: Question, order: Sequence[int]) -> Example:
        """Return what the model is asked, with the options in this order of the labels."""
        listed = [f"{_LETTERS[n]}: {self.option_texts[i]}" for n, i in enumerate(order)]
        options = "\n".join(listed) if self.has_options else None
        return build_example(self.prompt.render(question.texts, options=options), question)

    async def _weigh(self, question: Question, order: Sequence[int]) -> Outcome:
        example = self.build_example(question, order)
        asked = tuple(_LETTERS[: len(order)]) if self.has_options else self.labels

        async def attempt() -> tuple[Reply, Usage]:
            weighed = await self.responder.weigh_labels(example, labels=asked)
            shares = [weighed.shares[label] for label in asked]
            return {"shares": shares, "error": weighed.error}, weighed.usage

        return await self._ask(example, attempt)

    def _map_back(self, shares: Sequence[float], order: Sequence[int]) -> dict[str, float]:
        """Return the shares of the options as those of the labels."""
        return {self.labels[i]: share for i, share in sorted(zip(order, shares, strict=True))}

    def _combine(
        self, weighed: Sequence[Mapping[str, float]], outcomes: Sequence[Outcome]
    ) -> Verdict:
        means = {n: sum(shares[n] for shares in weighed) / len(weighed) for n in self.labels}
        label = max(means, key=lambda name: means[name])
        bias = None
        if len(weighed) > 1:
            bias = max(abs(weighed[0][name] - weighed[1][name]) for name in self.labels)
        favourites = [_list_favourites(shares) for shares in weighed]
        is_flipped = not set.intersection(*favourites)
        return Verdict(
            label,
            0.0 if is_flipped else min(1.0, means[label]),
            {name: min(1.0, mean) for name, mean in means.items()},
            self.version,
            usage=sum((outcome.usage for outcome in outcomes), Usage()),
            is_cached=all(outcome.is_cached for outcome in outcomes),
            is_flipped=is_flipped,
            position_bias=bias,
        )


def _list_favourites(shares: Mapping[str, float]) -> set[str]:
    most = max(shares.values())
    return {label for label, share in shares.items() if share == most}
