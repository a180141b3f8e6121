"""On-task, from screens to a report: prepare, audit, baselines, SFT, GRPO, evaluate, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.pipeline import (
    AUDIT_REWARDS,
    Preview,
    Recipe,
    RewardSource,
    Step,
    bind_work,
    collect_settings,
    digest_inputs,
)

if TYPE_CHECKING:
    from groupwise.rewards import RewardCase
    from groupwise_recipes.on_task.config import OnTaskConfig

TRAINED = ("sft", "grpo", "sft_same_labels")

_WORK = "groupwise_recipes.on_task.work:WORK"

# Parts of sections: a step is not redone for settings that it does not read.
_PARTS = {
    "asking": ("grpo", ("max_new_tokens",)),
    "heldout": ("evaluation", ("batch_size", "num_heldout_items")),
    "labels": ("grpo", ("epochs", "learning_rate", "trainable", "max_new_tokens")),
}


def plan(config: "OnTaskConfig", run: Path) -> list[Step]:
    """Return the steps; a step lists the settings and steps that its outputs depend on.

    The pipeline adds the audit of ``rewards`` behind the step ``audit``.
    """
    from groupwise_recipes.on_task.rewards import name_weights

    settings = collect_settings(config, parts=_PARTS)

    def make(name: str, summary: str, *, sections: str, uses: str = "", **more: Any) -> Step:
        return Step(
            name=name,
            run=bind_work(_WORK, name, config),
            uses=tuple(uses.split()),
            settings={key: settings[key] for key in sections.split()},
            summary=summary,
            **more,
        )

    asked = "seed model answer asking evaluation"
    return [
        make(
            "prepare",
            "screens into splits and pairs",
            sections="seed model data answer",
            inputs=digest_inputs({"data.root": config.data.root, "model.base": config.model.base}),
        ),
        make("audit", "what the data can be trusted for", sections="model data", uses="prepare"),
        make("baselines", "majority, text, picture, prompt", sections=asked, uses="prepare audit"),
        make("sft", "warm-up with descriptions", sections="seed model answer sft", uses="prepare"),
        make(
            "grpo",
            f"training on the rewards: {name_weights(config)}",
            sections="seed model answer rewards judge grpo heldout",
            uses="prepare sft",
        ),
        make(
            "sft_same_labels",
            "control: SFT on the labels GRPO saw",
            sections="seed model answer sft labels",
            uses="prepare sft",
        ),
        make(
            "evaluate",
            "all policies on the test split",
            sections=f"{asked} grpo metric_versions",
            uses=" ".join(("prepare", "baselines", *TRAINED)),
        ),
        make(
            "report",
            "report.html and report.md",
            sections="seed",
            uses=" ".join(("prepare", "audit", AUDIT_REWARDS, *TRAINED, "evaluate")),
            files=("report.html", "report.md"),
        ),
    ]


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
        collect_rewards, uses=("prepare", "audit"), sections=("model", "answer", "rewards", "judge")
    ),
)
