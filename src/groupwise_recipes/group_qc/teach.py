"""Stage A taught to a tiny random-init model, the base of both stages."""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from groupwise.core import derive_seed, read_picture
from groupwise.flow import open_policy
from groupwise.models import keep_policy, write_tiny_policy
from groupwise.pipeline import StepContext
from groupwise.training import SftRow, Workspace, train_sft
from groupwise_recipes.group_qc.config import GroupQcConfig, TeachSettings
from groupwise_recipes.group_qc.groups import TaughtPhoto, find_root, read_groups, read_taught
from groupwise_recipes.group_qc.prompts import make_photo_example, write_photo_reply
from groupwise_recipes.group_qc.reading import make_reading_rows
from groupwise_recipes.group_qc.stage_b import make_group_rows, make_label_rows
from groupwise_recipes.group_qc.summaries import number_summaries

TEACH_STEP = "teach_stage_a"


def find_base(config: GroupQcConfig, run: Path) -> str | Path:
    """Return the folder or hub id of the one base of both stages."""
    return run / TEACH_STEP / "policy" if config.model.is_preset else config.model.base


def run_teach(context: StepContext) -> None:
    """Build the model and teach it to describe photos, one by one."""
    config: GroupQcConfig = context.config
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
