"""A finished run that answers new rows: in files that a later call continues, and served."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise import core
from groupwise.core import ConfigError, DataError, Example, GroupwiseError, RunError
from groupwise.data.examples import DropLog
from groupwise.evaluation.predictions import RunPolicy, read_policies
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.inference.server import build_chat_messages
from groupwise.judges import Judge
from groupwise.models.identity import digest_base
from groupwise.run.asking import BASE, open_policy, temper
from groupwise.run.recipe import Recipe, find_recipe
from groupwise.serving import Answer, Opened, Predictor, Request, try_each
from groupwise.training.checkpoints import check_checkpoint

if TYPE_CHECKING:
    from groupwise.run.task import Task


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run with at least one policy."""

    folder: Path
    recipe: Recipe[Any]
    task: Task[Any]
    config: Any

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps that are done."""
        return tuple(sorted(path.parent.name for path in self.folder.glob("*/step.json")))

    @property
    def policies(self) -> tuple[str, ...]:
        """The policies that can be asked."""
        trained = [name for name in self.steps if (self.folder / name / "policy").is_dir()]
        return (*trained, BASE)

    def choose_policy(self, name: str | None = None) -> str:
        """Return the name of a policy, or ``STEP/checkpoint-N``; a RunError if there is none (yet).

        None: the main one, which is the last that the run's evaluation describes.
        """
        if name is None:
            described = read_policies(self.folder)
            main = described.choose_last([one.name for one in described.listed] or [BASE])
            if main == BASE or main not in self.policies:
                raise RunError(
                    f"{self.folder} has no main policy yet",
                    fix=f"finish it (run --resume --out {self.folder}), "
                    f"or name one: {', '.join(f'RUN:{name}' for name in self.policies)}",
                )
            return main
        is_checkpoint = "/checkpoint-" in name and (self.folder / name / "complete").is_file()
        if name not in self.policies and not is_checkpoint:
            raise RunError(core.describe_unknown(f"policy of {self.folder}", name, self.policies))
        return name

    def find_policy(self, name: str | None = None) -> str | Path:
        """Return the folder or hub id of a policy that ``choose_policy`` takes.

        A RunError, too, if a file of it is not what its training wrote.
        """
        chosen = self.choose_policy(name)
        if chosen == BASE:
            return self.task.find_base(self.config, self.folder)
        if "/" in chosen:
            check_checkpoint(self.folder / chosen)
            return self.folder / chosen
        core.check_folder(self.folder, f"{chosen}/policy")
        return self.folder / chosen / "policy"

    def describe_policy(self, name: str | None = None) -> tuple[RunPolicy, ...]:
        """Return what the run says of a policy, behind those that it was trained from.

        A checkpoint has the name ``STEP-checkpoint-N`` and no other budget than its steps.
        """
        step, _, checkpoint = self.choose_policy(name).partition("/")
        *before, found = read_policies(self.folder).list_ancestors(step)
        if checkpoint:
            num_steps = int(checkpoint.rpartition("-")[2])
            found = replace(
                found,
                name=f"{step}-{checkpoint}",
                title=f"{found.title}, step {num_steps:,}",
                title_zh=f"{found.title_zh}，第 {num_steps:,} 步",
                budget={"num_steps": num_steps},
            )
        return tuple(
            replace(one, weights=one.weights and str((self.folder / one.weights).absolute()))
            for one in (*before, found)
        )

    def open_predictor(self, policy: str | None = None) -> Predictor:
        """Return what answers requests with a policy; None: the main one.

        A RunError if there is no such policy, or rows would be asked otherwise than the run's.
        """
        self.task.check_tools(self.config, self.folder)
        return self.task.open_predictor(self.config, self.find_policy(policy), self.folder)


def open_run(run: Path) -> FinishedRun:
    """Return a run, to be asked.

    A ConfigError if its recipe answers no new rows, a RunError if there is no run, or it is not
    what its steps wrote.
    """
    manifest = core.RunFolder(run).read_manifest()
    core.check_records(run)
    recipe = find_recipe(manifest["recipe"], run=run)
    if recipe.task is None:
        raise ConfigError(f"the recipe {recipe.name} answers no new rows: it is not made of a Task")
    config = core.load_config(recipe.load_config_type(), manifest.get("config", {}))
    return FinishedRun(run, recipe, recipe.task(), config)


class PolicyPredictor:
    """Asks a policy (folder or hub id) as its run asked it, and reads its texts by its parser.

    ``temperatures`` of confidence are by the digest of weights; a policy that has none is as sure
    as its probabilities are. ``labels`` are the parser's.
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
        self.labels: tuple[str, ...] = self._parser.labels
        self._weights = digest_base(policy)
        self._temperature = (temperatures or {}).get(self._weights or "")
        self._policy = open_policy(config, policy)
        self._model = LocalModel(self._policy, batch_size=config.evaluation.batch_size)
        self._sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)

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
        encoded = list(self._model.encode(questions))  # once for answers and the labels' shares
        texts = self._ask(questions, encoded=encoded)
        pairs = zip(texts, questions, strict=True)
        found = [self._parser.parse(text, question) for text, question in pairs]
        shares: Sequence[Mapping[str, float] | None] = [None] * len(questions)
        if self.labels:
            leads = [one.prefix for one in found]
            shares = self._model.label_probabilities(
                questions, labels=self.labels, leads=leads, encoded=encoded
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

    def _ask(self, questions: Sequence[Example], **named: Any) -> list[str]:
        said = self._model.generate(questions, sampling=self._sampling, **named)
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


def _list_requests(run: FinishedRun, path: Path) -> tuple[Sequence[Request], DropLog]:
    if not path.exists():
        raise ConfigError(f"there is no file or folder {path}")
    return run.task.list_requests(run.config, path)


def predict_rows(
    run: FinishedRun,
    path: Path,
    *,
    out: Path,
    policy: str | None = None,
    batch_size: int = 32,
    report_progress: Callable[[int, int], None] = lambda done, total: None,
) -> PredictionSummary:
    """Answer every row of a file or folder, and append the answer to ``out`` when it is there.

    Rows are as the recipe takes them, without labels; those that ``out`` (JSONL) has are not asked
    again. ``policy`` None is the main one; progress is the numbers of finished and of all rows. A
    ConfigError if there is no such file, a DataError if nothing can be read there, a RunError if
    ``out`` is in use, or holds answers of another model or to other rows.
    """
    requests, drops = _list_requests(run, path)
    predictor = run.open_predictor(policy)
    model = name_version(predictor)
    with core.ResultFile(out, key="id") as results:
        asked = {one.id: one for one in requests if one.id in results.finished}
        for row in results.rows():
            if row["model"] != model:
                raise RunError(f"{out} holds answers of another model", fix="write to another file")
            if row["id"] in asked and asked[row["id"]].digest() != row["input"]:
                other = f"an answer to other contents of {row['id']}"
                raise RunError(f"{out} holds {other}", fix="write to another file")
        waiting = [request for request in requests if request.id not in results.finished]
        num_kept = len(requests) - len(waiting)
        for start in range(0, len(waiting), batch_size):
            report_progress(num_kept + start, len(requests))
            batch = waiting[start : start + batch_size]
            for request, answer in zip(batch, answer_requests(predictor, batch), strict=True):
                failed = (answer.reason or "no answer") if answer.text is None else None
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
        failures=dict(Counter(row["reason"] or "no answer" for row in missing)),
        num_again=sum(row["text"] is None for row in missing),
        for_people=tuple(row["id"] for row in rows if row["needs_person"]),
        drops=drops,
    )


