"""A round: an ordinary run that goes on from the served version with what people said.

All that is a task's own (prompt, parser, rewards, measures) is that of the run that the loop began
with.
"""

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from groupwise.core import (
    STEP_DONE,
    DataError,
    Example,
    derive_seed,
    digest_file,
    digest_json,
    dump_config,
    write_json,
)
from groupwise.data.audit import find_seen
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.feedback import read_items, write_items
from groupwise.learning.judged import is_judged
from groupwise.learning.rows import LEARNED, ORIGIN, RowMaker, copy_pictures, open_origin
from groupwise.learning.settings import RoundConfig
from groupwise.learning.variants import make_variants
from groupwise.models.export import average_policy, keep_policy
from groupwise.rewards import Parser, RewardCase, RewardSet
from groupwise.run.asking import make_ask, open_policy
from groupwise.run.predict import FinishedRun
from groupwise.run.stages import ASKED, Stage, digest_code, keep_stages, list_usual_stages
from groupwise.run.steps import StepContext
from groupwise.run.task import Estimate, Part, Task
from groupwise.run.training import run_grpo
from groupwise.serving import Predictor, Request
from groupwise.training.checkpoints import Workspace
from groupwise.training.sft import train_sft

if TYPE_CHECKING:
    from groupwise.core import Message
    from groupwise.evaluation.predictions import Prediction, RunPolicy
    from groupwise.run.task import Ask, Judging
    from groupwise.training.settings import RowsOfEpoch

REPLAYED = "replayed"
_FROM_ORIGIN = "data.origin"


