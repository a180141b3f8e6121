"""Group QC, from photos to a report: Stage A describes, Stage B judges, GRPO trains Stage B."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.pipeline import (
    AUDIT_REWARDS,
    PredictionSource,
    Preview,
    Recipe,
    RewardSource,
    Step,
    bind_work,
    collect_settings,
    digest_inputs,
)
from groupwise_recipes.group_qc.verdicts import MISSED

if TYPE_CHECKING:
    from groupwise.pipeline import FoundGroups
    from groupwise.rewards import RewardCase
    from groupwise.serving import GroupPredictor
    from groupwise_recipes.group_qc.config import GroupQcConfig

TRAINED = ("sft", "grpo", "sft_same_labels")
TEACH = "teach_stage_a"

_WORK = "groupwise_recipes.group_qc.work:WORK"

# Parts of sections: a step is not redone for settings that it does not read.
_PARTS = {
    "asking": ("grpo", ("max_new_tokens", "dtype")),
    "heldout": ("evaluation", ("batch_size", "num_heldout_items")),
    "labels": ("grpo", ("epochs", "learning_rate", "trainable", "dtype")),
    "few": ("sft", ("num_groups",)),
}


def plan(config: "GroupQcConfig", run: Path) -> list[Step]:
    """Return the steps; a step lists the settings and steps that its outputs depend on.

    The pipeline adds the audit of the rewards behind the step ``stage_b_data``.
    """
    from groupwise_recipes.group_qc.rewards import name_weights

    settings = _collect_settings(config, run)
    asked = "seed model asking evaluation"
    rows = [
        ("prepare", "groups of photos into splits", "seed model data", ""),
        ("audit", "what the data can be trusted for", "data", "prepare"),
        (TEACH, "a preset learns to describe photos", "seed model data teach asking", "prepare"),
        (
            "summarize",
            "Stage A: a line about every photo",
            "model data summaries asking retry",
            f"prepare {TEACH}",
        ),
        ("stage_b_data", "summaries into questions", "model data", f"prepare summarize {TEACH}"),
        (
            "baselines",
            "majority, summaries' words, photos, prompt",
            asked,
            f"prepare stage_b_data {TEACH}",
        ),
        (
            "sft",
            "warm-up of Stage B on few groups",
            "seed model sft asking",
            f"stage_b_data {TEACH}",
        ),
        (
            "grpo",
            f"Stage B from verdicts: {name_weights(config.rewards)}",
            "seed model rewards grpo heldout",
            f"stage_b_data sft {TEACH}",
        ),
        (
            "sft_same_labels",
            "control: SFT on the labels GRPO saw",
            "seed model sft labels",
            f"stage_b_data sft {TEACH}",
        ),
        (
            "evaluate",
            "all policies on the test groups",
            f"{asked} rewards grpo few metric_versions",
            " ".join(("prepare", "stage_b_data", "baselines", *TRAINED, TEACH)),
        ),
        (
            "report",
            "report.html and report.md",
            "seed",
            " ".join(("prepare", "audit", AUDIT_REWARDS, *TRAINED, "evaluate")),
        ),
    ]
    absent = set() if config.model.is_preset else {TEACH}
    return [_make_step(row, config, settings, absent) for row in rows if row[0] not in absent]


def _collect_settings(config: "GroupQcConfig", run: Path) -> dict[str, Any]:
    """Return all that steps may depend on: sections of the config, parts of them, and more."""
    from groupwise_recipes.group_qc.summarize import count_attempts

    return {
        **collect_settings(config, parts=_PARTS),
        "summaries": config.summaries.describe(),
        "retry": count_attempts(run),
    }


def _make_step(
    row: tuple[str, str, str, str],
    config: "GroupQcConfig",
    settings: dict[str, Any],
    absent: set[str],
) -> Step:
    name, summary, sections, uses = row
    return Step(
        name=name,
        run=bind_work(_WORK, name, config),
        uses=tuple(used for used in uses.split() if used not in absent),
        settings={key: settings[key] for key in sections.split()},
        inputs=_digest_outside(config) if name == "prepare" else {},
        summary=summary,
        files=("report.html", "report.md") if name == "report" else (),
    )


def _digest_outside(config: "GroupQcConfig") -> dict[str, str]:
    data = config.data
    paths = {"data.root": data.root, "data.missions": data.missions}
    return digest_inputs({**paths, "model.base": config.model.base})


def preview(config: "GroupQcConfig") -> Preview:
    """Return what a run would do."""
    from groupwise_recipes.group_qc.preview import preview_run

    return preview_run(config)


def collect_rewards(config: "GroupQcConfig", run: Path) -> "RewardCase":
    """Return the rewards, with the training groups they are audited on."""
    from groupwise_recipes.group_qc.rewards import make_case

    return make_case(config.rewards, run / "stage_b_data" / "train.jsonl")


def open_predictor(config: "GroupQcConfig", run: Path) -> "GroupPredictor":
    """Return what judges new groups with a finished run."""
    from groupwise_recipes.group_qc.predictor import GroupQcPredictor

    return GroupQcPredictor(config, run)


def list_groups(config: "GroupQcConfig", photos: Path) -> "FoundGroups":
    """Return the groups of a folder of photos."""
    from groupwise_recipes.group_qc.predictor import list_groups as list_found

    return list_found(config, photos)


recipe = Recipe(
    name="group_qc",
    summary="Does this group of inspection photos pass?",
    config_type="groupwise_recipes.group_qc.config:GroupQcConfig",
    config_folder=Path(__file__).parent / "configs",
    plan=plan,
    preview=preview,
    rewards=RewardSource(collect_rewards, uses=("stage_b_data",), sections=("rewards",)),
    prediction=PredictionSource(open_predictor, list_groups),
    headline=MISSED,
)
