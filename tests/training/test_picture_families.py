"""Families with pictures learn and answer from folders, as their users have them."""

import pytest
import vision_families

from groupwise.core import Message, Score, TrainingError, make_example, read_jsonl
from groupwise.inference import LocalEngine, Sampling
from groupwise.models import TrainableSettings, load_policy, silence_libraries
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    RowCollator,
    SftRow,
    SftSettings,
    Workspace,
    train_grpo,
    train_sft,
)
from groupwise.training.settings import SpeedSettings

# In tiles, and its own processor wants torchvision; all when there is time.
QUICK = ("internvl",)
FAMILIES = [
    one if one in QUICK else pytest.param(one, marks=pytest.mark.slow)
    for one in vision_families.FAMILIES
]


class Scatter:
    name = "scatter"

    def __call__(self, example, completion):
        return Score((sum(completion.token_ids) % 7) / 6, invalid=False)


@pytest.fixture
def load(text_folder, tmp_path):
    """Write a folder of a family and load it."""

    def run(family):
        sizes, folder = vision_families.Sizes(), tmp_path / family
        tokenizer = load_policy(text_folder).processor
        processor = vision_families.make_processor(family, tokenizer, sizes)
        with silence_libraries():
            vision_families.make_model(family, processor, sizes).save_pretrained(folder)
        processor.save_pretrained(folder)
        return load_policy(folder, max_pixels=28 * 28)

    return run


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_learns_and_answers_from_its_folder(load, picture_examples, tmp_path, family):
    policy, examples = load(family), picture_examples[:2]
    trainable = TrainableSettings(method="full")
    taught = train_sft(
        policy,
        lambda _: [SftRow(one, "yes") for one in examples],
        SftSettings(batch_size=2, learning_rate=1e-3, warmup_share=0.0, trainable=trainable),
        workspace=Workspace(tmp_path / "sft", 0),
    )
    taught.save(tmp_path / "taught")
    policy = load_policy(tmp_path / "taught")
    settings = GrpoSettings(
        prompts_per_step=2,
        group_size=2,
        max_new_tokens=4,
        temperature=2.0,
        learning_rate=1e-3,
        beta=0.1,
        max_steps=1,
        warmup_share=0.0,
        log_every_steps=1,
        speed=SpeedSettings(shared_prefix="on"),
        trainable=trainable,
    )
    work = Workspace(tmp_path / "grpo", 0)
    policy = train_grpo(
        policy, examples, RewardSet({"scatter": (Scatter(), 1.0)}), settings, workspace=work
    )
    [row] = [one for one in read_jsonl(work.folder / "metrics.jsonl") if "loss" in one]
    assert row["step"] == 1
    policy.save(tmp_path / "saved")
    again = load_policy(tmp_path / "saved")
    engines = [LocalEngine(one, batch_size=2) for one in (policy, again)]
    sampling = Sampling(max_new_tokens=4, temperature=0.0)
    said = [
        [one.token_ids for [one] in engine.generate(examples, sampling=sampling)]
        for engine in engines
    ]
    assert said[0] == said[1]


def test_targets_are_no_part_of_a_picture(load, picture_examples):
    collate = RowCollator(load("gemma3_vl"), augmentation=None, seed=0)
    batch = collate([(0, n, SftRow(one, "yes")) for n, one in enumerate(picture_examples[:2])])
    assert batch["token_type_ids"].shape == batch["labels"].shape
    assert batch["token_type_ids"].any(1).all()
    assert not batch["token_type_ids"][batch["labels"] >= 0].any()


def test_several_pictures_of_a_model_that_trl_gives_one(load, picture_examples, tmp_path):
    policy = load("llava_onevision")
    pictures = [one.pictures[0] for one in picture_examples[:2]]
    example = make_example([Message("user", "Which?")], cluster="0", pictures=pictures)
    settings = GrpoSettings(
        prompts_per_step=1, group_size=2, trainable=TrainableSettings(method="full")
    )
    with pytest.raises(TrainingError, match="one picture a prompt"):
        train_grpo(policy, [example], None, settings, workspace=Workspace(tmp_path, 0))
