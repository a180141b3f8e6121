"""Rows of bootstrap say what is easy, and trainings on them begin with that; nothing is trained."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from groupwise.core import load_config, read_json, write_jsonl
from groupwise.evaluation.report.phrases import Phrases
from groupwise.flow import training
from groupwise.pipeline import StepContext, find_config, find_recipe
from groupwise_recipes.on_task.config import OnTaskConfig
from groupwise_recipes.on_task.screens import prepare_screens
from groupwise_recipes.on_task.task import TASK

Settings = dict[str, Any]
Train = Callable[..., Settings]


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Train:
    """Go through a training that only keeps the settings that it was to have."""
    seen: Settings = {}

    def keep(_: object, rows: object, *given: Any, **named: Any) -> None:
        seen.update(easy_first=given[-1].easy_first, find_stop=named.get("find_stop"))

    for name in ("open_policy", "keep_policy", "make_ask"):
        monkeypatch.setattr(training, name, lambda *_, **__: lambda rows: [""] * len(rows))
    monkeypatch.setattr(training, "train_sft", keep)
    monkeypatch.setattr(training, "train_grpo", keep)

    def go(step: str, *overrides: str, source: str = "bootstrap") -> Settings:
        root = tmp_path / "rows"
        root.mkdir(exist_ok=True)
        rows: list[dict[str, Any]] = []
        for n in range(24):
            Image.linear_gradient("L").rotate(15 * n).resize((96, 64)).save(root / f"{n}.png")
            easy, label = ("easy", "hard")[n % 2], ("on-task", "off-task")[n // 2 % 2]
            row = {"image": f"{n}.png", "task": f"task {n}", "session": str(n), "label": label}
            rows.append({**row, "difficulty": easy, "source": source})
        write_jsonl(root / "index.jsonl", rows)
        path = find_config(find_recipe("on_task"), "demo")
        shares = ("warmup_share=0.3", "validation_share=0.2", "test_share=0.2")
        given = (f"data.root={root}", *(f"data.{one}" for one in shares), *overrides)
        config = load_config(OnTaskConfig, path, overrides=given)
        run = tmp_path / "run"
        prepare_screens(config, run / "prepare")
        uses = ("prepare",) if step == "sft" else ("prepare", "sft")
        context = StepContext(run, run / step, step, is_resumed=False, uses=uses, config=config)
        getattr(training, f"run_{step}")(TASK, context)
        return dict(seen)

    return go


@pytest.mark.parametrize("step", ["sft", "grpo", "sft_control"])
def test_a_training_on_rows_of_bootstrap_begins_with_easy_ones_and_the_report_says_so(
    train: Train, tmp_path: Path, step: str
) -> None:
    found = train(step)
    assert found["easy_first"] is True
    # The loss of supervised training may rise while rows become harder.
    assert (found["find_stop"] is None) == (step != "grpo")
    (told,) = read_json(tmp_path / "run" / step / "warnings.json", list)
    assert told["level"] == "info"
    assert told["message"].startswith(f"{step} begins with rows that bootstrap calls easy")
    assert "从 bootstrap 判为容易的行开始" in Phrases("zh").translate(told["message"])


@pytest.mark.parametrize(
    ("overrides", "source", "expected"),
    [
        (("grpo.easy_first=false",), "bootstrap", False),
        (("grpo.easy_first=true",), "captured", True),
        ((), "captured", None),
    ],
)
def test_what_is_set_is_set_and_other_rows_are_shuffled(
    train: Train,
    tmp_path: Path,
    overrides: tuple[str, ...],
    source: str,
    expected: bool | None,
) -> None:
    assert train("grpo", *overrides, source=source)["easy_first"] is expected
    assert not (tmp_path / "run" / "grpo" / "warnings.json").exists()
