"""The training steps: where a policy comes from and where the next one is kept."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from groupwise.core import Example, derive_seed, write_json
from groupwise.data import read_examples
from groupwise.inference import LocalEngine, Sampling
from groupwise.models import Policy, keep_policy, load_policy, write_tiny_policy
from groupwise.pipeline import StepContext
from groupwise.training import Workspace, make_control_settings, train_grpo, train_sft
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.judge import open_judge
from groupwise_recipes.on_task.rewards import make_rewards
from groupwise_recipes.on_task.screens import read_warmup
from groupwise_recipes.on_task.warmup import make_label_rows, make_warmup_rows


def build_base(config: OnTaskConfig, folder: Path) -> None:
    """Write the tiny preset, its tokenizer trained on the words of the warm-up and GRPO splits."""
    if not config.model.is_preset:
        return
    rows = make_warmup_rows(read_warmup(folder), config)(0)
    examples = [row.example for row in rows] + read_examples(folder / "train.jsonl")
    texts = [message.text for example in examples for message in example.prompt]
    write_tiny_policy(
        config.model.base,
        folder / "base",
        seed=derive_seed(config.seed, "base"),
        texts=[*texts, *(row.target for row in rows)],
        max_pixels=config.model.max_pixels,
    )


def find_base(config: OnTaskConfig, run: Path) -> str | Path:
    """Return the folder or hub id of the untrained policy."""
    return run / "prepare" / "base" if config.model.is_preset else config.model.base


def open_policy(config: OnTaskConfig, name: str | Path) -> Policy:
    """Load a policy as ``model`` says."""
    return load_policy(name, dtype=config.model.dtype, max_pixels=config.model.max_pixels)


def run_sft(config: OnTaskConfig, context: StepContext) -> None:
    """Teach the base to describe and decide on the warm-up screens."""
    policy = open_policy(config, find_base(config, context.run))
    rows = make_warmup_rows(read_warmup(context.output_of("prepare")), config)
    workspace = Workspace(context.folder, config.seed)
    trained = train_sft(policy, rows, config.sft, workspace=workspace)
    keep_policy(trained, context.folder)


def run_same_labels(config: OnTaskConfig, context: StepContext) -> None:
    """Go on from the warm-up with SFT on the very labels that GRPO is rewarded by.

    The label is taught after the warm-up policy's own description, at GRPO's learning rate, as
    many times as GRPO passes over the prompts.
    """
    policy = open_policy(config, context.output_of("sft") / "policy")
    examples = read_examples(context.output_of("prepare") / "train.jsonl")
    settings = make_control_settings(config.sft, config.grpo)
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    texts = [completion.text for [completion] in engine.generate(examples, sampling=sampling)]
    prefixes = [config.answer.parse(text).prefix for text in texts]
    rows = make_label_rows(examples, prefixes, config.answer)
    workspace = Workspace(context.folder, derive_seed(config.seed, "same labels"))
    keep_policy(train_sft(policy, rows, settings, workspace=workspace), context.folder)


def run_grpo(config: OnTaskConfig, context: StepContext) -> None:
    """Train on the rewards, from the warm-up."""
    policy = open_policy(config, context.output_of("sft") / "policy")
    prepared = context.output_of("prepare")
    heldout = read_examples(prepared / "validation.jsonl")[: config.evaluation.num_heldout_items]
    judge = open_judge(config.judge, config.answer, context.folder) if config.judge else None
    trained = train_grpo(
        policy,
        read_examples(prepared / "train.jsonl"),
        make_rewards(config, judge),
        config.grpo,
        workspace=Workspace(context.folder, config.seed),
        check_heldout=lambda: check_heldout(policy, heldout, config),
    )
    if judge is not None:
        write_json(context.folder / "judge.json", judge.report())
    keep_policy(trained, context.folder)


def check_heldout(
    policy: Policy, examples: Sequence[Example], config: OnTaskConfig
) -> Mapping[str, float]:
    """Return accuracy and invalid rate under greedy decoding."""
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    sampling = Sampling(max_new_tokens=config.grpo.max_new_tokens)
    completions = engine.generate(examples, sampling=sampling)
    answers = [config.answer.parse(completion.text).label for [completion] in completions]
    hits = sum(answer == e.label for answer, e in zip(answers, examples, strict=True))
    num_items = len(examples)
    return {
        "accuracy": hits / num_items,
        "invalid": answers.count(None) / num_items,
        "n": num_items,
    }
