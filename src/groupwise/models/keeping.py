"""What a training step leaves behind: the policy, and the table of what trained."""

from dataclasses import asdict
from pathlib import Path

from groupwise.core import write_json, write_text
from groupwise.models.policy import Policy
from groupwise.models.trainable import format_trainable, tabulate_trainable


def keep_policy(policy: Policy, folder: Path) -> None:
    """Save a trained policy under ``folder/policy``, with what trained and what was frozen.

    The counts stand in ``trainable.json`` and, for people, in ``trainable.txt``.
    """
    policy.save(folder / "policy")
    rows = tabulate_trainable(policy.model)
    write_json(folder / "trainable.json", [asdict(row) for row in rows])
    write_text(folder / "trainable.txt", format_trainable(rows) + "\n")