def write_prompts(run: FinishedRun, path: Path, *, out: Path, policy: str | None = None) -> int:
    """Write the prompt of every row as messages of a chat API, pictures in them; return how many.

    ``out`` is JSONL with ``id`` and ``messages``, and replaced. A ConfigError if there is no such
    file, or the recipe's predictor has no ``write_prompts``; a DataError if a row cannot be asked.
    """
    requests, _ = _list_requests(run, path)
    predictor: Any = run.open_predictor(policy)
    if not hasattr(predictor, "write_prompts"):
        raise ConfigError(f"the recipe {run.recipe.name} writes no prompts for other tools")
    with tempfile.TemporaryDirectory() as folder:
        questions = [predictor.make_question(one, Path(folder)) for one in requests]
        rows = [
            {"id": request.id, "messages": build_chat_messages(prompt)}
            for request, prompt in zip(requests, predictor.write_prompts(questions), strict=True)
        ]
    core.write_jsonl(out, rows)
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
    return core.digest_json(dict(predictor.describe()))


_NAME = "served.json"
_FIELDS = ("run", "policy", "version")


@dataclass(frozen=True, slots=True)
class Served:
    """A policy of a finished run that is to be served, with its ``name_version``."""

    run: Path
    policy: str
    version: str


def read_served(folder: Path) -> Served:
    """Return what a loop folder serves; the path of the run is absolute.

    A DataError if the file is missing or damaged, or has other fields than it should.
    """
    path = folder / _NAME
    found = core.read_json(path, dict)
    texts = [found.get(name) for name in _FIELDS]
    run, policy, version = (value if isinstance(value, str) else "" for value in texts)
    if found.keys() != {*_FIELDS} or not (run and policy and version):
        raise DataError(f"{path} does not say what is served", expected=f"{_FIELDS}, all texts")
    if ".." in Path(run).parts or "\0" in run:
        raise DataError(f"{path} names a run outside its folder by a relative path", got=repr(run))
    return Served(folder.absolute() / run, policy, version)


