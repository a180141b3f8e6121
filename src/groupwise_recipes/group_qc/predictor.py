"""What a finished run is asked: new photo groups, and labelled ones of other data.

Both stages run on one loaded base model. A run whose photos were described by a server asks that
server here, too. Groups may also come as lines of Stage A; then only Stage B is asked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, Message, dump_config, make_example, read_jsonl
from groupwise.data.examples import DropLog
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.server import ServerModel
from groupwise.inference.stream import Stream
from groupwise.run.predict import PolicyPredictor
from groupwise.run.steps import StepContext
from groupwise.run.task import Task
from groupwise.serving import Answer, Request
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.missions import describe_unknown
from groupwise_recipes.group_qc.photos import LoadedGroups, find_picture, load_photo_groups
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.records import find_summary_problem, load_records
from groupwise_recipes.group_qc.stage_a import (
    StageAJob,
    ask_of_photos,
    describe_photos,
    name_failures,
    open_backend,
    read_summaries,
    run_stage_a,
    write_results,
)
from groupwise_recipes.group_qc.stage_b import find_orders, make_group_rows
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import VerdictParser

MIN_CONFIDENCE = 0.8
"""Verdicts of a lower probability are marked for a person."""


class GroupQcPredictor(PolicyPredictor):
    """Describes photos with the adapter off and judges the descriptions with it on.

    Args:
        task: of the recipe.
        config: of the run.
        policy: folder of its adapter.
        temperatures: of confidence, by the digest of weights.
    """

    def __init__(
        self,
        task: Task[Any],
        config: GroupQcConfig,
        policy: str | Path,
        *,
        temperatures: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(task, config, policy, temperatures=temperatures)
        self._settings, self._questions = config, open_questions(config)
        server = config.summaries.server
        engine = LocalModel(self._policy, batch_size=config.evaluation.batch_size)
        self._stage_a: Stream = (
            LocalStream(engine)
            if server is None
            else ServerModel(server, max_pixels=config.summaries.stream.max_pixels)
        )

    def describe(self) -> Mapping[str, Any]:
        """Return what verdicts depend on: weights, both stages' settings, missions, words."""
        return {
            **super().describe(),
            "summaries": self._settings.summaries.describe(),
            "missions": dump_config(self._questions.missions),
            "words": dump_config(self._settings.words),
            "prompts": dump_config(self._settings.prompts),
            "min_confidence": MIN_CONFIDENCE,
        }

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return the photos of a group and its mission, or what Stage A said of them."""
        mission, known = str(request.row.get("mission", "")), self._questions.missions.names
        if mission not in known:
            problem = describe_unknown(mission, known)
            raise DataError(f"there is no mission {problem}", expected=", ".join(known))
        lines: Any = request.row.get("per_image")
        if (lines is None) == (not request.pictures):
            got = "both" if request.pictures else "none"
            raise DataError("a photo group needs photos, or per_image: a line on each", got=got)
        if lines is not None:
            num = len(lines) if isinstance(lines, dict) else 0
            problem = find_summary_problem(lines, self._questions.words, num_photos=max(num, 1))
            if problem:
                raise DataError(
                    f"per_image has {problem.cause}", got=problem.detail, expected=problem.expected
                )
            return self._questions.ask_of_group(mission, lines, group=request.id, label=None)
        check_describing(self._settings)
        return make_example(
            [Message("user", mission)],
            cluster=request.id,
            pictures=[find_picture(path) for path in request.pictures],
            fields={"mission": mission},
        )

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return a verdict for each group; one whose photos cannot be described has none."""
        described = iter(self._describe_photos([one for one in questions if one.pictures]))
        known = [next(described) if one.pictures else one for one in questions]
        asked = [one for one in known if isinstance(one, Example)]
        answers = iter(super().answer(asked) if asked else ())
        return [
            self._complete(next(answers), one) if isinstance(one, Example) else one for one in known
        ]

    def _describe_photos(self, questions: Sequence[Example]) -> list[Example | Answer]:
        """Return what Stage B is asked of each group, or why its photos cannot be described."""
        settings, words = self._settings.summaries, self._questions.words
        groups = (
            ask_of_photos(
                str(number), str(question.fields["mission"]), question.pictures, self._questions
            )
            for number, question in enumerate(questions)
        )
        with self._policy.adapter_off():
            found = list(describe_photos(self._stage_a, groups, settings, words))
        return [
            Answer(None, None, f"Stage A: {reason}", needs_person=True)
            if reason
            else self._questions.ask_of_group(
                str(question.fields["mission"]),
                number_summaries(texts, words),
                group=question.cluster,
                label=None,
            )
            for question, (_, texts, reason) in zip(questions, found, strict=True)
        ]

    def _complete(self, answer: Answer, asked: Example) -> Answer:
        """Return the verdict with its reason and summaries, marked where a person should look."""
        summaries: Mapping[str, str] = asked.fields["stage_a_summaries"]
        details = {"summaries": dict(summaries)}
        if answer.answer is None or answer.text is None or answer.confidence is None:
            reason = f"Stage B: {answer.reason}"
            return replace(answer, reason=reason, needs_person=True, details=details)
        words = self._questions.words
        is_unsure = answer.confidence < MIN_CONFIDENCE
        return replace(
            answer,
            reason=VerdictParser(words).judge(answer.text).reason,
            needs_person=is_unsure or bool(find_orders(summaries, words)),
            details=details,
        )


