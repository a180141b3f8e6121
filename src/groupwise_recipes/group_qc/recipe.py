"""Group QC, from photos to a report: Stage A describes, Stage B judges, GRPO trains Stage B."""

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.pipeline import (
    AUDIT_REWARDS,
    Planner,
    PredictionSource,
    Preview,
    Recipe,
    RewardSource,
    Step,
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

# What loading a policy reads, and what asking it does.
_POLICY = "model.base model.dtype model.max_pixels"
_ASKED = (
    f"seed {_POLICY} data.root grpo.max_new_tokens "
    "evaluation.batch_size evaluation.num_latency_items"
)


def plan(config: "GroupQcConfig", run: Path) -> list[Step]:
    """Return the steps; a step lists the settings and steps that its outputs depend on.

    The pipeline adds the audit of the rewards behind the step ``stage_b_data``.
    """
    from groupwise_recipes.group_qc.rewards import name_weights
    from groupwise_recipes.group_qc.summarize import count_attempts

    rows = [
        ("prepare", "groups of photos into splits", "seed model.base data", ""),
        ("audit", "what the data can be trusted for", "data.root", "prepare"),
        (
            TEACH,
            "a preset learns to describe photos",
            f"seed {_POLICY} data.root data.missions teach",
            "prepare",
        ),
        (
            "summarize",
            "Stage A: a line about every photo",
            "model data.root data.missions summaries retry",
            f"prepare {TEACH}",
        ),
        (
            "stage_b_data",
            "summaries into questions",
            "model.base data.root data.missions data.warmup_share data.budget",
            f"prepare summarize {TEACH}",
        ),
        (
            "baselines",
            "majority, summaries' words, photos, prompt",
            _ASKED,
            f"prepare stage_b_data {TEACH}",
        ),
        (
            "sft",
            "warm-up of Stage B on few groups",
            f"seed {_POLICY} sft",
            f"stage_b_data {TEACH}",
        ),
        (
            "grpo",
            f"Stage B from verdicts: {name_weights(config.rewards)}",
            f"seed {_POLICY} rewards grpo evaluation.batch_size evaluation.num_heldout_items",
            f"stage_b_data sft {TEACH}",
        ),
        (
            "sft_same_labels",
            "control: SFT on the labels GRPO saw",
            f"seed {_POLICY} sft grpo.epochs grpo.learning_rate grpo.trainable",
            f"stage_b_data sft {TEACH}",
        ),
        (
            "evaluate",
            "all policies on the test groups",
            f"{_ASKED} rewards sft.num_groups sft.epochs grpo.epochs grpo.gradient_accumulation "
            "metric_versions",
            " ".join(("prepare", "stage_b_data", "baselines", *TRAINED, TEACH)),
        ),
        (
            "report",
            "report.html and report.md",
            "",
            " ".join(("prepare", "audit", AUDIT_REWARDS, *TRAINED, "evaluate")),
        ),
    ]
    facts = {"summaries": config.summaries.describe(), "retry": count_attempts(run)}
    planner = Planner(config, _WORK, facts)
    absent = set() if config.model.is_preset else {TEACH}
    return [_make_step(row, planner, config, absent) for row in rows if row[0] not in absent]


def _make_step(
    row: tuple[str, str, str, str], planner: Planner, config: "GroupQcConfig", absent: set[str]
) -> Step:
    name, summary, reads, uses = row
    return planner.make_step(
        name,
        summary,
        reads=reads,
        uses=" ".join(used for used in uses.split() if used not in absent),
        inputs=_digest_outside(config) if name == "prepare" else {},
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
    rewards=RewardSource(collect_rewards, uses=("stage_b_data",), reads="rewards"),
    prediction=PredictionSource(open_predictor, list_groups),
    headline=MISSED,
)
