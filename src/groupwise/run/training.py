"""The stages that prepare data, audit them, and train."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from groupwise import core
from groupwise.core import ROW_FIELD, ConfigError, DataError, Example
from groupwise.data.audit import DataAudit, audit_data, find_near_pictures, write_audit
from groupwise.data.examples import DropLog, read_splits, write_examples
from groupwise.evaluation.alarms import History, find_stop
from groupwise.evaluation.baselines import MAJORITY, Candidate, predict_joint
from groupwise.evaluation.report.phrases import Phrases
from groupwise.models.base_model import open_token_counter
from groupwise.models.export import keep_policy
from groupwise.models.policy import Policy
from groupwise.models.tiny import write_tiny_policy
from groupwise.run.asking import check_heldout, make_ask, open_policy
from groupwise.run.steps import StepContext
from groupwise.training.checkpoints import Workspace
from groupwise.training.grpo import train_grpo
from groupwise.training.processes import is_first_process
from groupwise.training.settings import GrpoSettings, SftSettings
from groupwise.training.sft import make_control_settings, train_sft

if TYPE_CHECKING:
    from groupwise.run.task import Task


SPLITS = ("train", "validation", "test")


def run_prepare(task: Task[Any], context: StepContext, *, has_warmup: bool = True) -> None:
    """Make the splits, and build the base where it is not a published one.

    Rows over the budget are left out, counted, if ``data.budget`` says so.
    """
    config, folder = context.config, context.folder
    task.prepare(config, folder)
    build_base(task, context, has_warmup=has_warmup)
    most = config.data.budget.max_prompt_tokens
    if not config.data.budget.drop_longer:
        return
    if task.data_stage != "prepare":
        raise ConfigError(
            "data.budget.drop_longer is for rows that the stage prepare reads",
            got=f"splits that the stage {task.data_stage} makes",
            fix="leave it out, and set data.budget.allow_longer or a larger budget",
        )
    count = _open_counter(task, context)
    source = core.read_json(folder / "source.json", dict)
    drops = DropLog.from_json(source["drops"])
    for split, rows in read_splits(folder, *SPLITS).items():
        sizes = {row.id: count(row) for row in rows}
        kept = [row for row in rows if sizes[row.id] <= most]
        if not kept:
            raise DataError(
                f"every row of split {split} is longer than the budget",
                got=f"{min(sizes.values())} tokens and more",
                expected=f"at most {most}",
                fix="raise data.budget.max_prompt_tokens",
            )
        for row in rows:
            if sizes[row.id] > most:
                where = f"{row.fields.get(ROW_FIELD, row.id)} ({split}, {sizes[row.id]} tokens)"
                drops.add("longer than data.budget.max_prompt_tokens", where)
        write_examples(folder / f"{split}.jsonl", kept)
    core.write_json(folder / "source.json", {**source, "drops": drops.to_json()})


def run_prepare_without_warmup(task: Task[Any], context: StepContext) -> None:
    """Do the same where no warm-up follows."""
    run_prepare(task, context, has_warmup=False)


def _open_counter(task: Task[Any], context: StepContext) -> Callable[[Example], int]:
    """Return what counts the tokens of a prompt as the base sees it."""
    base = task.find_base(context.config, context.run)
    return open_token_counter(base, max_pixels=context.config.model.max_pixels)


def build_base(task: Task[Any], context: StepContext, *, has_warmup: bool) -> None:
    """Write the tiny model, its tokenizer trained on the words of the warm-up and GRPO splits."""
    config, folder = context.config, context.folder
    if not config.model.is_tiny:
        return
    examples = read_splits(folder, "train")["train"]
    targets = [example.label for example in examples if example.label is not None]
    if has_warmup:
        rows = task.warmup(config, folder)(0)
        examples = [row.example for row in rows] + examples
        targets = [row.target for row in rows]
    texts = [message.text for example in examples for message in example.prompt]
    base = write_tiny_policy(
        config.model.base,
        folder / "base",
        seed=core.derive_seed(config.seed, "base"),
        texts=[*texts, *targets],
        max_pixels=config.model.max_pixels,
        looks_back=task.looks_back,
    )
    task.pretrain(context, base)


def run_audit(task: Task[Any], context: StepContext) -> None:
    """Audit the splits and stop the run on an error."""
    prepared = context.output_of(task.data_stage)
    source = core.read_json(prepared / "source.json", dict)
    splits = read_splits(prepared, *SPLITS)
    drops = DropLog.from_json(source["drops"])
    audit = audit_splits(task, context, splits, drops=drops, num_rows=source["num_rows"])
    audit = audit.add(task.find_in_settings(context.config))
    audit = audit.add(task.find_in_data(context.config, prepared))
    write_audit(audit, context.folder)
    audit.refuse_errors()


def audit_splits(
    task: Task[Any],
    context: StepContext,
    splits: Mapping[str, Sequence[Example]],
    *,
    drops: DropLog,
    num_rows: int,
) -> DataAudit:
    """Return what is found in splits, the last of which is measured."""
    config, prepared = context.config, context.output_of(task.data_stage)
    warmup = list(task.show_warmup(config, prepared))
    shown = {name: task.show(config, context, rows) for name, rows in splits.items()}
    return audit_data(
        splits,
        drops=drops,
        num_rows=num_rows,
        budget=config.data.budget,
        count_tokens=_open_counter(task, context),
        near=find_near_pictures(
            {**({"warmup": warmup} if warmup else {}), **shown},
            mirrored=config.data.mirror_invariant,
        ),
    )


def rate_baselines(task: Task[Any], config: Any, run: Path) -> dict[str, float]:
    """Return the share of training examples that simple models get right, by their names.

    Each example is answered by models that have seen nothing of its cluster. The test split is not
    looked at, so this may be asked as often as one likes. ``run`` has the outputs of the data
    stages. A ConfigError if answers are no labels, an EvaluationError if the training labels do
    not differ or are of one cluster.
    """
    from groupwise.run.probing import Probes

    if not task.parser(config).labels:
        raise ConfigError("the baselines are rated where answers are labels")
    uses = tuple(dict.fromkeys(("prepare", task.data_stage)))
    context = StepContext(run, run / "audit", "audit", is_resumed=False, uses=uses, config=config)
    train = task.show(config, context, read_splits(run / task.data_stage, "train")["train"])
    counts = Counter(str(example.label) for example in train)
    probes = Probes(config, task.find_base(config, run), context, train)
    seen: Any = {"suggest": task.joint_candidates, "read": task.read, "embed": probes}
    ranked: list[Candidate] = []
    predict_joint(train, (), split="train", seed=config.seed, record=ranked.extend, **seen)
    if not ranked:
        raise core.EvaluationError("the joint baseline needs two clusters to learn from", got=1)
    return {
        **{one.name: one.accuracy for one in ranked},
        MAJORITY.name: max(counts.values()) / len(train),
    }


Settings = TypeVar("Settings", SftSettings, GrpoSettings)


def run_sft(task: Task[Any], context: StepContext) -> None:
    """Teach the base on the warm-up rows."""
    config = context.config
    settings = _choose_order(task, context, config.sft, setting="sft.easy_first", split="warmup")
    policy = open_policy(config, task.find_base(config, context.run))
    trained = train_sft(
        policy,
        task.warmup(config, context.output_of(task.data_stage)),
        settings,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=_open_check(task, policy, context) if settings.has_looks else None,
        # The loss may rise while rows become harder.
        find_stop=describe_stop if config.stop_on_alarm and not settings.easy_first else None,
    )
    keep_trained(trained, context)


def run_sft_control(task: Task[Any], context: StepContext) -> None:
    """Go on from the warm-up with SFT on the very labels that GRPO is rewarded by.

    It trains at GRPO's learning rate, as many times as GRPO passes over the prompts.
    """
    config = context.config
    policy = open_start(task, context)
    rows = task.control(config, _read_train(task, context), make_ask(policy, config))
    settings = make_control_settings(config.sft, config.grpo)
    settings = _choose_order(task, context, settings, setting="sft.easy_first", split="train")
    workspace = Workspace(context.folder, core.derive_seed(config.seed, "same labels"))
    check = _open_check(task, policy, context) if settings.has_looks else None
    trained = train_sft(policy, rows, settings, workspace=workspace, check_heldout=check)
    keep_trained(trained, context)


def run_grpo(task: Task[Any], context: StepContext) -> None:
    """Train on the rewards, from the warm-up if there is one."""
    config = context.config
    policy = open_start(task, context)
    settings = _choose_order(task, context, config.grpo, setting="grpo.easy_first", split="train")
    scores = is_first_process()
    judge = task.judge(config, context.folder) if scores else None
    trained = train_grpo(
        policy,
        _read_train(task, context),
        task.rewards(config, judge) if scores else None,
        settings,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=_open_check(task, policy, context),
        find_stop=describe_stop if config.stop_on_alarm else None,
    )
    if judge:
        core.write_json(context.folder / "judge.json", judge.report())
    keep_trained(trained, context)


def _read_train(task: Task[Any], context: StepContext) -> Sequence[Example]:
    return read_splits(context.output_of(task.data_stage), "train")["train"]


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
        core.write_json(context.folder / "warnings.json", [{"level": "info", "message": said}])
    return settings.model_copy(update={"easy_first": True})


def keep_trained(policy: Policy, context: StepContext) -> None:
    """Keep a trained policy in the folder of its step."""
    if is_first_process():
        keep_policy(policy, context.folder)


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