def write_served(folder: Path, served: Served) -> None:
    """Replace what a loop folder serves, atomically.

    A run inside the folder is named relative to it, so that the folder may be moved.
    """
    home, run = folder.absolute(), served.run.absolute()
    if ".." in run.parts:
        raise RunError(f"{served.run} leads upwards", fix="name the run by its plain path")
    named = run.relative_to(home) if run.is_relative_to(home) else run
    values = {"run": named.as_posix(), "policy": served.policy, "version": served.version}
    core.write_json(folder / _NAME, values)


class RunSource:
    """A policy of a finished run, which stays the same; None: the main one."""

    def __init__(self, run: FinishedRun, policy: str | None) -> None:
        self.run, self._policy = run, policy

    def open(self) -> Opened:
        """Open the policy."""
        predictor = self.run.open_predictor(self._policy)
        return Opened(predictor, name_version(predictor))

    def find_version(self) -> str:
        """Refuse: there is no other version."""
        raise core.ServingError(
            f"this server serves the run {self.run.folder} alone",
            fix="serve a loop folder, whose served.json may name another version later",
        )


class LoopSource:
    """What the file ``served.json`` of a loop folder names, whenever it is asked.

    ``run`` is that whose task and judge are behind it: of a round, the one its loop began with.
    """

    def __init__(self, folder: Path) -> None:
        run = open_run(read_served(folder).run)
        self.run = run.task.find_origin(run.config) or run
        self._folder = folder

    def open(self) -> Opened:
        """Open what is named now; a RunError if the run does not have the version that is named."""
        served = read_served(self._folder)
        predictor = open_run(served.run).open_predictor(served.policy)
        found = name_version(predictor)
        if found != served.version:
            raise RunError(
                f"{served.run} does not have the version that {self._folder / _NAME} names",
                got=found,
                expected=served.version,
            )
        return Opened(predictor, found)

    def find_version(self) -> str:
        """Return the version that is named now."""
        return read_served(self._folder).version


def find_source(folder: Path, policy: str | None) -> RunSource | LoopSource:
    """Return what the folder of a run or a loop answers with; ``policy`` None: the run's main one.

    A ConfigError if a policy of a loop is named, or its recipe answers no new rows; DataError and
    RunError if there is no run.
    """
    if not (folder / _NAME).is_file():
        return RunSource(open_run(folder), policy)
    if policy is not None:
        raise ConfigError(f"{folder} itself says which policy it serves", fix=f"leave out {policy}")
    return LoopSource(folder)


def open_judge(run: FinishedRun, settings: Path | None, *, folder: Path) -> Judge | None:
    """Return the judge behind a policy, by its run's config; None if there is none.

    It does not give up for good where it fails often: it is asked again with the next screen.
    ``settings`` is YAML to be taken instead of the section ``judge``; replies are kept in
    ``folder``.
    """
    values = dict(core.RunFolder(run.folder).read_manifest().get("config", {}))
    if settings is not None:
        values["judge"] = core.read_config(settings)
    if not values.get("judge"):
        return None
    patient = "judge.settings.stop.max_no_verdict_rate=1.0"
    config = core.load_config(type(run.config), values, overrides=[patient])
    return run.task.judge_of_screens(config, folder)