class Round(Task[RoundConfig]):
    """A round of learning from what people said; started by ``groupwise learn``."""

    config_type = RoundConfig
    parts: ClassVar = {
        "data": Part(
            f"data.items data.pictures data.sides data.variants data.replay {_FROM_ORIGIN}"
        ),
        "parser": Part(_FROM_ORIGIN),
        "warmup": Part(_FROM_ORIGIN),
        "rewards": Part(_FROM_ORIGIN, "groupwise.rewards"),
        "measures": Part(_FROM_ORIGIN),
    }
    baselines: ClassVar = ()

    def inputs(self, config: RoundConfig) -> Mapping[str, str]:
        """Return digests of what people said, and of the run that the loop began with."""
        return {
            **self.reward_inputs(config),
            "data.items": digest_file(config.data.items),
            "data.asked": digest_file(config.data.asked),
        }

    def reward_inputs(self, config: RoundConfig) -> Mapping[str, str]:
        """Return the digest of the origin: its config, data, and code of prompts and rewards."""
        origin = open_origin(config.data.origin)
        prepared = origin.folder / origin.task.data_stage / STEP_DONE
        parts = origin.task.parts.values()
        code = digest_code(*dict.fromkeys(name for part in parts for name in part.code.split()))
        return {
            "data.origin": digest_json([dump_config(origin.config), digest_file(prepared), code])
        }

    def stages(self, config: RoundConfig) -> list[Stage]:
        """Return the usual stages, SFT from the served version, and the decision at the end."""
        usual = list_usual_stages(self, config)
        reads = {stage.name: stage.reads for stage in usual}
        changes: dict[str, Any] = {
            # What people are asked about later is no part of it: it is only looked at, at the end.
            "prepare": {"reads": "seed data.budget model.base model.max_pixels"},
            "sft": {"work": run_warmup, "reads": f"{ASKED} sft"},
            "grpo": {"work": run_grpo_and_average, "reads": f"{reads['grpo']} trained_share"},
            "evaluate": {"reads": f"{reads['evaluate']} trained_share"},
        }
        # No control on the labels alone: it would decide nothing.
        changes["sft_control"] = None
        for stage in usual:
            if "sft_control" in stage.uses:
                uses = stage.uses.replace("sft_control", "")
                changes[stage.name] = {**changes.get(stage.name, {}), "uses": uses}
        from groupwise.learning.decision import decide

        return [
            *keep_stages(usual, **changes),
            Stage(
                name="decide",
                work=decide,
                summary="whether the candidate takes the served version's place",
                reads=f"{ASKED} evaluation.num_latency_items data.asked data.pictures candidate "
                "data.sides level margin served",
                parts=("parser", "measures"),
                uses="prepare audit audit_rewards baselines grpo evaluate",
                code="groupwise.learning.decision groupwise.learning.promotion "
                "groupwise.learning.evidence",
            ),
        ]

    def prepare(self, config: RoundConfig, folder: Path) -> None:
        """Write what is learned, old rows among it, and the held-out set."""
        prepare_round(config, folder)

    def parser(self, config: RoundConfig) -> Parser:
        """Return the origin's."""
        return _task(config).parser(_settings(config))

    def describe_parser(self, config: RoundConfig) -> Mapping[str, Any]:
        """Return the origin's."""
        return _task(config).describe_parser(_settings(config))

    def warmup(self, config: RoundConfig, folder: Path) -> "RowsOfEpoch":
        """Refuse: the rows of this SFT begin with what the served version says (``run_warmup``)."""
        raise NotImplementedError

    def control(
        self, config: RoundConfig, examples: Sequence[Example], ask: "Ask"
    ) -> "RowsOfEpoch":
        """Return the origin's: labels, after what the policy itself says before them."""
        return _task(config).control(_settings(config), examples, ask)

    def judge(self, config: RoundConfig, folder: Path) -> "Judging | None":
        """Return the origin's."""
        return _task(config).judge(_settings(config), folder)

    def rewards(self, config: RoundConfig, judge: Any = None) -> RewardSet:
        """Return the origin's; the labels that people gave are the truth."""
        return _task(config).rewards(_settings(config), judge)

    def make_case(self, config: RoundConfig, folder: Path) -> RewardCase:
        """Return the origin's rewards with this round's rows."""
        return _task(config).make_case(_settings(config), folder)

    def weigh(self, config: RoundConfig) -> Mapping[str, float]:
        """Return the origin's."""
        return _task(config).weigh(_settings(config))

    def describe_weights(self, config: RoundConfig) -> str:
        """Return the origin's."""
        return _task(config).describe_weights(_settings(config))

    def predict_baselines(
        self,
        config: RoundConfig,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example],
    ) -> "list[Prediction]":
        """Return nothing: the served version is what counts."""
        return []

    def policies(self, context: StepContext) -> "Sequence[RunPolicy]":
        """Return the usual ones, the served version as the base and the candidate as it is kept."""
        share = f"{context.config.trained_share:.0%}"
        told = {
            "prompt": {
                "title": "Served version",
                "title_zh": "线上版本",
                "note": "what the round goes on from",
                "note_zh": "本轮训练的起点",
            },
            "grpo": {
                "title": "Candidate",
                "title_zh": "候选版本",
                "note": f"trained on rewards, then {share} of the way from the served weights",
                "note_zh": f"用奖励训练后，取线上权重到训练后权重之间的 {share} 处",
            },
        }
        return [replace(one, **told.get(one.name, {})) for one in super().policies(context)]

    def estimate(self, config: RoundConfig) -> Estimate:
        """Return how many rows there are about."""
        num_items = len(read_items(config.data.items))
        num_learned = num_items * (1 + config.data.variants.num)
        num_prompts = num_learned + round(num_learned * config.data.replay)
        origin = open_origin(config.data.origin)
        return Estimate(
            num_prompts=num_prompts,
            num_sft_rows=num_prompts,
            rows=[
                (example, str(example.label))
                for example in read_examples(origin.folder / origin.task.data_stage / "train.jsonl")
            ][:100],
            facts=[("items", f"{num_items:,} that people agree on")],
        )

    def make_question(self, config: RoundConfig, request: Request, folder: Path) -> Example:
        """Return what the origin asks of a row."""
        return _task(config).make_question(_settings(config), request, folder)

    def picture_columns(self, config: RoundConfig) -> Sequence[str]:
        """Return the origin's."""
        return _task(config).picture_columns(_settings(config))

    def list_requests(self, config: RoundConfig, path: Path) -> tuple[Sequence[Request], DropLog]:
        """Return what the origin asks of a file."""
        return _task(config).list_requests(_settings(config), path)

    def read_labelled(
        self, config: RoundConfig, context: StepContext, path: Path, folder: Path
    ) -> tuple[Sequence[Example], DropLog]:
        """Return the labelled rows of other data, as the origin would ask them."""
        return _task(config).read_labelled(_settings(config), context, path, folder)

    def describe_tools(self, config: RoundConfig) -> Mapping[str, Any]:
        """Return the origin's."""
        return _task(config).describe_tools(_settings(config))

    def describe_prompt(self, config: RoundConfig) -> "Sequence[Message]":
        """Return the origin's."""
        return _task(config).describe_prompt(_settings(config))

    def open_predictor(self, config: RoundConfig, policy: str | Path, run: Path) -> Predictor:
        """Return what answers as the origin does, with this round's policy."""
        return _task(config).open_predictor(_settings(config), policy, run)

    def find_origin(self, config: RoundConfig) -> FinishedRun:
        """Return the run that the loop began with."""
        return open_origin(config.data.origin)


