"""What a training step leaves behind: the policy, and the table of what trained."""

from dataclasses import asdict
from pathlib import Path

from groupwise.core import write_json, write_text
from groupwise.models.export import merge_adapter
from groupwise.models.policy import Policy
from groupwise.models.trainable import format_trainable, tabulate_trainable


def keep_policy(policy: Policy, folder: Path, *, merged: bool = False) -> None:
    """Save a trained policy under ``folder/policy``, with what trained and what was frozen.

    The counts stand in ``trainable.json`` and, for people, in ``trainable.txt``.

    Args:
        policy: the policy.
        folder: of its stage.
        merged: whether its adapter is merged into its weights, so that it can be a base.
    """
    rows = tabulate_trainable(policy.model)
    (merge_adapter(policy) if merged else policy).save(folder / "policy")
    write_json(folder / "trainable.json", [asdict(row) for row in rows])
    write_text(folder / "trainable.txt", format_trainable(rows) + "\n")
