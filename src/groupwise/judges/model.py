"""Judges that ask a model: what all of them share, one that reasons, and one that reads labels.

Prompts are text files with places for fenced texts, known by the digest of their words. A place is
``{{name}}`` and takes the question's text of that name, between fences. ``{{options}}`` takes the
list of options, which is the judge's own. Verdicts in tags are read strictly or not at all.
"""

import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from groupwise.core import (
    Config,
    Example,
    JudgeError,
    Message,
    digest_json,
    dump_config,
    make_example,
)
from groupwise.inference.model import (
    Model,
    RequestCause,
    RequestError,
    Sampling,
    Usage,
    ask_until_whole,
    on_shared_loop,
    retry,
)
from groupwise.inference.settings import RetrySettings
from groupwise.judges.cache import ReplyCache
from groupwise.judges.judge import Ledger, NoVerdict, Question, StopSettings, Verdict, Versioned

if TYPE_CHECKING:
    import asyncio

OPTIONS = "options"
_PLACE = re.compile(r"\{\{([a-z_]+)\}\}")
_TAG = re.compile(r"[a-z][a-z_]*")


def fence(name: str, text: str, *, tags: Sequence[str] = ()) -> str:
    """Return ``text`` between two lines that it cannot contain.

    The lines carry a mark that depends on the text and does not occur in it, so a text that
    brings lines of its own does not close the fence. Tags by which the verdict is given
    (``<true_false>``) are spelled ``&lt;true_false>`` inside: a judge that quotes them does not
    spoil its own verdict, which would let an answer buy itself "no verdict".
    """
    if tags:
        names = "|".join(map(re.escape, tags))
        text = re.sub(rf"<(?=\s*/?\s*(?:{names}))", "&lt;", text, flags=re.IGNORECASE)
    number = 0
    while (mark := digest_json([name, text, number])[:16]) in text:
        number += 1
    return f"[[{name} {mark}]]\n{text}\n[[end of {name} {mark}]]"


@dataclass(frozen=True, slots=True)
class JudgePrompt:
    """The words of a prompt, one user turn."""

    text: str  # with its places
    name: str = "prompt"  # for people; it is not part of the digest

    @property
    def digest(self) -> str:
        """Digest of the words; line ends and white space around them do not count."""
        return digest_json(self.text.replace("\r\n", "\n").strip())

    @property
    def places(self) -> tuple[str, ...]:
        """Names of the places, each once, in order."""
        return tuple(dict.fromkeys(_PLACE.findall(self.text)))

    def render(
        self, texts: Mapping[str, str], *, tags: Sequence[str] = (), options: str | None = None
    ) -> str:
        """Return the prompt with every place filled; texts without a place are left out.

        Raises:
            JudgeError: if a place has no text.
        """
        missing = [p for p in self.places if p not in texts and p != OPTIONS]
        if missing or (options is None and OPTIONS in self.places):
            raise JudgeError(
                f"the question has no text for the prompt {self.name!r}",
                got=", ".join(texts) or "no texts",
                expected=", ".join(self.places),
            )

        def fill(match: re.Match[str]) -> str:
            name = match.group(1)
            if name == OPTIONS and options is not None:
                return options
            return fence(name, texts[name], tags=tags)

        return _PLACE.sub(fill, self.text.replace("\r\n", "\n").strip())


def load_prompt(source: str | Path, *, language: str = "en") -> JudgePrompt:
    """Return a prompt of this package by its name (``correct``), or one from a file.

    Raises:
        JudgeError: if there is no such prompt.
    """
    path, folder = Path(source), Path(__file__).with_name("prompts")
    if isinstance(source, str):
        path = folder / f"{source}.{language}.txt"
        if not path.is_file():
            raise JudgeError(
                "there is no such judge prompt",
                got=f"{source!r} in {language!r}",
                expected=", ".join(sorted(one.stem for one in folder.glob("*.txt"))),
                fix="name one of them or give the path of a file",
            )
    try:
        return JudgePrompt(path.read_text(encoding="utf-8"), path.stem)
    except (OSError, UnicodeDecodeError) as error:
        raise JudgeError(f"cannot read the prompt {source} ({error})") from error


