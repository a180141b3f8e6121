"""What a dry run shows of the rows, and that it waits for nothing heavy."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from small_task import SmallConfig, SmallTask

from groupwise.core import Example, Message, make_example, read_picture
from groupwise.models.base_model import open_token_counter
from groupwise.models.tiny import write_tiny_policy
from groupwise.run.preview import estimate_tokens, preview_run
from groupwise.run.task import Estimate


def ask(text: str, *pictures: Any) -> Example:
    return make_example([Message("user", [text, *pictures])], cluster=text, label="合格")


class Rows(SmallTask):
    """Says what the test gives it."""

    def __init__(self, *rows: tuple[Example, str], **more: Any) -> None:
        self.rows, self.more = rows, more

    def estimate(self, config: SmallConfig) -> Estimate:
        return Estimate(num_prompts=8, num_sft_rows=0, rows=self.rows, **self.more)


def configure(base: Path | str = "tiny-qwen2", **grpo: Any) -> SmallConfig:
    return SmallConfig.model_validate(
        {"model": {"base": str(base), "max_pixels": 128 * 256}, "data": {}, "grpo": grpo}
    )


def test_rows_are_shown_as_the_chat_template_writes_them() -> None:
    rows = [(ask(f"bolt {number}"), "合格") for number in range(5)]
    shown = preview_run(Rows(*rows), configure()).shown
    assert [row.prompt for row in shown] == [
        f"<|im_start|>user\nbolt {number}<|im_end|>\n<|im_start|>assistant\n" for number in range(3)
    ]
    assert {row.answer for row in shown} == {"合格"}


def test_pictures_leave_a_mark_and_count_as_the_audit_counts_them(tmp_path: Path) -> None:
    Image.new("RGB", (512, 256)).save(tmp_path / "螺栓.png")
    example = ask("Is it tight?", read_picture(tmp_path / "螺栓.png"))
    name, texts = "tiny-qwen2.5-vl", ["Is it tight?", "合格"]
    base = write_tiny_policy(name, tmp_path / "base", texts=texts, max_pixels=128 * 256)
    preview = preview_run(Rows((example, "合格")), configure(name))
    (row,) = preview.shown
    assert row.pictures == ["螺栓.png"]
    assert "Is it tight?<|vision_start|><|image_pad|><|vision_end|><|im_end|>" in row.prompt
    prompt, _ = preview.tables[1].rows
    assert prompt[2] == str(open_token_counter(base, max_pixels=128 * 256)(example))


def test_lengths_are_held_against_what_is_allowed() -> None:
    rows = [(ask("螺" * number), "q7" * number) for number in (1, 2, 30)]
    preview = preview_run(Rows(*rows), configure(max_new_tokens=20))
    prompt, answer = preview.tables[1].rows
    assert int(prompt[1]) < int(prompt[2])
    assert prompt[3:5] == ("4,096", "data.budget.max_prompt_tokens")
    assert answer[3:5] == ("20", "grpo.max_new_tokens")
    assert preview.problems == []
    told = f"the longest answer has {answer[2]} tokens, and more than grpo.max_new_tokens (20) are"
    assert ("warning", f"{told} truncated") in preview.facts


def test_most_answers_have_to_fit() -> None:
    rows = [(ask("螺"), "q7" * number) for number in (1, 30, 31)]
    preview = preview_run(Rows(*rows), configure(max_new_tokens=20))
    _, answer = preview.tables[1].rows
    (problem,) = preview.problems
    clause = f"grpo.max_new_tokens: 20 cannot hold an answer, which has about {answer[1]} tokens"
    assert problem == f"{clause}; raise it"


@pytest.mark.parametrize(("setting", "most"), [("_MOST_COUNTED", 10), ("_MOST_LETTERS", 25)])
def test_of_very_many_rows_some_are_counted_and_the_longest(
    setting: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"groupwise.run.preview.{setting}", most)
    rows = [(ask(f"{number:02}"), "合格") for number in range(28)]
    prompt, _ = preview_run(Rows(*rows), configure()).tables[1].rows
    assert prompt[5] == "by the tokenizer, 12 of 28 rows"
    rows[4] = (ask("螺栓" * 9), "合格")
    longer, _ = preview_run(Rows(*rows), configure()).tables[1].rows
    assert int(longer[2]) > int(prompt[2])


def test_without_the_base_the_rows_are_shown_and_their_tokens_estimated(tmp_path: Path) -> None:
    preview = preview_run(Rows((ask("Is it 紧?"), "合格")), configure(tmp_path / "gone"))
    assert preview.shown[0].prompt == "user: Is it 紧?"
    assert [row[5] for row in preview.tables[1].rows] == ["estimated: the base is not here"] * 2


def test_where_rows_come_from_is_told_with_shares_of_the_largest() -> None:
    sources = {"train": {"b.csv": 1, "a.csv": 3}, "test": {"a.csv": 2}}
    preview = preview_run(Rows((ask("a"), "b"), sources=sources), configure())
    assert list(preview.tables[0].rows) == [
        ("train", "a.csv", "3", "75.0%"),
        ("train", "b.csv", "1", "25.0%"),
        ("test", "a.csv", "2", "100.0%"),
    ]
    many = {"test": {f"{n:02}.csv": n for n in range(1, 14)}}
    *named, others = preview_run(Rows((ask("a"), "b"), sources=many), configure()).tables[0].rows
    assert [row[1] for row in named] == [f"{n:02}.csv" for n in range(4, 14)]
    assert others == ("test", "3 others", "6", "6.6%")


def test_a_token_is_four_letters_or_a_chinese_character() -> None:
    assert [estimate_tokens(text) for text in ("", "abcd", "abcde", "螺栓", "螺abcde")] == [
        0,
        1,
        2,
        2,
        3,
    ]


def test_a_dry_run_of_a_text_task_waits_for_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom groupwise.cli.main import app\n"
        "for words in (['new', 'mine', '--tiny'], ['run', 'mine/task.yaml', '--dry-run']):\n"
        "    done = CliRunner().invoke(app, words, catch_exceptions=False)\n"
        "print(done.output)\nassert not {'torch', 'sklearn', 'trl'} & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in ("row 3 of 3", "Which team should read", "messages.csv", "ready: nothing was"):
        assert part in done.stdout
