"""Settings of SFT on the same labels as GRPO."""

from pydantic import Field

from groupwise.models import LoraSettings, TrainableSettings
from groupwise.training import (
    GrpoSettings,
    PictureAugmentation,
    SftSettings,
    ValidationSettings,
    make_control_settings,
)


class WarmupSettings(SftSettings):
    num_groups: int = Field(default=3, ge=1)


def test_the_control_trains_as_long_and_as_fast_as_grpo_and_else_as_the_warm_up():
    trainable = TrainableSettings(lora=LoraSettings(rank=4, last_blocks=2))
    sft = WarmupSettings(
        epochs=7,
        batch_size=3,
        learning_rate=1e-2,
        scheduler="cosine",
        save_every_steps=5,
        heldout_every_steps=6,
        augmentation=PictureAugmentation(hue=0.1),
    )
    grpo = GrpoSettings(epochs=2, learning_rate=3e-6, scheduler="constant", trainable=trainable)
    assert make_control_settings(sft, grpo) == SftSettings(
        epochs=2,
        batch_size=3,
        learning_rate=3e-6,
        scheduler="cosine",
        save_every_steps=5,
        heldout_every_steps=6,
        augmentation=PictureAugmentation(hue=0.1),
        trainable=trainable,
    )


def test_the_control_chooses_on_validation_where_grpo_does():
    looks = ValidationSettings(every_steps=4)
    control = make_control_settings(
        SftSettings(heldout_every_steps=6), GrpoSettings(validation=looks)
    )
    assert (control.validation, control.heldout_every_steps) == (looks, None)
    control = make_control_settings(
        SftSettings(validation=looks), GrpoSettings(heldout_every_steps=6)
    )
    assert (control.validation, control.heldout_every_steps) == (None, None)
