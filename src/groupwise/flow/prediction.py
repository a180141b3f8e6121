"""Answering new rows with a finished run, into a file that a later call continues."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import (
    ConfigError,
    Example,
    GroupwiseError,
    ResultFile,
    RunError,
    digest_json,
    write_jsonl,
)
from groupwise.data.examples import DropLog
from groupwise.flow.asking import open_policy
from groupwise.flow.calibrating import temper
from groupwise.flow.finished import FinishedRun
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.inference.server import build_chat_messages
from groupwise.models.identity import digest_base
from groupwise.serving import Answer, Predictor, Request, try_each

if TYPE_CHECKING:
    from groupwise.flow.task import Task


_NO_ANSWER = "no answer"

ReportProgress = Callable[[int, int], None]


class PolicyPredictor:
    """Asks a policy as its run asked it, and reads its texts by the run's parser.

    Args:
        task: of the recipe.
        config: of the run.
        policy: its folder or hub id.
        temperatures: of confidence, by the digest of weights; a policy that has none is as sure as
            its probabilities are.
    """

    def __init__(
        self,
        task: Task[Any],
        config: Any,
        policy: str | Path,
        *,
        temperatures: Mapping[str, float] | None = None,
    ) -> None:
        self._task, self._config = task, config
        self._parser = task.parser(config)
        self._weights = digest_base(policy)
        self._temperature = (temperatures or {}).get(self._weights or "")
        self._policy = open_policy(config, policy)
        self._model = LocalModel(self._policy, batch_size=config.evaluation.batch_size)
        self._sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)

    @property
    def labels(self) -> tuple[str, ...]:
        """The parser's."""
        return self._parser.labels

    def describe(self) -> Mapping[str, Any]:
        """Return the weights, how they are loaded and asked, and how answers are read.

        The temperature of confidence is among it where there is one, and so are the task's tools.
        """
        model, value = self._config.model, self._temperature
        tools = self._task.describe_tools(self._config)
        return {
            **({} if value is None else {"temperature": value}),
            **({"tools": tools} if tools else {}),
            **({"quantization": model.quantization} if model.quantization else {}),
            "base": model.base,
            "weights": self._weights,
            "dtype": model.dtype,
            "max_pixels": model.max_pixels,
            "max_new_tokens": self._config.grpo.max_new_tokens,
            "parser": self._task.describe_parser(self._config),
        }

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return what the recipe asks of a row."""
        return self._task.make_question(self._config, request, folder)

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return greedy answers; where there are labels, each with its probability."""
        model, labels = self._model, self.labels
        encoded = list(model.encode(questions))  # once for the answers and the labels' shares
        said = model.generate(questions, sampling=self._sampling, encoded=encoded)
        texts = [completion.text for [completion] in said]
        found = [
            self._parser.parse(text, question)
            for text, question in zip(texts, questions, strict=True)
        ]
        shares: Sequence[Mapping[str, float] | None] = [None] * len(questions)
        if labels:
            leads = [one.prefix for one in found]
            shares = model.label_probabilities(
                questions, labels=labels, leads=leads, encoded=encoded
            )
        answers: list[Answer] = []
        for text, one, share in zip(texts, found, shares, strict=True):
            if one.label is None:
                answers.append(Answer(text, None, one.reason, needs_person=True))
                continue
            if share is not None and self._temperature is not None:
                share = temper(share, self._temperature)
            confidence = None if share is None else share[one.label]
            answers.append(Answer(text, one.label, confidence=confidence))
        return answers

    def _ask(self, questions: Sequence[Example]) -> list[str]:
        said = self._model.generate(questions, sampling=self._sampling)
        return [completion.text for [completion] in said]


@dataclass(frozen=True, slots=True)
class PredictionSummary:
    """What was made of a file or folder; ``answers`` and ``failures`` add up to all rows."""

    num_rows: int
    num_kept: int  # rows that an earlier call has asked about
    answers: dict[str, int]  # rows by answer
    failures: dict[str, int]  # rows without an answer by reason
    num_again: int  # of these, rows that could not be asked; the next call tries them again
    for_people: tuple[str, ...]  # ids of the rows that a person should look at
    drops: DropLog  # what is no row


