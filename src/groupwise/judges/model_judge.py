"""What all judges that ask a model share: prompt, version, cache, retries, ledger."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from groupwise.core import Config, Example, Message, digest_json, make_example
from groupwise.inference import RequestError, Responder, RetrySettings, Usage, on_shared_loop
from groupwise.judges.asking import Asker, Attempt, Outcome
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import NoVerdict, Question, Verdict, Versioned
from groupwise.judges.ledger import Ledger, StopSettings
from groupwise.judges.prompt import JudgePrompt

_READING = 1
"""To be raised when replies are read in another way, so that kept ones are not."""


class JudgeSettings(Config):
    """How a judge asks; it does not change what a verdict is, so it is not in the version.

    Attributes:
        retry: of requests that failed or whose reply does not count.
        stop: when too many questions have no verdict.
    """

    retry: RetrySettings = RetrySettings()
    stop: StopSettings = StopSettings()


class ModelJudge(Versioned):
    """A judge that puts a prompt to a model.

    Args:
        responder: what answers.
        prompt: with places for the question's texts.
        labels: of the verdicts, at least two.
        name: for people.
        settings: how it asks; None: the defaults.
        cache: where replies are kept.
    """

    def __init__(
        self,
        responder: Responder,
        prompt: JudgePrompt,
        *,
        labels: Sequence[str],
        name: str,
        settings: JudgeSettings | None,
        cache: ReplyCache | None,
    ) -> None:
        self.responder = responder
        self.prompt = prompt
        self.name = name
        self.labels = tuple(labels)
        self.cache = cache
        settings = settings or JudgeSettings()
        self.ledger = Ledger(name, settings.stop)
        self._asker = Asker(cache=cache, settings=settings.retry)

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        return {
            "kind": type(self).__name__,
            "reading": _READING,
            "prompt": self.prompt.digest,
            "labels": list(self.labels),
            **self.responder.identity,
        }

    def report(self) -> dict[str, object]:
        """Return the counts so far, with name and version of the judge and the cache's hit rate."""
        hit_rate = self.cache.hit_rate if self.cache is not None else None
        counts = self.ledger.report()
        return {"judge": self.name, "version": self.version, **counts, "cache_hit_rate": hit_rate}

    @on_shared_loop
    async def judge(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict, or why there is none.

        Raises:
            JudgeError: if too many questions had no verdict, or the question lacks a text.
        """
        self.ledger.check()
        result = await self._decide(question)
        self.ledger.record(result)
        self.ledger.check()
        return result

    @abstractmethod
    async def _decide(self, question: Question) -> Verdict | NoVerdict:
        """Return the verdict on one question."""

    async def _ask(self, example: Example, attempt: Attempt) -> Outcome:
        """Ask once for equal prompts and pictures under this judge's version."""
        outcome = await self._asker.ask(digest_json([self.version, example.id]), attempt)
        self.ledger.count_failed_requests(outcome.failures)
        return outcome

    def _give_up(self, outcomes: Sequence[Outcome], error: RequestError) -> NoVerdict:
        """Return that there is no verdict because of ``error``, with what asking had cost."""
        return NoVerdict(
            error.cause,
            str(error),
            self.version,
            sum((outcome.usage for outcome in outcomes), Usage()),
            sum(len(outcome.failures) for outcome in outcomes),
        )


def build_example(text: str, question: Question) -> Example:
    """Return a rendered prompt with the question's pictures as something to ask a model."""
    return make_example([Message("user", text)], cluster="judge", pictures=question.pictures)
