"""What the policies of the usual stages are, for whoever reads or compares a run."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import read_json
from groupwise.evaluation.baselines import JOINT
from groupwise.evaluation.predictions import RunPolicy
from groupwise.evaluation.report.phrases import Phrases, format_share
from groupwise.pipeline import StepContext

if TYPE_CHECKING:
    from groupwise.flow.task import Task

LENIENT = "prompt_lenient"
"""The policy whose answers are those of ``prompt``, read leniently."""
RANKED = "joint.json"
"""In the folder of ``baselines``: the joint baseline's candidates, and what none of them saw."""
_NOTES = {
    "sft": ("the supervised start of GRPO", "GRPO 之前的监督训练"),
    "sft_control": (
        "supervised on all labels that GRPO saw",
        "用 GRPO 见过的全部标签做监督训练",
    ),
    "grpo": ("the policy trained on rewards", "用奖励训练得到的策略"),
}


def list_usual_policies(task: "Task[Any]", context: StepContext) -> list[RunPolicy]:
    """Return the baselines, the base and what the stages that ``evaluate`` uses have trained."""
    prompted = RunPolicy(
        name="prompt",
        title="Prompting",
        title_zh="提示（未训练）",
        note="the policy before any training",
        note_zh="任何训练之前的策略",
        kind="prompted",
        weights=_place(task.find_base(context.config, context.run), context.run),
    )
    lenient = replace(
        prompted,
        name=LENIENT,
        title="Prompting, read leniently",
        title_zh="提示（未训练，宽松读取）",
        note="before any training; the one label its answer names, else the one it finds likeliest",
        note_zh="任何训练之前；取其回答中唯一提到的标签，没有则取它认为最可能的标签",
        weights=None,
    )
    has_lenient = task.reads_prompting and bool(task.parser(context.config).labels)
    taught = "warmup" if (context.run / task.data_stage / "warmup.jsonl").is_file() else "train"
    trained = [
        _train("sft", "SFT warm-up", "SFT 预热", taught),
        _train("sft_control", "SFT control", "SFT 对照", "train"),
        _train("grpo", "GRPO", "GRPO", "train", "validation"),
    ]
    start = "sft" if "sft" in context.uses else "prompt"
    return [
        *(_tell_winner(one, context.run) for one in task.baselines),
        prompted,
        *([lenient] if has_lenient else []),
        *(
            replace(
                _tell_selection(one, context.run),
                trained_from="prompt" if one.name == "sft" else start,
            )
            for one in trained
            if one.name in context.uses
        ),
    ]


def _train(step: str, title: str, title_zh: str, *splits: str) -> RunPolicy:
    note, note_zh = _NOTES[step]
    return RunPolicy(
        name=step,
        title=title,
        title_zh=title_zh,
        note=note,
        note_zh=note_zh,
        kind="trained",
        step=step,
        trained_on=splits,
        weights=f"{step}/policy",
    )


def _tell_winner(policy: RunPolicy, run: Path) -> RunPolicy:
    """Say which candidate the joint baseline took, and how right it was in cross-validation."""
    path = run / "baselines" / RANKED
    ranked = read_json(path, dict)["ranked"] if path.is_file() else []
    if policy.name != JOINT.name or not ranked:
        return policy
    name, share = ranked[0]["name"], format_share(ranked[0]["accuracy"])
    note = f"{policy.note}; here {name} ({share} in cross-validation on training rows)"
    chinese = Phrases("zh").translate(name)
    note_zh = f"{policy.note_zh}；此处为{chinese}（训练样本交叉验证 {share}）"
    return replace(policy, note=note, note_zh=note_zh)


def _tell_selection(policy: RunPolicy, run: Path) -> RunPolicy:
    """Say of which step the weights are, if looks at validation decided that or the end."""
    path = run / policy.name / "selection.json"
    if not path.is_file():
        return policy
    found = read_json(path, dict)
    kept, last, num_looks = found["kept_step"], found["last_step"], len(found["looks"])
    note = f"weights of step {kept} of {last}, chosen on validation in {num_looks} looks"
    note_zh = f"取第 {kept} 步（共 {last} 步）的权重，由验证集上的 {num_looks} 次检查选出"
    return replace(policy, note=f"{policy.note}; {note}", note_zh=f"{policy.note_zh}；{note_zh}")


def _place(base: str | Path, run: Path) -> str | None:
    """Return where in the run the base is, None if it comes from outside."""
    is_own = Path(base).is_relative_to(run)
    return Path(base).relative_to(run).as_posix() if is_own else None
