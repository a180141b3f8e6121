"""On-task, from screens to a report: prepare, audit, baselines, SFT, GRPO, evaluate, report."""

from pathlib import Path
from typing import TYPE_CHECKING

from groupwise.pipeline import (
    AUDIT_REWARDS,
    Planner,
    Preview,
    Recipe,
    RewardSource,
    Step,
    digest_models,
)

if TYPE_CHECKING:
    from groupwise.rewards import RewardCase
    from groupwise_recipes.on_task.config import OnTaskConfig

TRAINED = ("sft", "grpo", "sft_same_labels")

_WORK = "groupwise_recipes.on_task.work:WORK"

# What loading a policy reads, and what asking it does.
_POLICY = "model.base model.dtype model.max_pixels"
_ASKED = (
    f"seed answer {_POLICY} grpo.max_new_tokens "
    "evaluation.num_items evaluation.batch_size evaluation.num_latency_items"
)
# What the rows of the warm-up read; the words of a preset's tokenizer are theirs, too.
_WARMUP_ROWS = (
    "seed answer sft.pairs_per_screen sft.drawn_pairs_per_screen sft.written_tasks "
    "sft.labelled_share"
)

# Code and texts that are edited between releases: how pairs are asked about and taught, how
# answers are read, what they earn.
_PARSER = "groupwise.rewards.labels groupwise.rewards.parser"
_WORDS = f"{_PARSER} groupwise_recipes.on_task.prompt groupwise_recipes.on_task.warmup"
_REWARDS = "groupwise.rewards groupwise_recipes.on_task.rewards"
_JUDGE = "groupwise.judges groupwise_recipes.on_task.judge groupwise_recipes.on_task.prompts"


def plan(config: "OnTaskConfig", run: Path) -> list[Step]:
    """Return the steps; a step lists the settings and steps that its outputs depend on.

    The pipeline adds the audit of ``rewards`` behind the step ``audit``.
    """
    from groupwise_recipes.on_task.rewards import name_weights

    make = Planner(config, _WORK, inputs=_digest_outside(config)).make_step
    return [
        make(
            "prepare",
            "screens into splits and pairs",
            reads=f"data model.base model.max_pixels {_WARMUP_ROWS}",
            code=_WORDS,
        ),
        make(
            "audit",
            "what the data can be trusted for",
            reads="data.budget data.warmup_share data.mirror_invariant model.base model.max_pixels",
            uses="prepare",
        ),
        make(
            "baselines",
            "majority, text, picture, prompt",
            reads=_ASKED,
            uses="prepare audit",
            code=_PARSER,
        ),
        make(
            "sft",
            "warm-up with descriptions",
            reads=f"seed answer {_POLICY} sft",
            uses="prepare",
            code=_WORDS,
        ),
        make(
            "grpo",
            f"training on the rewards: {name_weights(config)}",
            reads=f"seed answer {_POLICY} rewards judge grpo "
            "evaluation.batch_size evaluation.num_heldout_items",
            uses="prepare sft",
            code=f"{_REWARDS} {_JUDGE if config.judge else ''}",
        ),
        make(
            "sft_same_labels",
            "control: SFT on the labels GRPO saw",
            reads=f"seed answer {_POLICY} sft grpo.epochs grpo.learning_rate grpo.trainable "
            "grpo.max_new_tokens evaluation.batch_size",
            uses="prepare sft",
            code=_WORDS,
        ),
        make(
            "evaluate",
            "all policies on the test split",
            reads=f"{_ASKED} {_WARMUP_ROWS} sft.epochs rewards judge "
            "grpo.epochs grpo.gradient_accumulation metric_versions",
            uses=" ".join(("prepare", "audit", "baselines", *TRAINED)),
            code=_PARSER,
        ),
        make(
            "report",
            "report.html and report.md",
            reads="",
            uses=" ".join(("prepare", "audit", AUDIT_REWARDS, *TRAINED, "evaluate")),
            files=("report.html", "report.md"),
        ),
    ]


def _digest_outside(config: "OnTaskConfig") -> dict[str, str]:
    """Return what the screens, the base and the judge's model are known by."""
    from groupwise.data import digest_screenshots

    root, judge = config.data.root, config.judge
    models = {
        "model.base": None if config.model.is_preset else config.model.base,
        "judge.model": judge and judge.model,
        "judge.tokenizer": judge and judge.tokenizer,
    }
    screens = {} if root is None else {"data.root": digest_screenshots(root)}
    return {**screens, **digest_models(models)}


def preview(config: "OnTaskConfig") -> Preview:
    """Return what a run would do."""
    from groupwise_recipes.on_task.preview import preview_run

    return preview_run(config)


def collect_rewards(config: "OnTaskConfig", run: Path) -> "RewardCase":
    """Return the rewards, with the training pairs they are audited on."""
    from groupwise_recipes.on_task.rewards import make_case

    return make_case(config, run / "prepare")


recipe = Recipe(
    name="on_task",
    summary="Is this screenshot on-task for this task description?",
    config_type="groupwise_recipes.on_task.config:OnTaskConfig",
    config_folder=Path(__file__).parent / "configs",
    plan=plan,
    preview=preview,
    rewards=RewardSource(
        collect_rewards,
        uses=("prepare", "audit"),
        reads="answer rewards judge",
        code=f"{_REWARDS} {_JUDGE} groupwise_recipes.on_task.prompt",
    ),
)
