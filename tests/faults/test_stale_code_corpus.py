"""The corpus of changed reward code: it is noticed, or the audit says that it cannot be."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from corpora import each_row, read_corpus

from groupwise.core import Completion, Message, make_example
from groupwise.rewards import FunctionReward, LabelParser, RewardCase, RewardSet, digest_functions
from groupwise.rewards.audit.audit import audit_rewards

ROWS = read_corpus("stale_code")


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def score(file: Path) -> tuple[float | None, set[str]]:
    reward = FunctionReward(f"{file}:f", kind="other", messages=False, values=(0.0, 1.0))
    example = make_example([Message("user", "q")], cluster="g", label="a")
    return reward(example, Completion("x")).value, getattr(reward, "unseen", set())


@each_row("stale_code")
def test_changed_code_keeps_its_label(
    row: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in row.get("environment", ()):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "task"
    write(folder, row["files"])
    monkeypatch.setattr(sys, "path", [*sys.path])
    first = digest_functions(folder / "rewards.py")
    value, unseen = score(folder / "rewards.py")
    assert value == 1
    assert bool(unseen) == (row["expected"] == "told"), unseen
    assert digest_functions(folder / "rewards.py") == first

    write(folder, row.get("change", {}))
    for name, given in row.get("environment", {}).items():
        monkeypatch.setenv(name, given)
    if row.get("move"):
        folder = Path(shutil.copytree(folder, tmp_path / "elsewhere" / "own"))
    is_noticed = digest_functions(folder / "rewards.py") != first
    assert is_noticed == (row["expected"] == "noticed")
    if is_noticed:
        assert score(folder / "rewards.py")[0] == 0


CUT_OFF = """from pathlib import Path

def f(example, completion):
    if completion.finish_reason == "length":
        return float(Path(__file__).with_name("weight.txt").read_text())
    return 0.5
"""


@pytest.mark.parametrize("is_of_cut_off", [False, True])
def test_the_audit_names_what_no_digest_knows(tmp_path: Path, is_of_cut_off: bool) -> None:
    row = next(one for one in ROWS if one["name"] == "file_read_while_scoring")
    write(tmp_path, row["files"] | ({"rewards.py": CUT_OFF} if is_of_cut_off else {}))
    name = f"{tmp_path / 'rewards.py'}:f"
    reward = FunctionReward(name, kind="other", messages=False, values=(0.0, 1.0))
    parser = LabelParser(labels=("yes", "no"))
    examples = [
        make_example([Message("user", label)], cluster=label, label=label)
        for label in parser.labels
    ]
    case = RewardCase(
        rewards=RewardSet({"f": (reward, 1.0)}),
        examples=examples,
        parser=parser,
        write_answer=lambda example, label: label,
    )
    (found,) = [
        one for one in audit_rewards(case).findings if one.name == "reward/depends-on-unseen"
    ]
    assert found.level == "warning"
    assert "the part 'f' depends on the file weight.txt" in found.where[0]
