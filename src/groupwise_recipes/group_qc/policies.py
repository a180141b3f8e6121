"""The training steps: the base, taught Stage A if it is a preset, and Stage B on top of it."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from groupwise.core import Example, derive_seed, read_picture
from groupwise.data import read_examples
from groupwise.inference import LocalEngine, Sampling
from groupwise.models import Policy, keep_policy, load_policy, write_tiny_policy
from groupwise.pipeline import StepContext
from groupwise.training import SftRow, Workspace, make_control_settings, train_grpo, train_sft
from groupwise_recipes.group_qc.config import GroupQcConfig, TeachSettings
from groupwise_recipes.group_qc.groups import TaughtPhoto, find_root, read_groups, read_taught
from groupwise_recipes.group_qc.prompts import make_photo_example, write_photo_reply
from groupwise_recipes.group_qc.reading import make_reading_rows
from groupwise_recipes.group_qc.rewards import make_rewards
from groupwise_recipes.group_qc.stage_b import (
    choose_few,
    draw_heldout,
    make_group_rows,
    make_label_rows,
)
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import parse_judgement

TEACH_STEP = "teach_stage_a"


def find_base(config: GroupQcConfig, run: Path) -> str | Path:
    """Return the folder or hub id of the one base of both stages."""
    return run / TEACH_STEP / "policy" if config.model.is_preset else config.model.base


def open_policy(config: GroupQcConfig, name: str | Path) -> Policy:
    """Load a policy as ``model`` says; an adapter brings its base along."""
    return load_policy(name, dtype=config.model.dtype, max_pixels=config.model.max_pixels)


def run_teach(config: GroupQcConfig, context: StepContext) -> None:
    """Build the preset and teach it to describe photos, one by one."""
    teach = config.teach
    assert teach is not None
    photos = read_taught(config, context.output_of("prepare"))
    rows = make_photo_rows(photos, config)
    lessons = partial(
        make_reading_rows,
        photos,
        config.data.load_missions(),
        num_rows=teach.reading_per_epoch,
        seed=config.seed,
    )
    base = context.folder / "untaught"
    if not (base / "config.json").exists():
        write_tiny_policy(
            config.model.base,
            base,
            seed=derive_seed(config.seed, "base"),
            texts=[*_list_texts([*rows, *lessons(epoch=0)]), *_list_group_texts(config, context)],
            max_pixels=config.model.max_pixels,
        )
    policy = open_policy(config, base)
    workspace = Workspace(context.folder, config.seed)

    def list_rows(epoch: int) -> list[SftRow]:
        seed = derive_seed(config.seed, "taught photos", epoch)
        return [*draw_photos(rows, teach, seed=seed), *lessons(epoch=epoch)]

    trained = train_sft(policy, list_rows, teach, workspace=workspace)
    keep_policy(trained, context.folder)


def make_photo_rows(photos: Sequence[TaughtPhoto], config: GroupQcConfig) -> list[SftRow]:
    """Return rows of a photo and the whole reply that Stage A is to give."""
    missions = config.data.load_missions()
    examples = [
        make_photo_example(
            photo.mission,
            missions[photo.mission].focus,
            read_picture(photo.path),
            group=photo.group_id,
            description=photo.description,
        )
        for photo in photos
    ]
    return [
        SftRow(example, write_photo_reply(photo.description))
        for example, photo in zip(examples, photos, strict=True)
    ]


def draw_photos(rows: Sequence[SftRow], teach: TeachSettings, *, seed: int) -> list[SftRow]:
    """Return the photos of an epoch, rare descriptions more often as ``balance`` says."""
    rng = random.Random(seed)
    num_photos = teach.photos_per_epoch or len(rows)
    if not teach.balance:
        return rng.sample(rows, min(num_photos, len(rows)))
    counts = Counter(row.target for row in rows)
    weights = [counts[row.target] ** -teach.balance for row in rows]
    return rng.choices(rows, weights, k=num_photos)


def run_sft(config: GroupQcConfig, context: StepContext) -> None:
    """Warm Stage B up on a few labelled groups: an adapter on the last blocks, text only."""
    policy = open_policy(config, find_base(config, context.run))
    examples = read_examples(context.output_of("stage_b_data") / "warmup.jsonl")
    few = choose_few(examples, config.sft.num_groups, seed=config.seed)
    workspace = Workspace(context.folder, config.seed)
    trained = train_sft(policy, make_label_rows(few), config.sft, workspace=workspace)
    keep_policy(trained, context.folder)


def run_same_labels(config: GroupQcConfig, context: StepContext) -> None:
    """Go on from the warm-up with SFT on the very groups and labels that GRPO is rewarded by."""
    policy = open_policy(config, context.output_of("sft") / "policy")
    examples = read_examples(context.output_of("stage_b_data") / "train.jsonl")
    settings = make_control_settings(config.sft, config.grpo)
    workspace = Workspace(context.folder, derive_seed(config.seed, "same labels"))
    trained = train_sft(policy, make_label_rows(examples), settings, workspace=workspace)
    keep_policy(trained, context.folder)


def run_grpo(config: GroupQcConfig, context: StepContext) -> None:
    """Train Stage B on the rewards, from the warm-up."""
    policy = open_policy(config, context.output_of("sft") / "policy")
    data = context.output_of("stage_b_data")
    heldout = draw_heldout(
        read_examples(data / "validation.jsonl"),
        config.evaluation.num_heldout_items,
        seed=config.seed,
    )
    trained = train_grpo(
        policy,
        read_examples(data / "train.jsonl"),
        make_rewards(config.rewards),
        config.grpo,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=lambda: check_heldout(policy, heldout, config),
    )
    keep_policy(trained, context.folder)


def check_heldout(
    policy: Policy, examples: Sequence[Example], config: GroupQcConfig
) -> Mapping[str, float]:
    """Return accuracy, the share without a verdict and the two-line rate under greedy decoding."""
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    texts = [found.text for [found] in engine.generate(examples, sampling=sampling)]
    replies = [parse_judgement(text) for text in texts]
    pairs = zip(replies, examples, strict=True)
    num_items = len(examples)
    return {
        "accuracy": sum(reply.verdict == example.label for reply, example in pairs) / num_items,
        "invalid": sum(reply.verdict is None for reply in replies) / num_items,
        "two_lines": sum(reply.is_well_formed for reply in replies) / num_items,
        "n": num_items,
    }


def _list_texts(rows: Sequence[SftRow]) -> list[str]:
    texts = [message.text for row in rows for message in row.example.prompt]
    return [*texts, *(row.target for row in rows)]


def _list_group_texts(config: GroupQcConfig, context: StepContext) -> list[str]:
    """Return Stage B texts as the taught descriptions would make them, for the tokenizer."""
    prepared = context.output_of("prepare")
    known = {photo.path: photo.description for photo in read_taught(config, prepared)}
    groups = [group for members in read_groups(config, prepared).values() for group in members]
    taught = [group for group in groups if all(path in known for path in group.photos)]
    summaries = {g.key: number_summaries([known[p] for p in g.photos]) for g in taught}
    root = find_root(config, prepared)
    examples = make_group_rows(taught, summaries, config.data.load_missions(), root=root)
    return _list_texts(make_label_rows(examples)(0))
