"""Asking a frozen answerer: a query behind a list of demonstrations, its answer and VQA accuracy.

In a few-shot prompt demonstrations stand before the query, so what two prompts can share is how
their lists begin: a server that caches prefixes (vLLM) finds that by itself.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass

from groupwise.core import Completion, DataError, Example, digest_json, make_example
from groupwise.inference.model import Sampling
from groupwise.inference.settings import StreamSettings
from groupwise.inference.stream import (
    Failure,
    Group,
    Outcome,
    ReportStream,
    Stream,
    generate_groups,
)
from groupwise.judges import ReplyCache
from groupwise.rewards import VqaAccuracy
from groupwise_recipes.demo_selection.conditions import Conditions
from groupwise_recipes.demo_selection.vqa import PUBLISHED_VQA, FewShotForm

List = tuple[str, ...]
"""Ids of demonstrations in the order of the prompt."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one query behind one list.

    Attributes:
        answer: what was said; None: the evaluation failed.
        accuracy: VQA accuracy of the answer, in [0, 1]; None: the evaluation failed.
    """

    answer: str | None
    accuracy: float | None


class Answerer:
    """Asks a frozen model; the same list is asked once where a cache is given.

    Args:
        backend: what answers, in this process or behind a server.
        identity: of all that answers depend on beside the request: digest of a model's folder
            (``digest_base``) and dtype, or name and revision of a served one. Answers of another
            identity are not taken from the cache.
        train: the demonstrations.
        form: how prompts are written.
        sampling: greedy unless told otherwise.
        stream: how the backend works.
        cache: of answers, by content; any number of processes may share its file.

    Attributes:
        failures: how many evaluations failed, by cause.
        num_asked: how often the backend was asked.
    """

    def __init__(
        self,
        backend: Stream,
        *,
        identity: str,
        train: Sequence[Example],
        form: FewShotForm = PUBLISHED_VQA,
        sampling: Sampling | None = None,
        stream: StreamSettings | None = None,
        cache: ReplyCache | None = None,
    ) -> None:
        self.backend = backend
        self.identity = identity
        self.train = {one.id: one for one in train}
        self.form = form
        self.sampling = sampling or Sampling()
        self.stream = stream or StreamSettings(batch_size=32)
        self.cache = cache
        self.failures: Counter[str] = Counter()
        self.num_asked = 0
        self._score = VqaAccuracy()
        self._prompt = digest_json(asdict(self.form))
        decoding = {**self.sampling.model_dump(), "max_pixels": self.stream.max_pixels}
        self._decoding = digest_json(decoding)

    def describe(self, *, sampler: str, correct_above: float | None = 0.0) -> Conditions:
        """Return the conditions of a recording or an evaluation."""
        return Conditions(
            sampler=sampler,
            prompt=self._prompt,
            decoding=self._decoding,
            answerer=self.identity,
            correct_above=correct_above,
        )

    def ask(
        self,
        asked: Iterable[tuple[Example, Sequence[List]]],
        *,
        report_progress: ReportStream | None = None,
    ) -> Iterator[dict[List, Result]]:
        """Yield the results of each query's lists, by list, query by query as they come.

        A request that fails is a result without answer, and is asked again the next time.
        """
        waiting: deque[tuple[Example, dict[List, Completion | None]]] = deque()

        def form_groups() -> Iterator[Group]:
            for query, lists in asked:
                known = {one: self._recall(query, one) for one in lists}
                waiting.append((query, known))
                new = [one for one, answer in known.items() if answer is None]
                self.num_asked += len(new)
                yield query.id, [self.write_prompt(query, one) for one in new]

        outcomes = generate_groups(
            self.backend,
            form_groups(),
            sampling=self.sampling,
            settings=self.stream,
            report_progress=report_progress,
        )
        with closing(outcomes):
            for _, completions in outcomes:
                query, known = waiting.popleft()
                new = iter(completions)
                found = {one: next(new) if old is None else old for one, old in known.items()}
                yield {
                    one: self._settle(query, one, answer, is_new=known[one] is None)
                    for one, answer in found.items()
                }

    def answer(self, asked: Sequence[tuple[Example, List]]) -> list[str | None]:
        """Return what is said to queries behind their lists, unscored; None where asking failed."""
        groups = [(str(n), [self.write_prompt(*one)]) for n, one in enumerate(asked)]
        outcomes = generate_groups(
            self.backend, groups, sampling=self.sampling, settings=self.stream
        )
        with closing(outcomes):
            found = [completion for _, [completion] in outcomes]
        return [None if isinstance(one, Failure) else one.text for one in found]

    def write_prompt(self, query: Example, demos: List) -> Example:
        """Return the prompt of a query behind a list of demonstrations."""
        unknown = [one for one in demos if one not in self.train]
        if unknown:
            raise DataError(f"{unknown[0]} is no demonstration", got=f"a list of query {query.id}")
        shown = [self.train[one] for one in demos]
        return make_example(self.form.write(query, shown), cluster=query.cluster)

    def _key(self, query: Example, demos: List) -> str:
        """Ids are digests of content, so that equal keys are equal prompts."""
        return digest_json([self._prompt, self._decoding, self.identity, query.id, *demos])

    def _recall(self, query: Example, demos: List) -> Completion | None:
        kept = None if self.cache is None else self.cache.get(self._key(query, demos))
        return None if kept is None else Completion(kept["answer"])

    def _settle(self, query: Example, demos: List, found: Outcome, *, is_new: bool) -> Result:
        if isinstance(found, Failure):
            self.failures[found.cause] += 1
            return Result(None, None)
        if is_new and self.cache is not None:
            self.cache.put(self._key(query, demos), {"answer": found.text})
        answer = cut_answer(found.text, self.form)
        score = self._score(query, Completion(answer))
        if score.value is None:
            raise DataError(f"query {query.id} cannot be scored: {score.reason}")
        return Result(answer, score.value)


def cut_answer(text: str, form: FewShotForm) -> str:
    """Return what was said up to where a model goes on with another example of the form.

    Models that continue texts do so. OpenFlamingo's evaluation cuts at ``Question``, ``Answer`` and
    ``Short``; here the form says where: at what stands between two examples, and at the words that
    begin one.
    """
    for mark in (form.between, form.question.partition("{")[0]):
        if mark:
            text = text.lstrip().partition(mark)[0]
    return text.strip()
