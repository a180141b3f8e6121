"""Runs that differ in the seed, and methods over seeds: what is read, refused, found and said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import list_notices, list_reasons, make_answers, render
from run_folders import VARIED, make_run

from groupwise.core import EvaluationError
from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.report.comparison import list_findings, tell_comparison, write_comparison
from groupwise.evaluation.report.phrases import LANGUAGES
from groupwise.evaluation.result_table import (
    Question,
    Result,
    read_policies_of_runs,
    read_runs,
)

QUESTION = Question(title="seeds")


def write_seeds(
    folder: Path,
    shares: dict[str, list[float]],
    *,
    seeds: range = range(4),
    changes: dict[str, object] | None = None,
    apart: bool = False,
) -> list[Path]:
    """Write runs of policies of which each item is right by chance, another chance by seed."""
    runs: list[Path] = []
    for place, seed in enumerate(seeds):
        named = {"manifest.json:seed": seed, "manifest.json:config/seed": seed, **(changes or {})}
        first = 1000 * seed if apart else 0
        rows = [
            row
            for policy, values in shares.items()
            for row in make_answers(
                values[place], name=f"seed {seed}", policies=(policy,), first=first
            )
        ]
        runs.append(make_run(folder / f"seed-{seed}", named, predictions=rows))
    return runs


@pytest.fixture
def flipped(tmp_path: Path) -> list[Path]:
    """Six seeds of GRPO and SFT, of which one alone says the opposite of what the others do."""
    shares = {"majority": [0.5] * 6, "sft": [0.85] * 6, "grpo": [0.86, 0.95, 0.9, 0.6, 0.93, 0.92]}
    return write_seeds(tmp_path, shares, seeds=range(6))


def report(folders: list[Path], question: Question = QUESTION) -> Comparison:
    return compare_results(read_policies_of_runs(folders, question))


def test_every_policy_is_a_system_and_the_last_is_compared_with_each(flipped: list[Path]) -> None:
    found = report(flipped)
    assert found.table.systems == ("majority", "sft", "grpo")
    assert [(pair.first, pair.second) for pair in found.pairs] == [
        ("grpo", "sft"),
        ("grpo", "majority"),
    ]
    seeds, values = zip(*found.cells[2].seeds, strict=True)
    assert seeds == tuple(range(6))
    assert found.cells[2].value == pytest.approx(sum(values) / 6)
    gaps = [pair.gaps[0] for pair in found.pairs]
    assert gaps[0].difference == pytest.approx(found.cells[2].value - found.cells[1].value)
    assert gaps[0].difference == pytest.approx(gaps[0].test.estimate)
    small, large = sorted(gap.test.p_value for gap in gaps)
    holm = [2 * small, max(2 * small, large)]
    assert sorted(gap.p_holm for gap in gaps) == pytest.approx(holm)
    assert (found.recommended, list_reasons(found)) == (None, ["not_clear"])


def test_what_one_seed_alone_would_have_said_stands_at_the_top(flipped: list[Path]) -> None:
    found = report(flipped)
    (gap,), (other,) = (pair.gaps for pair in found.pairs)
    assert gap.test.low < 0 < gap.difference < gap.test.high
    # Seeds 1, 4 and 5 would have said more than the method does; seed 3 the opposite.
    assert [seed for seed, _, _ in gap.alone] == [3, 4, 1, 5]
    assert gap.alone[0][1] < -0.15
    assert gap.alone[0][2] < 0.05
    assert list_notices(found) == ["seed_alone"]
    told = "\n".join(tell_comparison(found))
    assert "Seed 3 alone would have said of GRPO − SFT warm-up: −" in told
    assert "Over 6\u00a0seeds it is" in told
    # Against the majority all seeds say the same as the method: nothing to be warned of.
    assert other.is_clear


def test_a_policy_that_is_clearly_best_is_recommended(tmp_path: Path) -> None:
    shares = {"majority": [0.5] * 4, "sft": [0.7] * 4, "grpo": [0.9, 0.92, 0.91, 0.89]}
    found = report(write_seeds(tmp_path, shares))
    assert (found.recommended, list_reasons(found)) == ("grpo", ["baseline"])
    assert "Recommended: GRPO" in list(tell_comparison(found))


def test_seeds_that_draw_their_own_items_are_nested(tmp_path: Path) -> None:
    shares = {"sft": [0.7, 0.72, 0.69, 0.71], "grpo": [0.9, 0.88, 0.91, 0.87]}
    folders = write_seeds(tmp_path, shares, apart=True)
    for seed, folder in enumerate(folders):
        path = folder / "evaluate" / "conditions.json"
        conditions = json.loads(path.read_text())
        for split in conditions["data"].values():
            split["digest"] += str(seed)
        # A small base is made from the seed, and its tokenizer from what it trains on.
        conditions |= {"base_weights": f"base {seed}", "tokenizer": f"tokens {seed}"}
        path.write_text(json.dumps(conditions))
    found = report(folders)
    test = found.pairs[0].gaps[0].test
    assert (test.design, test.df) == ("nested", 3)
    assert list_notices(found) == ["own_items"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"manifest.json:config/grpo/beta": 0.3}, "more than the seed; got config/grpo.beta"),
        ({"manifest.json:recipe": "other"}, "recipe/name"),
        ({"manifest.json:inputs": {"data.root": "other"}}, "got inputs/data.root"),
        ({"manifest.json:seed": 0}, "the same seed, or one does not say its own; got [0, 0, 2]"),
        ({"manifest.json:seed": ...}, "does not say its own; got [0, None, 2]"),
    ],
)
def test_runs_that_differ_in_more_or_in_nothing_are_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    shares = {"sft": [0.7] * 3, "grpo": [0.8] * 3}
    folders = write_seeds(tmp_path, shares, seeds=range(3))
    write_seeds(tmp_path, shares, seeds=range(1, 2), changes=changes)
    sources = [Result("side", folder=str(folder)) for folder in folders]
    for read in (read_policies_of_runs, lambda _, question: read_runs(sources, question)):
        with pytest.raises(EvaluationError) as caught:
            read(folders, QUESTION)
        assert words in str(caught.value)
        assert str(caught.value).count("\n") == 0


@pytest.mark.parametrize(
    ("sft", "grpo", "notices"),
    [
        ([0.6, 0.6], [0.9, 0.9], ["few_seeds"]),
        # One alone is told where it says the opposite.
        ([0.8, 0.8], [0.95, 0.7], ["seed_alone", "few_seeds"]),
    ],
)
def test_two_seeds_give_points_and_no_interval(
    tmp_path: Path, sft: list[float], grpo: list[float], notices: list[str]
) -> None:
    found = report(write_seeds(tmp_path, {"sft": sft, "grpo": grpo}, seeds=range(2)))
    (gap,) = found.pairs[0].gaps
    assert (gap.ends, gap.p_holm, found.recommended) == (None, None, None)
    assert list_notices(found) == notices
    told = [one.values["alone"] for one in found.notices if one.kind == "notice.seed_alone"]
    assert all(alone * gap.difference < 0 for alone in told)
    assert "it cannot be tested" in " ".join(tell_comparison(found))


@pytest.mark.parametrize(("first", "is_paired"), [(0, True), (4, False)])
def test_sides_are_paired_where_they_have_the_same_seeds(
    tmp_path: Path, first: int, is_paired: bool
) -> None:
    seeds = range(first, first + 4)
    better = write_seeds(tmp_path / "b", {"grpo": [0.9] * 4}, seeds=seeds, changes=dict(VARIED))
    worse = write_seeds(tmp_path / "a", {"grpo": [0.6] * 4})
    sources = [Result("b", folder=str(one)) for one in better]
    sources += [Result("a", folder=str(one)) for one in worse]
    found = compare_results(read_runs(sources, replace(QUESTION, factors=("grpo.beta",))))
    (gap,) = found.pairs[0].gaps
    assert (gap.test.is_paired, gap.is_clear, found.table.is_fair) == (is_paired, True, True)
    ending = next(one for one in list_findings(found) if one.kind == "finding.gap")
    assert ending.values["ending"].values["better"] == "b"
    assert found.recommended == "b"
    other = compare_results(read_runs(sources, QUESTION))
    assert (other.table.is_fair, other.notices[0].level) == (False, "error")


def test_a_side_of_one_run_is_about_a_checkpoint(tmp_path: Path) -> None:
    better = write_seeds(tmp_path / "b", {"grpo": [0.9]}, seeds=range(1))
    worse = write_seeds(tmp_path / "a", {"grpo": [0.6] * 4})
    sources = [Result("b", folder=str(one)) for one in better]
    sources += [Result("a", folder=str(one)) for one in worse]
    found = compare_results(read_runs(sources, QUESTION))
    told = {name: "\n".join(tell_comparison(found, language=name)) for name in LANGUAGES}
    assert "about these checkpoints, not about the method" in told["en"]
    assert "只针对这些检查点" in told["zh"]


def test_a_policy_that_the_measure_is_none_of_has_dashes(tmp_path: Path) -> None:
    shares = {"majority": [0.5] * 3, "sft": [0.7, 0.72, 0.69], "grpo": [0.9, 0.88, 0.91]}
    changes = {f"evaluate/policies.json:{n}/inapplicable": ["iou"] for n in ("majority", "grpo")}
    folders = write_seeds(tmp_path, shares, seeds=range(3), changes=changes)
    for folder in folders:
        path = folder / "evaluate" / "predictions.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        scored = [{**x, "scores": {"iou": 0.25}} if x["policy"] == "sft" else x for x in rows]
        path.write_text("".join(json.dumps(one) + "\n" for one in scored), encoding="utf-8")
    _, page = render(report(folders, replace(QUESTION, measure="iou")))
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    cells = {row[0].removeprefix("| "): row[1:] for row in rows}
    assert [cells[name][0][:6] for name in ("Majority label", "SFT warm-up", "GRPO")] == [
        "–",
        "25.0\u00a0%",
        "–",
    ]
    assert list(cells).index("SFT warm-up") < list(cells).index("GRPO")


def test_a_measure_of_no_policy_is_refused(tmp_path: Path) -> None:
    changes = {"evaluate/policies.json:grpo/inapplicable": ["iou"]}
    folders = write_seeds(tmp_path, {"grpo": [0.9, 0.8]}, seeds=range(2), changes=changes)
    with pytest.raises(EvaluationError, match=r"iou applies to no policy .* got \['grpo'\]"):
        read_policies_of_runs(folders, replace(QUESTION, measure="iou"))


def test_the_page_has_the_same_numbers_in_every_form(flipped: list[Path], tmp_path: Path) -> None:
    found = report(flipped)
    for language in LANGUAGES:
        html = write_comparison(found, tmp_path / language, language=language)
        markdown = html.with_suffix(".md").read_text(encoding="utf-8")
        values = json.loads(html.with_suffix(".json").read_text())
        gap = values["pairs"][0]["gaps"][0]
        assert gap["test"]["estimate"] == found.pairs[0].gaps[0].test.estimate
        (row,) = [line for line in markdown.splitlines() if line.startswith("| GRPO |")]
        shown = [cell.strip() for cell in row.split("|")[3:9]]
        assert shown == [f"{100 * value:.1f}\u00a0%" for _, value in found.cells[2].seeds]
        assert all(cell in html.read_text(encoding="utf-8") for cell in shown)
        assert str(flipped[3]) in markdown
