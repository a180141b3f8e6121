"""Judging new photo groups with a finished run: both stages on one loaded base model.

A run whose photos were described by a server asks that server here, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, Message, dump_config, make_example
from groupwise.data import DropLog
from groupwise.flow import PolicyPredictor, Task
from groupwise.inference import LocalBackend, LocalEngine, ServerBackend, StreamBackend
from groupwise.serving import Answer, Request
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.missions import describe_unknown
from groupwise_recipes.group_qc.orders import find_orders
from groupwise_recipes.group_qc.photos import find_picture, load_photo_groups
from groupwise_recipes.group_qc.prompts import open_questions
from groupwise_recipes.group_qc.stage_a import ask_of_photos, describe_photos
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import VerdictParser


class GroupQcPredictor(PolicyPredictor):
    """Describes photos with the adapter off and judges the descriptions with it on.

    Args:
        task: of the recipe.
        config: of the run.
        policy: folder of its adapter.
    """

    def __init__(self, task: Task[Any], config: GroupQcConfig, policy: str | Path) -> None:
        super().__init__(task, config, policy)
        self._settings, self._questions = config, open_questions(config)
        server = config.summaries.server
        engine = LocalEngine(self._policy, batch_size=config.evaluation.batch_size)
        self._stage_a: StreamBackend = (
            LocalBackend(engine) if server is None else ServerBackend(server)
        )

    def describe(self) -> Mapping[str, Any]:
        """Return what verdicts depend on: weights, both stages' settings, missions, words."""
        return {
            **super().describe(),
            "summaries": self._settings.summaries.describe(),
            "missions": dump_config(self._questions.missions),
            "words": dump_config(self._settings.words),
            "prompts": dump_config(self._settings.prompts),
            "min_confidence": self._settings.prediction.min_confidence,
        }

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return the photos of a group and its mission.

        Raises:
            DataError: if there is no such mission, there are no photos, or the base of the run
                cannot describe them.
        """
        mission, known = str(request.row.get("mission", "")), self._questions.missions.names
        if mission not in known:
            problem = describe_unknown(mission, known)
            raise DataError(f"there is no mission {problem}", expected=", ".join(known))
        if not request.pictures:
            raise DataError("a photo group needs photos", got="none")
        if self._settings.model.is_tiny and self._settings.teach is None:
            raise DataError(
                "the base of this run cannot describe photos: Stage A was not run there",
                fix="use a run with teach, or one of a published base",
            )
        return make_example(
            [Message("user", mission)],
            cluster=request.id,
            pictures=[find_picture(path) for path in request.pictures],
            fields={"mission": mission},
        )

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return a verdict for each group; one whose photos cannot be described has none."""
        described = self._describe_photos(questions)
        found = [
            Answer(None, None, f"Stage A: {reason}", needs_person=True) for _, reason in described
        ]
        words = self._questions.words
        summaries = {
            number: number_summaries(texts, words)
            for number, (texts, reason) in enumerate(described)
            if not reason
        }
        asked = [
            self._questions.ask_of_group(
                str(questions[number].fields["mission"]),
                lines,
                group=questions[number].cluster,
                label=None,
            )
            for number, lines in summaries.items()
        ]
        answers = super().answer(asked) if asked else ()
        for (number, lines), answer in zip(summaries.items(), answers, strict=True):
            found[number] = self._complete(answer, lines)
        return found

    def _describe_photos(self, questions: Sequence[Example]) -> list[tuple[list[str], str]]:
        settings = self._settings.summaries
        in_order = settings.stream.model_copy(update={"order": "given"})
        groups = (
            ask_of_photos(
                str(number), str(question.fields["mission"]), question.pictures, self._questions
            )
            for number, question in enumerate(questions)
        )
        with self._policy.adapter_off():
            described = describe_photos(
                self._stage_a,
                groups,
                settings.model_copy(update={"stream": in_order}),
                self._questions.words,
            )
            return [(texts, reason) for _, texts, reason in described]

    def _complete(self, answer: Answer, summaries: Mapping[str, str]) -> Answer:
        """Return the verdict with its reason and summaries, marked where a person should look."""
        details = {"summaries": dict(summaries)}
        if answer.answer is None or answer.text is None or answer.confidence is None:
            reason = f"Stage B: {answer.reason}"
            return replace(answer, reason=reason, needs_person=True, details=details)
        words = self._questions.words
        is_unsure = answer.confidence < self._settings.prediction.min_confidence
        return replace(
            answer,
            reason=VerdictParser(words).judge(answer.text).reason,
            needs_person=is_unsure or bool(find_orders(summaries, words)),
            details=details,
        )


def list_requests(config: GroupQcConfig, photos: Path) -> tuple[Sequence[Request], DropLog]:
    """Return the groups of a folder of photos; a verdict in their folders' names is not read."""
    data = config.data
    loaded = load_photo_groups(photos, data.load_missions(), data.folders, for_prediction=True)
    drops = DropLog()
    for drop in (*loaded.drops.rows, *loaded.skipped.rows):
        drops.add(drop.reason, drop.where)
    return [
        Request(group.key, {"mission": group.mission}, group.photos) for group in loaded.groups
    ], drops
