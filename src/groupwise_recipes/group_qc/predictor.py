"""Judging new groups with a finished run: both stages on one loaded base model.

A run whose photos were described by a server asks that server here, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupwise.core import DataError, Example, Message, dump_config, make_example
from groupwise.data import DropLog
from groupwise.flow import PolicyPredictor, Task
from groupwise.inference import (
    LocalBackend,
    LocalEngine,
    ServerBackend,
    StreamBackend,
    WorkGroup,
    generate_groups,
)
from groupwise.serving import Answer, Request
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.missions import describe_unknown
from groupwise_recipes.group_qc.orders import find_orders
from groupwise_recipes.group_qc.photos import PhotoGroup, find_picture, load_photo_groups
from groupwise_recipes.group_qc.prompts import make_group_example, make_photo_example
from groupwise_recipes.group_qc.stage_a import read_outcome
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import parse_judgement


class GroupQcPredictor(PolicyPredictor):
    """Describes photos with the adapter off and judges the descriptions with it on.

    Args:
        task: of the recipe.
        config: of the run.
        policy: folder of its adapter.
    """

    def __init__(self, task: Task[Any], config: GroupQcConfig, policy: str | Path) -> None:
        super().__init__(task, config, policy)
        self._settings = config
        self._missions = config.data.load_missions()
        server = config.summaries.server
        engine = LocalEngine(self._policy, batch_size=config.evaluation.batch_size)
        self._stage_a: StreamBackend = (
            LocalBackend(engine) if server is None else ServerBackend(server)
        )

    def describe(self) -> Mapping[str, Any]:
        """Return what verdicts depend on: weights, both stages' settings, the mission table."""
        return {
            **super().describe(),
            "summaries": self._settings.summaries.describe(),
            "missions": dump_config(self._missions),
            "min_confidence": self._settings.prediction.min_confidence,
        }

    def make_question(self, request: Request, folder: Path) -> Example:
        """Return the photos of a group and its mission.

        Raises:
            DataError: if there is no such mission, or there are no photos.
        """
        mission, known = str(request.row.get("mission", "")), self._missions.names
        if mission not in known:
            problem = describe_unknown(mission, known)
            raise DataError(f"there is no mission {problem}", expected=", ".join(known))
        if not request.pictures:
            raise DataError("a group needs photos", got="none")
        return make_example(
            [Message("user", mission)],
            cluster=request.id,
            pictures=[find_picture(path) for path in request.pictures],
            fields={"mission": mission},
        )

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return a verdict for each group; one whose photos cannot be described has none."""
        described = [read_outcome(outcome) for outcome in self._describe_photos(questions)]
        found = [
            Answer(None, None, f"Stage A: {reason}", needs_person=True) for _, reason in described
        ]
        whole = [number for number, (_, reason) in enumerate(described) if not reason]
        summaries = [number_summaries(list(described[number][0])) for number in whole]
        asked = [
            self._ask_of_summaries(questions[number], lines)
            for number, lines in zip(whole, summaries, strict=True)
        ]
        answers = super().answer(asked) if asked else ()
        for number, lines, answer in zip(whole, summaries, answers, strict=True):
            found[number] = self._complete(answer, lines)
        return found

    def _describe_photos(self, questions: Sequence[Example]):
        with self._policy.adapter_off():
            outcomes = generate_groups(
                self._stage_a,
                (self._ask_of_photos(*pair) for pair in enumerate(questions)),
                sampling=self._settings.summaries.sampling,
                settings=self._settings.summaries.stream.model_copy(update={"order": "given"}),
            )
            return list(outcomes)

    def _ask_of_photos(self, number: int, question: Example) -> WorkGroup:
        mission = str(question.fields["mission"])
        focus = self._missions[mission].focus
        examples = [
            make_photo_example(mission, focus, picture, group=question.cluster)
            for picture in question.pictures
        ]
        return WorkGroup(str(number), tuple(examples))

    def _ask_of_summaries(self, question: Example, summaries: Mapping[str, str]) -> Example:
        mission = str(question.fields["mission"])
        return make_group_example(
            mission,
            self._missions[mission].key_points,
            summaries,
            group=question.cluster,
            label=None,
        )

    def _complete(self, answer: Answer, summaries: Mapping[str, str]) -> Answer:
        """Return the verdict with its reason and summaries, marked where a person should look."""
        details = {"summaries": dict(summaries)}
        if answer.answer is None or answer.text is None or answer.confidence is None:
            reason = f"Stage B: {answer.reason}"
            return replace(answer, reason=reason, needs_person=True, details=details)
        is_unsure = answer.confidence < self._settings.prediction.min_confidence
        return replace(
            answer,
            reason=parse_judgement(answer.text).reason,
            needs_person=is_unsure or bool(find_orders(summaries)),
            details=details,
        )


def list_requests(config: GroupQcConfig, photos: Path) -> tuple[Sequence[Request], DropLog]:
    """Return the groups of a folder of photos; a verdict in their folders' names is not read."""
    loaded = load_photo_groups(photos, config.data.load_missions(), for_prediction=True)
    drops = DropLog()
    for drop in (*loaded.drops.rows, *loaded.skipped.rows):
        drops.add(drop.reason, drop.where)
    return [_make_request(group) for group in loaded.groups], drops


def _make_request(group: PhotoGroup) -> Request:
    return Request(group.key, {"mission": group.mission}, group.photos)