def read_tag(text: str, tag: str, labels: Sequence[str]) -> str | None:
    """Return the label between the one pair of tags in ``text``, or None.

    None unless the text has exactly one opening and one closing tag, in this order and spelled
    exactly, and between them one label, spelled as in ``labels`` (white space around it does not
    count). Anything else that begins like the tag, in any case, is a second one.
    """
    if not _TAG.fullmatch(tag):
        raise JudgeError("this cannot be a tag", got=repr(tag), expected="a-z and underscores")
    begun = re.findall(rf"<\s*/?\s*{tag}", text, flags=re.IGNORECASE)
    found = re.search(rf"<{tag}>([^<>]*)</{tag}>", text)
    if len(begun) != 2 or found is None:
        return None
    label = found.group(1).strip()
    return label if label in labels else None


Reply = Mapping[str, Any]
"""What is kept of a model's reply: JSON values."""
Attempt = Callable[[], Awaitable[tuple[Reply, Usage]]]
"""One request; raises RequestError where there is no reply that counts."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How asking ended."""

    result: Reply | RequestError  # the reply, or the error of the last attempt
    usage: Usage = field(default_factory=Usage)  # of all attempts made for this outcome
    failures: tuple[RequestCause, ...] = ()  # causes of the failed attempts, in order
    is_cached: bool = False  # whether nothing was asked for this outcome


