"""Judging new groups with a finished run: both stages on one loaded base model.

A run whose photos were described by a server asks that server here, too.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import RunError, dump_config, read_picture
from groupwise.data import DropLog
from groupwise.flow import open_policy
from groupwise.inference import (
    LocalBackend,
    LocalEngine,
    Sampling,
    ServerBackend,
    StreamBackend,
    WorkGroup,
    generate_groups,
)
from groupwise.models import digest_base
from groupwise.pipeline import FoundGroups
from groupwise.serving import GroupRequest, GroupVerdict
from groupwise_recipes.group_qc.config import GroupQcConfig
from groupwise_recipes.group_qc.orders import find_orders
from groupwise_recipes.group_qc.photos import PhotoGroup, load_photo_groups
from groupwise_recipes.group_qc.prompts import make_group_example, make_photo_example
from groupwise_recipes.group_qc.stage_a import read_outcome
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import VERDICTS, parse_judgement

TRAINED = "grpo"


class GroupQcPredictor:
    """Describes photos with the adapter off and judges the descriptions with it on.

    Args:
        config: of the run.
        run: its folder; the policy of its GRPO step answers.
    """

    def __init__(self, config: GroupQcConfig, run: Path) -> None:
        folder = run / TRAINED / "policy"
        if not (run / TRAINED / "step.json").is_file():
            raise RunError(
                f"{run} has no trained policy yet", fix=f"finish it: run --resume --out {run}"
            )
        self._config = config
        self._missions = config.data.load_missions()
        self._weights = digest_base(folder)
        self._policy = open_policy(config, folder)
        self._engine = LocalEngine(self._policy, batch_size=config.evaluation.batch_size)
        server = config.summaries.server
        self._stage_a: StreamBackend = (
            LocalBackend(self._engine) if server is None else ServerBackend(server)
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the missions."""
        return self._missions.names

    def describe(self) -> Mapping[str, Any]:
        """Return what verdicts depend on: weights, both stages' settings, the mission table."""
        return {
            "recipe": "group_qc",
            "base": self._config.model.base,
            "weights": self._weights,
            "max_pixels": self._config.model.max_pixels,
            "summaries": self._config.summaries.describe(),
            "max_new_tokens": self._config.grpo.max_new_tokens,
            "missions": dump_config(self._missions),
            "min_confidence": self._config.prediction.min_confidence,
        }

    def predict(self, requests: Sequence[GroupRequest]) -> list[GroupVerdict]:
        """Return a verdict for each group; one whose photos cannot be described has none."""
        described = [read_outcome(outcome) for outcome in self._describe_photos(requests)]
        found = [
            GroupVerdict(request.id, None, needs_person=True, failure=f"Stage A: {reason}")
            for request, (_, reason) in zip(requests, described, strict=True)
        ]
        whole = [number for number, (_, reason) in enumerate(described) if not reason]
        texts = [described[number][0] for number in whole]
        verdicts = self._judge([requests[number] for number in whole], texts)
        for number, verdict in zip(whole, verdicts, strict=True):
            found[number] = verdict
        return found

    def _describe_photos(self, requests: Sequence[GroupRequest]):
        with self._policy.adapter_off():
            outcomes = generate_groups(
                self._stage_a,
                (self._ask(request) for request in requests),
                sampling=self._config.summaries.sampling,
                settings=self._config.summaries.stream.model_copy(update={"order": "given"}),
            )
            return list(outcomes)

    def _ask(self, request: GroupRequest) -> WorkGroup:
        focus = self._missions[request.task].focus
        examples = [
            make_photo_example(request.task, focus, read_picture(path), group=request.id)
            for path in request.pictures
        ]
        return WorkGroup(request.id, tuple(examples))

    def _judge(
        self, requests: Sequence[GroupRequest], texts: Sequence[Sequence[str]]
    ) -> list[GroupVerdict]:
        summaries = [number_summaries(list(lines)) for lines in texts]
        examples = [
            make_group_example(
                request.task,
                self._missions[request.task].key_points,
                lines,
                group=request.id,
                label=None,
            )
            for request, lines in zip(requests, summaries, strict=True)
        ]
        sampling = Sampling(max_new_tokens=self._config.grpo.max_new_tokens)
        replies = [found.text for [found] in self._engine.generate(examples, sampling=sampling)]
        shares = self._engine.label_probabilities(examples, labels=VERDICTS)
        return [self._read(*row) for row in zip(requests, summaries, replies, shares, strict=True)]

    def _read(
        self,
        request: GroupRequest,
        summaries: Mapping[str, str],
        reply: str,
        shares: Mapping[str, float],
    ) -> GroupVerdict:
        found = parse_judgement(reply)
        details = {"summaries": dict(summaries), "reply": reply}
        if found.verdict is None:
            return GroupVerdict(
                request.id,
                None,
                needs_person=True,
                details=details,
                failure=f"Stage B: {found.problem}",
            )
        confidence = shares[found.verdict]
        return GroupVerdict(
            request.id,
            found.verdict,
            reason=found.reason,
            confidence=confidence,
            needs_person=confidence < self._config.prediction.min_confidence
            or bool(find_orders(summaries)),
            details=details,
        )


def list_groups(config: GroupQcConfig, photos: Path) -> FoundGroups:
    """Return the groups of a folder of photos; a verdict in their folders' names is not read."""
    loaded = load_photo_groups(photos, config.data.load_missions(), for_prediction=True)
    drops = DropLog()
    for drop in (*loaded.drops.rows, *loaded.skipped.rows):
        drops.add(drop.reason, drop.where)
    return FoundGroups(tuple(map(_make_request, loaded.groups)), drops)


def _make_request(group: PhotoGroup) -> GroupRequest:
    return GroupRequest(group.key, group.mission, group.photos)