def predict_rows(
    run: FinishedRun,
    path: Path,
    *,
    out: Path,
    policy: str | None = None,
    batch_size: int = 32,
    report_progress: ReportProgress = lambda done, total: None,
) -> PredictionSummary:
    """Answer every row of a file or folder, and append the answer to ``out`` when it is there.

    Rows are as the recipe takes them, without labels; those that ``out`` (JSONL) has are not asked
    again. ``policy`` None is the main one; progress is the numbers of finished and of all rows. A
    ConfigError if there is no such file, a DataError if nothing can be read there, a RunError if
    ``out`` is in use, or holds answers of another model or to other rows.
    """
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}")
    requests, drops = run.task.list_requests(run.config, path)
    predictor = run.open_predictor(policy)
    model = name_version(predictor)
    with ResultFile(out, key="id") as results:
        _check_kept(results, requests, model)
        waiting = [request for request in requests if request.id not in results.finished]
        num_kept = len(requests) - len(waiting)
        for start in range(0, len(waiting), batch_size):
            report_progress(num_kept + start, len(requests))
            batch = waiting[start : start + batch_size]
            for request, answer in zip(batch, answer_requests(predictor, batch), strict=True):
                failed = (answer.reason or _NO_ANSWER) if answer.text is None else None
                # The name of its file came to the row here, for templates; it is no column of it.
                values = {name: value for name, value in request.row.items() if name != "_file"}
                known = {"id": request.id, "row": values, "input": request.digest()}
                results.append({**known, **asdict(answer), "failed": failed, "model": model})
        report_progress(len(requests), len(requests))
        found = {str(row["id"]): row for row in results.rows()}
    rows = [found[request.id] for request in requests]
    missing = [row for row in rows if row["answer"] is None]
    return PredictionSummary(
        num_rows=len(rows),
        num_kept=num_kept,
        answers=dict(Counter(row["answer"] for row in rows if row["answer"] is not None)),
        failures=dict(Counter(row["reason"] or _NO_ANSWER for row in missing)),
        num_again=sum(row["text"] is None for row in missing),
        for_people=tuple(row["id"] for row in rows if row["needs_person"]),
        drops=drops,
    )


def write_prompts(run: FinishedRun, path: Path, *, out: Path, policy: str | None = None) -> int:
    """Write the prompt of every row as messages of a chat API, pictures in them; return how many.

    ``out`` is JSONL with ``id`` and ``messages``, and replaced. A ConfigError if there is no such
    file, or the recipe's predictor has no ``write_prompts``; a DataError if a row cannot be asked.
    """
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}")
    predictor: Any = run.open_predictor(policy)
    if not hasattr(predictor, "write_prompts"):
        raise ConfigError(f"the recipe {run.recipe.name} writes no prompts for other tools")
    requests, _ = run.task.list_requests(run.config, path)
    with tempfile.TemporaryDirectory() as folder:
        questions = [predictor.make_question(one, Path(folder)) for one in requests]
        rows = [
            {"id": request.id, "messages": build_chat_messages(prompt)}
            for request, prompt in zip(requests, predictor.write_prompts(questions), strict=True)
        ]
    write_jsonl(out, rows)
    return len(rows)


def answer_requests(predictor: Predictor, requests: Sequence[Request]) -> list[Answer]:
    """Return an answer for each request; one that cannot be asked has no text."""
    asked: list[Example | GroupwiseError] = []
    with tempfile.TemporaryDirectory() as folder:
        for request in requests:
            try:
                asked.append(predictor.make_question(request, Path(folder)))
            except GroupwiseError as error:
                asked.append(error)
        questions = [one for one in asked if isinstance(one, Example)]
        answers = iter(try_each(predictor.answer, questions) if questions else ())
        found = [next(answers) if isinstance(one, Example) else one for one in asked]
    told: list[Answer] = []
    for one in found:
        if isinstance(one, GroupwiseError):
            one = Answer(None, None, str(one), needs_person=True)
        if isinstance(one, Exception):
            raise one
        told.append(one)
    return told


def name_version(predictor: Predictor) -> str:
    """Return the digest of all that answers depend on."""
    return digest_json(dict(predictor.describe()))


def _check_kept(results: ResultFile, requests: Sequence[Request], model: str) -> None:
    asked = {one.id: one for one in requests if one.id in results.finished}
    for row in results.rows():
        problem = None
        if row["model"] != model:
            problem = "answers of another model"
        elif row["id"] in asked and asked[row["id"]].digest() != row["input"]:
            problem = f"an answer to other contents of {row['id']}"
        if problem:
            raise RunError(f"{results.path} holds {problem}", fix="write to another file")
