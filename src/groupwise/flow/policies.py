"""What the policies of the usual stages are, for whoever reads or compares a run."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from groupwise.core import parse_yaml, read_json
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


def list_usual_policies(task: "Task[Any]", context: StepContext) -> list[RunPolicy]:
    """Return the baselines, the base and what the stages that ``evaluate`` uses have trained."""
    run, base = context.run, Path(task.find_base(context.config, context.run))
    is_own = base.is_relative_to(run)  # else it comes from outside
    found = [_tell_winner(one, run) for one in task.baselines]
    found.append(
        make_policy("prompt", weights=base.relative_to(run).as_posix() if is_own else None)
    )
    if task.reads_prompting and task.parser(context.config).labels:
        found.append(make_policy(LENIENT))
    taught = "warmup" if (run / task.data_stage / "warmup.jsonl").is_file() else "train"
    start = "sft" if "sft" in context.uses else "prompt"
    for step, splits in (
        ("sft", (taught,)),
        ("sft_control", ("train",)),
        ("grpo", ("train", "validation")),
    ):
        if step in context.uses:
            origin = "prompt" if step == "sft" else start
            one = make_policy(step, trained_from=origin, trained_on=splits)
            found.append(_tell_selection(one, run))
    return found


@cache
def _read_texts() -> Mapping[str, Mapping[str, Any]]:
    return parse_yaml(Path(__file__).with_name("policies.yaml").read_text(encoding="utf-8"))


def make_policy(name: str, *, numbers: Mapping[str, int] | None = None, **more: Any) -> RunPolicy:
    """Return a policy with the titles and notes of ``policies.yaml``.

    A trained one has the name of its step. ``more`` are its other fields.
    """
    texts = {key: text.format(**(numbers or {})) for key, text in _read_texts()[name].items()}
    if texts["kind"] == "trained":
        more |= {"step": name, "weights": f"{name}/policy"}
    return RunPolicy(name=name, **texts, **more)


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