class Asker:
    """Asks each question once; belongs to one event loop.

    Args:
        cache: where replies are kept; None: nowhere.
        settings: how failed requests are repeated.
    """

    def __init__(self, *, cache: ReplyCache | None, settings: RetrySettings) -> None:
        self.cache = cache
        self.settings = settings
        self._open: dict[str, tuple[asyncio.Task[Outcome], list[None]]] = {}

    async def ask(self, key: str, attempt: Attempt) -> Outcome:
        """Return the reply under ``key``: kept, being fetched already, or fetched now.

        Who joins a question in flight pays nothing for it. A question that nobody waits for any
        more is given up.
        """
        import asyncio  # not for whoever only reads a config

        known = self.cache.get(key) if self.cache is not None else None
        if known is not None:
            return Outcome(known, is_cached=True)
        joined = key in self._open
        if not joined:
            self._open[key] = asyncio.ensure_future(self._fetch(key, attempt)), []
        question = task, waiting = self._open[key]
        waiting.append(None)
        try:
            outcome = await asyncio.shield(task)
        finally:
            waiting.pop()
            if not waiting:
                task.cancel()
                if self._open.get(key) is question:
                    del self._open[key]
        if joined:
            return replace(outcome, usage=Usage(), failures=(), is_cached=True)
        return outcome

    async def _fetch(self, key: str, attempt: Attempt) -> Outcome:
        failed: list[RequestError] = []
        usage = Usage()
        try:
            result, usage = await retry(attempt, self.settings, on_failure=failed.append)
            if self.cache is not None:
                self.cache.put(key, result)
        except RequestError as error:
            result = error
        usage = sum((failure.usage for failure in failed), usage)
        return Outcome(result, usage, tuple(failure.cause for failure in failed))


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
        model: what answers.
        prompt: with places for the question's texts.
        labels: of the verdicts, at least two.
        name: for people.
        settings: how it asks; None: the defaults.
        cache: where replies are kept; None: nowhere.
    """

    def __init__(
        self,
        model: Model,
        prompt: JudgePrompt,
        *,
        labels: Sequence[str],
        name: str,
        settings: JudgeSettings | None,
        cache: ReplyCache | None,
    ) -> None:
        self.prompt = prompt
        self.name = name
        self.labels = tuple(labels)
        self._set_up(model, settings or JudgeSettings(), cache)

    def _set_up(self, model: Model, settings: JudgeSettings, cache: ReplyCache | None) -> None:
        self.model = model
        self.cache = cache
        self.ledger = Ledger(self.name, settings.stop)
        self._asker = Asker(cache=cache, settings=settings.retry)
        self._version = ""

    def describe(self) -> Mapping[str, object]:
        """Return all that verdicts depend on beside the question."""
        return {
            "kind": type(self).__name__,
            "reading": _READING,
            "prompt": self.prompt.digest,
            "labels": list(self.labels),
            **self.model.identity,
        }

    def put_on(self, model: Model, settings: JudgeSettings) -> Self:
        """Return the same judge on another model, without a cache."""
        judge = copy(self)
        judge._set_up(model, settings, None)
        return judge

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


class GenerativeJudge(ModelJudge):
    """Asks for ``<analysis>…</analysis><true_false>True|False</true_false>``.

    The reply counts only if it is whole and has exactly one pair of tags around a label. The
    judge says nothing about how sure it is, so its confidence is 1.

    Args:
        model: what answers.
        prompt: it must ask for the tag.
        tag: name of the verdict's tag.
        labels: what may stand in it.
        sampling: a reply that is cut off or empty is asked for again with twice the tokens.
        name, settings, cache: as of ``ModelJudge``.
    """

    def __init__(
        self,
        model: Model,
        prompt: JudgePrompt,
        *,
        tag: str = "true_false",
        labels: Sequence[str] = ("True", "False"),
        sampling: Sampling | None = None,
        name: str = "generative",
        settings: JudgeSettings | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        super().__init__(model, prompt, labels=labels, name=name, settings=settings, cache=cache)
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
        text = self.prompt.render(question.texts, tags=(self.tag, "analysis"))
        example = build_example(text, question)
        ask = ask_until_whole(self.model, example, self.sampling)

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


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


class LogitJudge(ModelJudge):
    """Reads the first token's probabilities; nothing is generated.

    A prompt with ``{{options}}`` lists the labels as ``A``, ``B``, ... and asks for the letter. It
    is asked twice, the second time with the options in the opposite order, and the probabilities
    are averaged. If the likelier label changes with the order, the verdict is flipped and its
    confidence is 0. A prompt without options asks for the label itself, once.

    Args:
        model: what answers.
        prompt: with or without ``{{options}}``.
        labels: of the verdicts.
        option_texts: what stands behind the letters; None: the labels.
        swap_options: whether options are also listed in the opposite order. A pairwise judge
            swaps the answers instead.
        name, settings, cache: as of ``ModelJudge``.

    Raises:
        JudgeError: if the number of options does not fit.
    """

    def __init__(
        self,
        model: Model,
        prompt: JudgePrompt,
        *,
        labels: Sequence[str],
        option_texts: Sequence[str] | None = None,
        swap_options: bool = True,
        name: str = "logit",
        settings: JudgeSettings | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        super().__init__(model, prompt, labels=labels, name=name, settings=settings, cache=cache)
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
        import asyncio

        places = list(range(len(self.labels)))
        orders = [places, places[::-1]] if self.has_options and self.swap_options else [places]
        outcomes = await asyncio.gather(*(self._weigh(question, order) for order in orders))
        weighed: list[dict[str, float]] = []
        for outcome, order in zip(outcomes, orders, strict=True):
            if isinstance(outcome.result, RequestError):
                return self._give_up(outcomes, outcome.result)
            shares = zip(order, outcome.result["shares"], strict=True)
            weighed.append({self.labels[i]: share for i, share in sorted(shares)})
        means = {n: sum(shares[n] for shares in weighed) / len(weighed) for n in self.labels}
        label = max(means, key=lambda name: means[name])
        changes = [abs(weighed[0][name] - weighed[-1][name]) for name in self.labels]
        favourites = [{n for n in one if one[n] == max(one.values())} for one in weighed]
        is_flipped = not set.intersection(*favourites)
        return Verdict(
            label,
            0.0 if is_flipped else min(1.0, means[label]),
            {name: min(1.0, mean) for name, mean in means.items()},
            self.version,
            usage=sum((outcome.usage for outcome in outcomes), Usage()),
            is_cached=all(outcome.is_cached for outcome in outcomes),
            is_flipped=is_flipped,
            position_bias=max(changes) if len(weighed) > 1 else None,
        )

    def build_example(self, question: Question, order: Sequence[int]) -> Example:
        """Return what the model is asked, with the options in this order of the labels."""
        listed = [f"{_LETTERS[n]}: {self.option_texts[i]}" for n, i in enumerate(order)]
        options = "\n".join(listed) if self.has_options else None
        return build_example(self.prompt.render(question.texts, options=options), question)

    async def _weigh(self, question: Question, order: Sequence[int]) -> Outcome:
        example = self.build_example(question, order)
        asked = tuple(_LETTERS[: len(order)]) if self.has_options else self.labels

        async def attempt() -> tuple[Reply, Usage]:
            weighed = await self.model.label_shares(example, labels=asked)
            shares = [weighed.shares[label] for label in asked]
            return {"shares": shares, "error": weighed.error}, weighed.usage

        return await self._ask(example, attempt)
