"""The training stages: where a policy comes from and where the next one is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from groupwise.core import derive_seed, write_json
from groupwise.data.examples import read_splits
from groupwise.evaluation.alarms import History, find_stop
from groupwise.evaluation.report.phrases import Phrases
from groupwise.flow.asking import check_heldout, make_ask, open_policy
from groupwise.models.export import keep_policy
from groupwise.models.policy import Policy
from groupwise.pipeline import StepContext
from groupwise.training.callbacks import FindStop
from groupwise.training.checkpoints import Workspace
from groupwise.training.grpo import train_grpo
from groupwise.training.processes import is_first_process
from groupwise.training.settings import GrpoSettings, SftSettings
from groupwise.training.sft import make_control_settings, train_sft

if TYPE_CHECKING:
    from groupwise.flow.task import Task


Settings = TypeVar("Settings", SftSettings, GrpoSettings)


def run_sft(task: Task[Any], context: StepContext) -> None:
    """Teach the base on the warm-up rows."""
    config = context.config
    settings = _choose_order(task, context, config.sft, setting="sft.easy_first", split="warmup")
    policy = open_policy(config, task.find_base(config, context.run))
    rows = task.warmup(config, context.output_of(task.data_stage))
    trained = train_sft(
        policy,
        rows,
        settings,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=_open_check(task, policy, context) if settings.has_looks else None,
        # The loss may rise while rows become harder.
        find_stop=None if settings.easy_first else _choose_stop(config),
    )
    keep_trained(trained, context)


def run_sft_control(task: Task[Any], context: StepContext) -> None:
    """Go on from the warm-up with SFT on the very labels that GRPO is rewarded by.

    It trains at GRPO's learning rate, as many times as GRPO passes over the prompts.
    """
    config = context.config
    policy = open_start(task, context)
    examples = read_splits(context.output_of(task.data_stage), "train")["train"]
    rows = task.control(config, examples, make_ask(policy, config))
    settings = make_control_settings(config.sft, config.grpo)
    settings = _choose_order(task, context, settings, setting="sft.easy_first", split="train")
    workspace = Workspace(context.folder, derive_seed(config.seed, "same labels"))
    check = _open_check(task, policy, context) if settings.has_looks else None
    trained = train_sft(policy, rows, settings, workspace=workspace, check_heldout=check)
    keep_trained(trained, context)


def run_grpo(task: Task[Any], context: StepContext) -> None:
    """Train on the rewards, from the warm-up if there is one."""
    config = context.config
    policy = open_start(task, context)
    train = read_splits(context.output_of(task.data_stage), "train")["train"]
    settings = _choose_order(task, context, config.grpo, setting="grpo.easy_first", split="train")
    scores = is_first_process()
    judge = task.judge(config, context.folder) if scores else None
    trained = train_grpo(
        policy,
        train,
        task.rewards(config, judge) if scores else None,
        settings,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=_open_check(task, policy, context),
        find_stop=_choose_stop(config),
    )
    if judge:
        write_json(context.folder / "judge.json", judge.report())
    keep_trained(trained, context)


def _choose_order(
    task: Task[Any], context: StepContext, settings: Settings, *, setting: str, split: str
) -> Settings:
    """Return the settings; where they leave the order open, easy rows first if rows have them.

    The report says so.
    """
    prepared = context.output_of(task.data_stage)
    if settings.easy_first is not None or not task.begins_easy(context.config, prepared, split):
        return settings
    if is_first_process():
        said = (
            f"{context.name} begins with rows that bootstrap calls easy, and ends its first epoch "
            f"with hard ones ({setting}=false shuffles them)."
        )
        write_json(context.folder / "warnings.json", [{"level": "info", "message": said}])
    return settings.model_copy(update={"easy_first": True})


def keep_trained(policy: Policy, context: StepContext) -> None:
    """Keep a trained policy in the folder of its step."""
    if is_first_process():
        keep_policy(policy, context.folder)


def _choose_stop(config: Any) -> FindStop | None:
    return describe_stop if config.stop_on_alarm else None


def describe_stop(rows: Sequence[Mapping[str, Any]], num_steps: int) -> tuple[str, str] | None:
    """Return what is wrong with a training of so many steps, and what to do; None: go on."""
    alarm = find_stop(History(rows), num_steps=num_steps)
    if alarm is None:
        return None
    phrases = Phrases("en")
    advice = f"{phrases.say(alarm.advice)}; --set stop_on_alarm=false goes on from here"
    return phrases.say(alarm.said), advice


def _open_check(
    task: Task[Any], policy: Policy, context: StepContext
) -> Callable[[], Mapping[str, float]] | None:
    """Return the check on held-out validation items; None if there are none."""
    config = context.config
    examples = read_splits(context.output_of(task.data_stage), "validation")["validation"]
    heldout = task.choose_heldout(config, examples) if examples else ()
    if not heldout:
        return None
    return lambda: check_heldout(task, policy, heldout, config, run=context.run)


def open_start(task: Task[Any], context: StepContext) -> Policy:
    """Load what GRPO and its control start from: the warm-up's policy, else the base."""
    config = context.config
    if "sft" in context.uses:
        return open_policy(config, context.output_of("sft") / "policy")
    return open_policy(config, task.find_base(config, context.run))
