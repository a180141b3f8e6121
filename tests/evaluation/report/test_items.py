"""One prompt as the model sees it, and what to type next, on the page of a run."""

from html import escape
from pathlib import Path

import pytest

from groupwise.core import write_json
from groupwise.evaluation.page import LANGUAGES, Language
from groupwise.evaluation.report import build_report, render_html, render_markdown

PROMPT = (
    "<|im_start|>user\n\n# 1 < 2\n```\n<script>x</script>\x1b[31m<|im_end|>\n<|im_start|>assistant"
)


@pytest.mark.parametrize(
    ("language", "title"),
    [("en", "The prompt as the model sees it"), ("zh", "模型看到的提示")],
)
def test_a_prompt_is_shown_line_by_line_and_does_nothing(
    tmp_path: Path, language: Language, title: str
) -> None:
    asked = {"item": "0123456789", "shown": PROMPT, "pictures": ["a`b.png"], "turns": {}}
    write_json(tmp_path / "evaluate/prompts.json", asked)
    report = build_report(tmp_path)
    shown = PROMPT.replace("\x1b", "␛")
    html = render_html(report, language=language)
    assert f"<h2>{title}</h2>" in html
    assert f'<pre class="card">{escape(shown)}</pre>' in html
    markdown = render_markdown(report, language=language).split(f"## {title}")[1]
    assert "`01234567`" in markdown
    assert "a\\`b.png" in markdown
    indented = "\n".join(f"    {line}" for line in shown.split("\n"))
    assert f"\n\n{indented}\n\n" in markdown


def test_a_run_that_does_not_know_the_prompt_has_no_such_part(tmp_path: Path) -> None:
    write_json(tmp_path / "evaluate/prompts.json", {"turns": {"a": "b"}})
    assert "as the model sees it" not in render_html(build_report(tmp_path))


@pytest.mark.parametrize("language", LANGUAGES)
def test_commands_are_those_of_the_run_and_name_its_folder(
    tmp_path: Path, language: Language
) -> None:
    run = tmp_path / "my run"
    write_json(run / "evaluate/verbs.json", ["export-model", "predict", "nonsense"])
    markdown = render_markdown(build_report(run), language=language)
    assert (
        "\n\n    groupwise predict 'my run' ROWS --out answers.jsonl\n"
        "    groupwise export-model 'my run' --out model\n\n"
    ) in markdown
    (run / "evaluate/verbs.json").unlink()
    assert "    groupwise" not in render_markdown(build_report(run), language=language)
