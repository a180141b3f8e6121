"""A chat template that writes the day's date gives the same prompt on every day, or is refused."""

import shutil
from datetime import datetime

import pytest
from corpora import each_row
from transformers import AutoTokenizer
from transformers.utils import chat_template_utils

from groupwise.core import Message, ModelError, make_example
from groupwise.models.processor import load_processor
from groupwise.models.prompts import build_messages, render_prompt
from groupwise.models.tokenizing import find_tokenizer

EXAMPLE = make_example([Message("user", "Which day is it?")], cluster="g")


@pytest.fixture
def folder(text_folder, tmp_path):
    def write(template):
        shutil.copytree(text_folder, tmp_path / "base")
        path = tmp_path / "base" / "chat_template.jinja"
        path.write_text(template + path.read_text(encoding="utf-8"), encoding="utf-8")
        return tmp_path / "base"

    return write


def list_over_days(monkeypatch, read):
    found = []
    for day in (1, 2):

        class Clock(datetime):
            @classmethod
            def now(cls, *_, day=day):
                return cls(2031, 5, day)

        monkeypatch.setattr(chat_template_utils, "datetime", Clock)
        found.append(read())
    return found


@each_row("dated_templates")
def test_no_prompt_depends_on_its_day(row, folder, monkeypatch, tmp_path):
    base = folder(row["input"])

    def load():
        return load_processor(base, model_type="", has_vision=False)

    if row["expected"] == "refused":
        with pytest.raises(ModelError, match="date"):
            load()
        with pytest.raises(ModelError, match="date"):
            find_tokenizer(base)
        return
    assert row["expected"] == "pinned"
    first, second = list_over_days(monkeypatch, lambda: render_prompt(load(), EXAMPLE))
    assert first == second
    assert "2024" in first
    assert render_prompt(find_tokenizer(base), EXAMPLE) == first
    # Who serves what was saved writes the same prompt.
    load().save_pretrained(tmp_path / "saved")
    others = AutoTokenizer.from_pretrained(tmp_path / "saved")
    written = others.apply_chat_template(
        build_messages(EXAMPLE), add_generation_prompt=True, tokenize=False
    )
    assert written == first
