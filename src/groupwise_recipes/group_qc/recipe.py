"""Group QC, from photos to a report: Stage A describes, Stage B judges, GRPO trains Stage B."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import digest_file, dump_config
from groupwise.pipeline import (
    AUDIT_REWARDS,
    PredictionSource,
    Preview,
    Recipe,
    RewardSource,
    Step,
    StepContext,
)

if TYPE_CHECKING:
    from groupwise.pipeline import FoundGroups
    from groupwise.rewards import RewardCase
    from groupwise.serving import GroupPredictor
    from groupwise_recipes.group_qc.config import GroupQcConfig

TRAINED = ("sft", "grpo", "sft_same_labels")
TEACH = "teach_stage_a"

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
            " ".join(("stage_b_data", "baselines", *TRAINED, TEACH)),
        ),
        (
            "report",
            "report.html and report.md",
            "seed",
            " ".join(("prepare", "audit", "summarize", "stage_b_data", AUDIT_REWARDS, *TRAINED))
            + " evaluate",
        ),
    ]
    absent = set() if config.model.is_preset else {TEACH}
    return [_make_step(row, config, settings, absent) for row in rows if row[0] not in absent]


def _collect_settings(config: "GroupQcConfig", run: Path) -> dict[str, Any]:
    """Return all that steps may depend on: sections of the config, parts of them, and more."""
    from groupwise.evaluation import METRIC_VERSIONS
    from groupwise_recipes.group_qc.summarize import count_attempts

    settings = {**dump_config(config), "metric_versions": dict(METRIC_VERSIONS)}
    for part, (section, keys) in _PARTS.items():
        settings[part] = {key: settings[section][key] for key in keys}
    return {**settings, "retry": count_attempts(run)}


def _make_step(
    row: tuple[str, str, str, str],
    config: "GroupQcConfig",
    settings: dict[str, Any],
    absent: set[str],
) -> Step:
    name, summary, sections, uses = row
    return Step(
        name=name,
        run=_bind(name, config),
        uses=tuple(used for used in uses.split() if used not in absent),
        settings={key: settings[key] for key in sections.split()},
        inputs=_digest_inputs(config) if name == "prepare" else {},
        summary=summary,
        files=("report.html", "report.md") if name == "report" else (),
    )


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


def _bind(name: str, config: "GroupQcConfig") -> Callable[[StepContext], None]:
    """Return the step's work; what needs torch is imported when it runs."""

    def work(context: StepContext) -> None:
        from groupwise_recipes.group_qc.work import WORK

        WORK[name](config, context)

    return work


def _digest_inputs(config: "GroupQcConfig") -> dict[str, str]:
    """Digest what a run reads from outside: photos, missions and a base model's folder."""
    paths = {
        "data.root": config.data.root,
        "data.missions": config.data.missions,
        "model.base": Path(config.model.base),
    }
    return {
        name: digest_file(path)
        for name, path in paths.items()
        if path is not None and path.exists()
    }


recipe = Recipe(
    name="group_qc",
    summary="Does this group of inspection photos pass?",
    config_type="groupwise_recipes.group_qc.config:GroupQcConfig",
    config_folder=Path(__file__).parent / "configs",
    plan=plan,
    preview=preview,
    rewards=RewardSource(collect_rewards, uses=("stage_b_data",), sections=("rewards",)),
    prediction=PredictionSource(open_predictor, list_groups),
)