TASK = Round()


def _task(config: Any) -> Task[Any]:
    return open_origin(config.data.origin).task


def _settings(config: Any) -> Any:
    return open_origin(config.data.origin).config


def prepare_round(config: RoundConfig, folder: Path) -> None:
    """Write the splits: what is learned and replayed, and the origin's held-out set.

    Nothing is trained on whose picture, text or session the held-out set or the validation has.
    """
    data, origin = config.data, open_origin(config.data.origin)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    vary = partial(
        make_variants,
        worded=origin.task.worded,
        settings=data.variants,
        seed=config.seed,
        folder=pictures,
    )
    maker = RowMaker(
        run=origin,
        pictures=data.pictures,
        folder=pictures,
        sides=data.sides,
        side="teaches",
        vary=vary,
    )
    rows = maker.make(read_items(data.items))
    source = origin.folder / origin.task.data_stage
    test = copy_pictures(read_examples(source / "test.jsonl"), pictures)
    validation = copy_pictures(read_examples(source / "validation.jsonl"), pictures)
    learned = _keep_apart(rows.examples, test, rows.drops, use="tested")
    learned = _keep_apart(learned, validation, rows.drops, use="validated")
    if not learned:
        raise DataError("people said nothing that can be learned", got=rows.drops.counts)
    old = read_examples(source / "train.jsonl")
    num = min(len(old), round(len(learned) * data.replay))
    replayed = random.Random(derive_seed(config.seed, "replay")).sample(old, num)
    train = [*learned, *copy_pictures(replayed, pictures)]
    splits = {"train": train, "validation": validation, "test": test}
    for name, examples in splits.items():
        write_examples(folder / f"{name}.jsonl", examples)
    write_items(folder / LEARNED, rows.used)
    sizes = {"learned": len(learned), "judged": sum(map(is_judged, rows.used)), REPLAYED: num}
    source = {"num_rows": sum(map(len, splits.values())) + rows.drops.total, **sizes}
    write_json(folder / "source.json", {**source, "drops": rows.drops.to_json()})


def run_warmup(task: Task[Any], context: StepContext) -> None:
    """Teach the served version the labels, after its own words before them."""
    config = context.config
    policy = open_policy(config, config.model.base)
    train = read_examples(context.output_of("prepare") / "train.jsonl")
    rows = task.control(config, train, make_ask(policy, config))
    workspace = Workspace(context.folder, config.seed)
    keep_policy(train_sft(policy, rows, config.sft, workspace=workspace), context.folder)


def run_grpo_and_average(task: Task[Any], context: StepContext) -> None:
    """Train on the rewards; what is kept lies between the served weights and the trained ones."""
    run_grpo(task, context)
    config, kept = context.config, context.folder / "policy"
    if config.trained_share < 1:
        averaged = average_policy(
            kept, config.model.base, config.trained_share, dtype=config.model.dtype
        )
        shutil.rmtree(kept)
        averaged.save(kept)


def _keep_apart(
    learned: Sequence[Example], held: Sequence[Example], drops: DropLog, *, use: str
) -> list[Example]:
    """Return the examples that share no picture, text or session with what is held out."""
    seen, sessions = find_seen(held, learned), {one.cluster for one in held}
    kept: list[Example] = []
    for one in learned:
        if one.id in seen:
            drops.add(f"its picture or text is {use}", f"answer {one.fields[ORIGIN]}")
        elif one.cluster in sessions:
            drops.add(f"its session is {use}", f"answer {one.fields[ORIGIN]}")
        else:
            kept.append(one)
    return kept
