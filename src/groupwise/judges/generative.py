"""A judge that reasons in words and gives its verdict in a tag."""

from collections.abc import Mapping, Sequence

from groupwise.core import dump_config
from groupwise.inference.engine import Sampling
from groupwise.inference.responder import RequestError, Responder, Usage, ask_until_whole
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import NoVerdict, Question, Verdict
from groupwise.judges.model_judge import JudgeSettings, ModelJudge, Reply, build_example
from groupwise.judges.prompt import JudgePrompt, read_tag

_ANALYSIS = "analysis"


class GenerativeJudge(ModelJudge):
    """Asks for ``<analysis>…</analysis><true_false>True|False</true_false>``.

    The reply counts only if it is whole and has exactly one pair of tags around a label. The
    judge says nothing about how sure it is, so its confidence is 1.

    Args:
        responder: what answers.
        prompt: it must ask for the tag.
        tag: name of the verdict's tag.
        labels: what may stand in it.
        sampling: a reply that is cut off or empty is asked for again with twice the tokens.
        settings: how it asks.
        cache: where replies are kept.
    """

    def __init__(
        self,
        responder: Responder,
        prompt: JudgePrompt,
        *,
        tag: str = "true_false",
        labels: Sequence[str] = ("True", "False"),
        sampling: Sampling | None = None,
        name: str = "generative",
        settings: JudgeSettings | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        super().__init__(
            responder, prompt, labels=labels, name=name, settings=settings, cache=cache
        )
        self.tag = tag
        self.sampling = sampling or Sampling(max_new_tokens=1024)
        read_tag("", tag, labels)

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        return {**super().describe(), "tag": self.tag, "sampling": dump_config(self.sampling)}

    def read(self, said: str) -> str | None:
        """Return the label that a whole reply gives; None if it gives none, or several."""
        return read_tag(said, self.tag, self.labels)

    async def _decide(self, question: Question) -> Verdict | NoVerdict:
        text = self.prompt.render(question.texts, tags=(self.tag, _ANALYSIS))
        example = build_example(text, question)
        ask = ask_until_whole(self.responder, example, self.sampling)

        async def attempt() -> tuple[Reply, Usage]:
            said, usage = await ask()
            if self.read(said) is None:
                what = "the reply does not give exactly one verdict in the form asked for"
                raise RequestError("unparsable", what, usage=usage)
            return {"text": said}, usage

        outcome = await self._ask(example, attempt)
        if isinstance(outcome.result, RequestError):
            return self._give_up([outcome], outcome.result)
        said = str(outcome.result["text"])
        label = self.read(said)
        if label is None:
            error = RequestError("unparsable", "the kept reply has no verdict")
            return self._give_up([outcome], error)
        return Verdict(
            label,
            1.0,
            {name: float(name == label) for name in self.labels},
            self.version,
            reason=said.strip(),
            usage=outcome.usage,
            is_cached=outcome.is_cached,
        )
