"""Policies: loading, tiny random-init models, and what of a model trains."""

from groupwise.models.attention import unplanned_attention
from groupwise.models.averaging import average_policy
from groupwise.models.base_model import (
    find_num_blocks,
    find_weights,
    open_image_processor,
    open_processor,
    open_token_counter,
    refuse_missing,
    takes_pictures,
)
from groupwise.models.embedders import (
    SENTENCES,
    TOWER,
    embed_pictures,
    embed_texts,
    find_embedder,
)
from groupwise.models.encoding import (
    break_tokens,
    break_tokens_for_others,
    encode_as_written,
    encode_words,
    show_written,
)
from groupwise.models.export import CARD, ExportedPolicy, export_policy, keep_policy
from groupwise.models.identity import (
    digest_base,
    is_adapter,
    pin_base,
    read_base,
    refuse_pickled,
)
from groupwise.models.outline import Outline, find_outline
from groupwise.models.policy import Policy, load_policy, project_patches_fast
from groupwise.models.processor import (
    PICTURE_FIELDS,
    TOKEN_TYPES,
    PictureProcessor,
    leave_videos,
    load_processor,
)
from groupwise.models.prompts import (
    TINY_TOKEN_SIDE,
    TOKEN_SIDE,
    build_messages,
    count_picture_tokens,
    estimate_picture_tokens,
    make_token_counter,
    render_prompt,
)
from groupwise.models.quantization import (
    explain_no_quantization,
    find_quantization,
    keep_adapter_dtype,
    note_quantization,
)
from groupwise.models.settings import (
    TINY_MODELS,
    ModelSettings,
    ModelShape,
    Quantization,
)
from groupwise.models.silence import silence_libraries
from groupwise.models.sources import (
    NAMED_MODELS,
    bring_base,
    describe_base,
    describe_place,
    fetch_model,
    find_cache,
    find_hub_id,
    find_place,
    list_places,
)
from groupwise.models.tiny import write_tiny_policy
from groupwise.models.tiny_vision import SeenPicture, pretrain_vision
from groupwise.models.tokenizing import find_tokenizer, train_tokenizer
from groupwise.models.trainable import (
    LoraSettings,
    TrainableRow,
    TrainableSettings,
    count_blocks,
    format_trainable,
    list_trainable,
    note_trained,
    prepare_trainable,
    refuse_trained,
    restore_trainable,
    tabulate_trainable,
)
from groupwise.models.virtual_tokens import PromptSettings

__all__ = [
    "CARD",
    "NAMED_MODELS",
    "PICTURE_FIELDS",
    "SENTENCES",
    "TINY_MODELS",
    "TINY_TOKEN_SIDE",
    "TOKEN_SIDE",
    "TOKEN_TYPES",
    "TOWER",
    "ExportedPolicy",
    "LoraSettings",
    "ModelSettings",
    "ModelShape",
    "Outline",
    "PictureProcessor",
    "Policy",
    "PromptSettings",
    "Quantization",
    "SeenPicture",
    "TrainableRow",
    "TrainableSettings",
    "average_policy",
    "break_tokens",
    "break_tokens_for_others",
    "bring_base",
    "build_messages",
    "count_blocks",
    "count_picture_tokens",
    "describe_base",
    "describe_place",
    "digest_base",
    "embed_pictures",
    "embed_texts",
    "encode_as_written",
    "encode_words",
    "estimate_picture_tokens",
    "explain_no_quantization",
    "export_policy",
    "fetch_model",
    "find_cache",
    "find_embedder",
    "find_hub_id",
    "find_num_blocks",
    "find_outline",
    "find_place",
    "find_quantization",
    "find_tokenizer",
    "find_weights",
    "format_trainable",
    "is_adapter",
    "keep_adapter_dtype",
    "keep_policy",
    "leave_videos",
    "list_places",
    "list_trainable",
    "load_policy",
    "load_processor",
    "make_token_counter",
    "note_quantization",
    "note_trained",
    "open_image_processor",
    "open_processor",
    "open_token_counter",
    "pin_base",
    "prepare_trainable",
    "pretrain_vision",
    "project_patches_fast",
    "read_base",
    "refuse_missing",
    "refuse_pickled",
    "refuse_trained",
    "render_prompt",
    "restore_trainable",
    "show_written",
    "silence_libraries",
    "tabulate_trainable",
    "takes_pictures",
    "train_tokenizer",
    "unplanned_attention",
    "write_tiny_policy",
]
