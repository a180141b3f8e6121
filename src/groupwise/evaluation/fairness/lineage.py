"""What stands behind each policy of a recipe that compares SFT, its control and GRPO.

Such a recipe has the steps ``baselines``, ``sft`` (the warm-up), ``sft_same_labels`` (the control:
SFT on the labels that GRPO is rewarded by), ``grpo`` and ``evaluate``, and the data ``warmup``,
``train``, ``validation`` and ``test``. A recipe with other steps writes its own.
"""

from collections.abc import Mapping

USUAL_LINEAGE: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("majority", "text_only", "picture_only"), ("baselines",)),
    "prompt": (),
    "sft": ("sft",),
    "sft_same_labels": ("sft", "sft_same_labels"),
    "grpo": ("sft", "grpo"),
}
"""By policy: the training steps behind it, in order (``Conditions.lineage``)."""

USUAL_READS: Mapping[str, tuple[str, ...]] = {
    "baselines": ("train",),
    "sft": ("warmup",),
    "sft_same_labels": ("train",),
    "grpo": ("train", "validation"),
    "evaluate": ("test",),
}
"""By step: the data that it reads (``Conditions.reads``)."""