def check_describing(config: GroupQcConfig) -> None:
    """Refuse photos where the base never learned to describe any."""
    if config.model.is_tiny and config.teach is None:
        raise DataError(
            "the base of this run cannot describe photos: Stage A was not run there",
            fix="give lines of Stage A, or use a run with teach or of a published base",
        )


def list_requests(config: GroupQcConfig, path: Path) -> tuple[Sequence[Request], DropLog]:
    """Return the groups of a folder of photos, or of a file of Stage A; no verdict is read."""
    missions = config.data.load_missions()
    if not path.is_dir():
        loaded = load_records([path], missions, config.words, root=Path(), for_prediction=True)
        rows = [
            {"mission": record["mission"], "per_image": record["per_image"]}
            for record in loaded.records
        ]
        pairs = zip(loaded.groups, rows, strict=True)
        return [Request(group.key, row, ()) for group, row in pairs], loaded.drops
    loaded = load_photo_groups(path, missions, config.data.folders, for_prediction=True)
    return [
        Request(group.key, {"mission": group.mission}, group.photos) for group in loaded.groups
    ], _list_unused(loaded)


def read_labelled(
    config: GroupQcConfig, context: StepContext, path: Path, folder: Path
) -> tuple[list[Example], DropLog]:
    """Return the questions about labelled groups of a folder of photos, or of a file of Stage A.

    Photos are described by the run's base, into files that a later call continues.
    """
    questions = open_questions(config)
    if path.is_dir():
        check_describing(config)
        loaded = load_photo_groups(path, questions.missions, config.data.folders)
        groups = [group.read_digests() for group in loaded.groups]
        job = StageAJob(groups, path, folder / "stage_a", questions, config.summaries)
        run_stage_a(job, open_backend(config, context.run), say=context.say)
        done = folder / "described"
        write_results(job, done)
        summaries, drops = read_summaries(done, questions), _list_unused(loaded)
        for mission in questions.missions.names:
            failed = name_failures(done, mission)
            for row in read_jsonl(failed) if failed.exists() else ():
                drops.add("Stage A failed", f"{row['key']}: {row['failed']}")
    else:
        loaded = load_records([path], questions.missions, config.words, root=path.parent)
        keys = [group.key for group in loaded.groups]
        lines = [record["per_image"] for record in loaded.records]
        summaries, drops = dict(zip(keys, lines, strict=True)), loaded.drops
    root = path if path.is_dir() else path.parent
    examples = make_group_rows(loaded.groups, summaries, questions, root=root)
    # Of other photos than the run's; those of lines may be anywhere.
    return [
        replace(one, fields={**one.fields, "images": [str(path.absolute() / i) for i in images]})
        for one in examples
        for images in [one.fields["images"] if path.is_dir() else []]
    ], drops


def _list_unused(loaded: LoadedGroups) -> DropLog:
    drops = DropLog()
    for drop in (*loaded.drops.rows, *loaded.skipped.rows):
        drops.add(drop.reason, drop.where)
    return drops
