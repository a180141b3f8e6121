"""A policy of a run for other tools: its weights and a model card."""

from pathlib import Path

from groupwise.core import RunError, write_text
from groupwise.flow.card import render_card
from groupwise.flow.finished import BASE, FinishedRun
from groupwise.models import ExportedPolicy, export_policy

CARD = "README.md"


def export_run(run: FinishedRun, out: Path, *, policy: str | None = None) -> ExportedPolicy:
    """Write the adapter, the merged weights and the model card of a policy.

    Args:
        run: a run with policies.
        out: a new or empty folder.
        policy: of the run, or ``STEP/checkpoint-N``; None: the main one.

    Raises:
        RunError: if there is no such policy, or it is the base itself.
        ModelError: as ``export_policy``.
    """
    chosen = run.choose_policy(policy)
    if chosen == BASE:
        raise RunError(f"the policy {BASE} is the base itself", fix="take the base where it is")
    name = f"{run.recipe.name}-{run.folder.resolve().name}".replace(":", "-")
    exported = export_policy(Path(run.find_policy(chosen)), out, name=name)
    write_text(out / CARD, render_card(run, chosen, exported))
    return exported
