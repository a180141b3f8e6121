"""What training fixed and broke, and texts that nobody may trust, on the page of a run."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from run_folders import POLICIES

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation import (
    Policies,
    Prediction,
    compute_metrics,
    write_metrics,
    write_policies,
    write_predictions,
)
from groupwise.evaluation.page import LANGUAGES
from groupwise.evaluation.predictions import Measure
from groupwise.evaluation.report import build_report, render_html, render_markdown
from groupwise.evaluation.report.changes import _is_good, find_changes

HOSTILE = (
    "<script>alert(1)</script> $\\frac{1}{0}$ \x1b[31mred\x1b[0m \u202eleft | `x` \ue000open {0}"
)


def write_run(run: Path, items: list[Prediction], turns: dict[str, str]) -> Path:
    write_predictions(run / "evaluate/predictions.jsonl", items)
    write_metrics(run / "evaluate/metrics.json", compute_metrics(items, labels=()))
    write_json(run / "evaluate/prompts.json", {"turns": turns})
    write_policies(run, POLICIES)
    return run


def test_counts_are_of_the_items_that_both_policies_answered(
    make_table: Callable[..., list[Prediction]],
) -> None:
    before = make_table([("a", "b"), ("a", "a"), ("a", "a"), ("a", None), ("a", "b")], policy="sft")
    after = make_table([("a", "a"), ("a", None), ("a", "a"), ("a", "b")], policy="grpo")
    found = find_changes({"sft": before, "grpo": after}, Policies(POLICIES))
    assert found is not None
    assert (found.before, found.after) == ("sft", "grpo")
    assert {kind: [a.example_id for a, _ in pairs] for kind, pairs in found.pairs.items()} == {
        "fixed": ["i0000"],
        "broken": ["i0001"],
        "right_twice": ["i0002"],
        "wrong_twice": ["i0003"],
    }
    assert find_changes({"grpo": after}, Policies(POLICIES)) is None
    assert find_changes({}, Policies(POLICIES)) is None


def test_at_most_three_of_each_are_shown_with_prompt_both_answers_and_truth(
    tmp_path: Path, make_table: Callable[..., list[Prediction]]
) -> None:
    before = make_table([("yes", "no")] * 5 + [("yes", "yes")], policy="sft")
    after = make_table([("yes", "yes")] * 5 + [("yes", "no")], policy="grpo")
    turns = {f"i{n:04}": f"Question {n}?" for n in range(6)}
    report = build_report(write_run(tmp_path, [*before, *after], turns))
    page = render_markdown(report).split("## What training changed")[1].split("## Mistakes")[0]
    assert re.findall(r"Question \d", page) == [f"Question {n}" for n in (0, 1, 2, 5)]
    assert "| Fixed: wrong before, right after | 5 | 83.3\u00a0% |" in page
    assert "| Broken: right before, wrong after | 1 | 16.7\u00a0% |" in page
    said = "SFT warm-up said: “no”; GRPO said: “yes”; cluster"
    assert f"truth: yes; SFT warm-up: no; GRPO: yes; {said}" in page
    assert "picture" not in page  # these items never had one


def test_pictures_belong_to_their_items(full_run: Path) -> None:
    page = render_markdown(build_report(full_run))
    changed = page.split("## What training changed")[1].split("## Mistakes")[0]
    shown = re.findall(r"!\[Picture of item (\w+)\]\((\S+)\)", changed)
    assert len(shown) == 6
    report = build_report(full_run)
    changes = find_changes(report.answers, report.files.policies)
    assert changes is not None
    pairs = [*changes.pairs["fixed"][:3], *changes.pairs["broken"][:3]]
    paths = list(dict.fromkeys(after.pictures for _, after in pairs))
    assert [int(file[-6:-4]) - 1 for _, file in shown] == [
        paths.index(after.pictures) for _, after in pairs
    ]


@pytest.mark.parametrize("language", LANGUAGES)
def test_hostile_texts_are_shown_and_do_nothing(
    tmp_path: Path, make_prediction: Callable[..., Prediction], language: str
) -> None:
    one = make_prediction(
        "yes", HOSTILE, text=HOSTILE, cluster=HOSTILE.replace("\ue000", ""), policy="sft"
    )
    fixed = replace(one, predicted="yes", policy="grpo")
    other = replace(fixed, example_id="other", label=HOSTILE)
    items = [one, fixed, other, replace(other, policy="sft", predicted=HOSTILE)]
    run = write_run(tmp_path / "run", items, {"item": HOSTILE, "other": HOSTILE})
    html = render_html(build_report(run), language=language)  # pyright: ignore[reportArgumentType]
    markdown = render_markdown(build_report(run), language=language)  # pyright: ignore[reportArgumentType]
    for page in (html, markdown):
        assert "<script" not in page
        assert not set(page) & {"\x1b", "\u202e"}
        assert "␛[31mred" in page.replace("\\[", "[")
    assert html.count("<code>") == html.count("</code>")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; $\\frac{1}{0}$" in html
    assert not re.search(r"(?<!\\)\$", markdown)
    assert "{0}" in html


def test_long_texts_are_cut(tmp_path: Path, make_table: Callable[..., list[Prediction]]) -> None:
    long = "word " * 1000
    before = make_table([("yes", "no")], policy="sft", text=long)
    after = make_table([("yes", "yes")], policy="grpo", text=long)
    page = render_html(build_report(write_run(tmp_path, [*before, *after], {"i0000": long})))
    assert max(map(len, re.findall(r"(?:word )+", page))) <= 400


def test_damaged_prompts_are_an_error_that_names_the_file(full_run: Path, tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("pictures")
    run = Path(shutil.copytree(full_run, tmp_path / "run", ignore=ignore))
    write_json(run / "evaluate/prompts.json", {"turns": {"item": 1}})
    with pytest.raises(EvaluationError, match=r"prompts\.json is damaged"):
        build_report(run)


@pytest.mark.parametrize(
    ("values", "is_higher_better", "good"),
    [
        ((0.0, 0.0), True, [False, False]),
        ((1.0, 1.0), True, [True, True]),
        ((0.2, 0.4), True, [False, True]),
        ((0.2, 0.4), False, [True, False]),
        ((0.0, 0.0), False, [True, True]),
        ((None, 0.4), True, [False, True]),
    ],
)
def test_an_answer_is_good_by_itself_or_beside_the_other(values, is_higher_better, good):
    measure = Measure("m", "M", "M", is_higher_better=is_higher_better)
    pair = [SimpleNamespace(scores={} if one is None else {"m": one}) for one in values]
    assert [_is_good(a, b, measure) for a, b in (pair, pair[::-1])] == good
