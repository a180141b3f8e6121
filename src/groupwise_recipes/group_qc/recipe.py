"""Group QC, from photos to a report: Stage A describes, Stage B judges, GRPO trains Stage B."""

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.core import digest_json, dump_config
from groupwise.pipeline import (
    AUDIT_REWARDS,
    Planner,
    PredictionSource,
    Preview,
    Recipe,
    RewardSource,
    Step,
    StepContext,
    digest_models,
)
from groupwise_recipes.group_qc.verdicts import MISSED

if TYPE_CHECKING:
    from groupwise.pipeline import FoundGroups
    from groupwise.rewards import RewardCase
    from groupwise.serving import GroupPredictor
    from groupwise_recipes.group_qc.config import GroupQcConfig

TRAINED = ("sft", "grpo", "sft_same_labels")
TEACH = "teach_stage_a"

# What loading a policy reads, and what asking it does.
_POLICY = "model.base model.dtype model.max_pixels"
_ASKED = (
    f"seed {_POLICY} data.root grpo.max_new_tokens "
    "evaluation.batch_size evaluation.num_latency_items"
)

# Code that is edited between releases, by the steps whose outputs it decides: what both stages are
# asked and taught, how their replies are read, what these earn.
_OWN = "groupwise_recipes.group_qc"
_TAUGHT = f"{_OWN}.stage_b {_OWN}.verdicts"
_REWARDS = f"groupwise.rewards {_OWN}.rewards {_OWN}.verdicts"
_CODE = {
    TEACH: f"{_OWN}.prompts {_OWN}.reading",
    "summarize": f"{_OWN}.prompts {_OWN}.summaries",
    "stage_b_data": f"{_OWN}.prompts {_OWN}.orders {_OWN}.verdicts",
    "baselines": f"{_OWN}.orders {_OWN}.verdicts",
    "sft": _TAUGHT,
    "grpo": _REWARDS,
    "sft_same_labels": _TAUGHT,
    "evaluate": f"{_OWN}.orders {_OWN}.verdicts",
}


def plan(config: "GroupQcConfig", run: Path) -> list[Step]:
    """Return the steps; a step lists the settings and steps that its outputs depend on.

    The pipeline adds the audit of the rewards behind the step ``stage_b_data``.
    """
    from groupwise_recipes.group_qc.rewards import name_weights
    from groupwise_recipes.group_qc.summarize import count_attempts

    rows = [
        ("prepare", "groups of photos into splits", "seed model.base data", ""),
        ("audit", "what the data can be trusted for", "data.root data.mirror_invariant", "prepare"),
        (
            TEACH,
            "a preset learns to describe photos",
            f"seed {_POLICY} data.root data.missions teach",
            "prepare",
        ),
        (
            "summarize",
            "Stage A: a line about every photo",
            # Behind a server is what summaries name there; the base need not be on this machine.
            f"{'' if config.summaries.server else _POLICY} data.root data.missions summaries retry",
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
            " ".join(("prepare", "audit", "stage_b_data", "baselines", *TRAINED, TEACH)),
        ),
        (
            "report",
            "report.html and report.md",
            "",
            " ".join(("prepare", "audit", AUDIT_REWARDS, *TRAINED, "evaluate")),
        ),
    ]
    facts = {"summaries": config.summaries.describe(), "retry": count_attempts(run)}
    planner = Planner(config, facts, _digest_outside(config))
    absent = set() if config.model.is_preset else {TEACH}
    return [_make_step(row, planner, absent) for row in rows if row[0] not in absent]


def _make_step(row: tuple[str, str, str, str], planner: Planner, absent: set[str]) -> Step:
    name, summary, reads, uses = row

    def work(context: StepContext) -> None:
        from groupwise_recipes.group_qc.work import WORK

        WORK[name](context.config, context)

    return planner.make_step(
        name,
        work,
        summary=summary,
        reads=reads,
        uses=" ".join(used for used in uses.split() if used not in absent),
        code=_CODE.get(name, ""),
        files=("report.html", "report.md") if name == "report" else (),
    )


def _digest_outside(config: "GroupQcConfig") -> dict[str, str]:
    """Return what the photos, the table of missions and the base are known by."""
    from groupwise_recipes.group_qc.groups import digest_source

    data, model = config.data, config.model
    photos = {} if data.root is None else {"data.root": digest_source(data)}
    missions = {"data.missions": digest_json(dump_config(data.load_missions()))}
    return {
        **photos,
        **missions,
        **digest_models({"model.base": None if model.is_preset else model.base}),
    }


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
    rewards=lambda: RewardSource(
        collect_rewards, uses=("stage_b_data",), reads="rewards", code=_REWARDS
    ),
    prediction=PredictionSource(open_predictor, list_groups),
    headline=MISSED,
)
