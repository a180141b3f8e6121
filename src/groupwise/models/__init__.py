"""Policies: loading, tiny presets, pictures, and what of a model trains."""

from groupwise.models.messages import build_messages
from groupwise.models.pictures import open_picture
from groupwise.models.policy import Policy, describe_policy, load_policy
from groupwise.models.processor import PictureProcessor, load_processor
from groupwise.models.tiny import PRESETS, train_tokenizer, write_tiny_policy
from groupwise.models.trainable import (
    LoraSettings,
    TrainableRow,
    TrainableSettings,
    count_blocks,
    format_trainable,
    prepare_trainable,
    tabulate_trainable,
)

__all__ = [
    "PRESETS",
    "LoraSettings",
    "PictureProcessor",
    "Policy",
    "TrainableRow",
    "TrainableSettings",
    "build_messages",
    "count_blocks",
    "describe_policy",
    "format_trainable",
    "load_policy",
    "load_processor",
    "open_picture",
    "prepare_trainable",
    "tabulate_trainable",
    "train_tokenizer",
    "write_tiny_policy",
]
