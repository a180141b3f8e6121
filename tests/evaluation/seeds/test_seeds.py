"""Runs that differ in the seed: what is read, refused, found and said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import make_answers
from run_folders import VARIED, make_run

from groupwise.core import EvaluationError
from groupwise.evaluation import Prediction
from groupwise.evaluation.comparison import Question
from groupwise.evaluation.page import LANGUAGES
from groupwise.evaluation.seeds import (
    MethodReport,
    Side,
    build_methods,
    read_repetitions,
    read_sides,
    tell_methods,
    write_methods,
)

NUM_ITEMS = 240
QUESTION = Question(title="seeds")


def answer(accuracies: dict[str, float], seed: int, *, first: int = 0) -> list[Prediction]:
    """Answers of policies of which each item is right by chance, another chance by seed."""
    return [
        row
        for policy, accuracy in accuracies.items()
        for row in make_answers(
            accuracy, name=f"seed {seed}", policies=(policy,), num_items=NUM_ITEMS, first=first
        )
    ]


def write_seeds(
    folder: Path,
    shares: dict[str, list[float]],
    *,
    seeds: range = range(4),
    changes: dict[str, object] | None = None,
    apart: bool = False,
) -> list[Path]:
    return [
        make_run(
            folder / f"seed-{seed}",
            {"manifest.json:seed": seed, "manifest.json:config/seed": seed, **(changes or {})},
            predictions=answer(
                {name: values[place] for name, values in shares.items()},
                seed,
                first=1000 * seed if apart else 0,
            ),
        )
        for place, seed in enumerate(seeds)
    ]


@pytest.fixture
def flipped(tmp_path: Path) -> list[Path]:
    """Six seeds of GRPO and SFT, of which one alone says the opposite of what the others do."""
    shares = {"majority": [0.5] * 6, "sft": [0.85] * 6, "grpo": [0.86, 0.95, 0.9, 0.6, 0.93, 0.92]}
    return write_seeds(tmp_path, shares, seeds=range(6))


def report(folders: list[Path]) -> MethodReport:
    return build_methods(read_repetitions(folders, QUESTION))


def test_every_policy_has_a_row_and_the_last_is_compared_with_each(flipped: list[Path]) -> None:
    found = report(flipped)
    assert [row.name for row in found.methods] == ["majority", "sft", "grpo"]
    assert [(pair.first, pair.second) for pair in found.pairs] == [
        ("grpo", "sft"),
        ("grpo", "majority"),
    ]
    row = found.methods[2]
    assert row.seeds == tuple(range(6))
    assert row.mean == pytest.approx(sum(row.values) / 6)
    assert (row.lowest, row.highest) == (min(row.values), max(row.values))
    assert found.pairs[0].found.estimate == pytest.approx(row.mean - found.methods[1].mean)


def test_what_one_seed_alone_would_have_said_stands_at_the_top(flipped: list[Path]) -> None:
    found = report(flipped)
    pair = found.pairs[0]
    assert pair.found.low < 0 < pair.found.high
    assert pair.found.estimate > 0
    # Seeds 1, 4 and 5 would have said more than the method does; seed 3 the opposite.
    assert [one.seed for one in pair.alone] == [3, 4, 1, 5]
    assert pair.alone[0].difference < -0.15
    assert pair.alone[0].p_value < 0.05
    assert [one.kind for one in found.notices] == ["notice.seed_alone"]
    told = "\n".join(tell_methods(found))
    assert "Seed 3 alone would have said of GRPO − SFT warm-up: −" in told
    assert "Over 6\u00a0seeds it is" in told
    # Against the majority all seeds say the same as the method: nothing to be warned of.
    assert found.pairs[1].is_clear
    assert found.pairs[1].alone == ()


def test_p_values_are_holms_over_all_pairs(flipped: list[Path]) -> None:
    found = report(flipped)
    small, large = sorted(pair.found.p_value for pair in found.pairs)
    assert sorted(pair.p_value_holm for pair in found.pairs) == pytest.approx(
        [2 * small, max(2 * small, large)]
    )


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
    assert found.pairs[0].found.design == "nested"
    assert found.pairs[0].found.df == 3
    assert [one.kind for one in found.notices] == ["notice.methods_nested"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"manifest.json:config/grpo/beta": 0.3}, "more than the seed; got config/grpo.beta"),
        ({"manifest.json:recipe": "other"}, "recipe/name"),
        ({"manifest.json:inputs": {"data.root": "other"}}, "got inputs/data.root"),
        ({"manifest.json:seed": 0}, "the same seed; got [0, 0, 2]"),
        ({"manifest.json:seed": ...}, "does not say its seed"),
    ],
)
def test_runs_that_differ_in_more_or_in_nothing_are_refused(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    folders = write_seeds(tmp_path, {"sft": [0.7] * 3, "grpo": [0.8] * 3}, seeds=range(3))
    seed = {"manifest.json:seed": 1, "manifest.json:config/seed": 1}
    make_run(folders[1], seed | changes, predictions=answer({"sft": 0.7, "grpo": 0.8}, 1))
    with pytest.raises(EvaluationError) as caught:
        read_repetitions(folders, QUESTION)
    assert words in str(caught.value)
    assert str(caught.value).count("\n") == 0


def test_two_seeds_give_points_and_ranges(tmp_path: Path) -> None:
    found = report(write_seeds(tmp_path, {"sft": [0.6] * 2, "grpo": [0.9] * 2}, seeds=range(2)))
    assert found.pairs[0].found.low is None
    assert [one.kind for one in found.notices] == ["notice.methods_few_seeds"]
    assert "without an interval for the method" in " ".join(tell_methods(found))


def test_of_two_seeds_one_alone_is_told_where_it_says_the_opposite(tmp_path: Path) -> None:
    shares = {"sft": [0.8] * 2, "grpo": [0.95, 0.7]}
    found = report(write_seeds(tmp_path, shares, seeds=range(2)))
    assert found.notices[0].kind == "notice.seed_alone_points"
    assert found.notices[0].values["alone"] * found.pairs[0].found.estimate < 0


@pytest.mark.parametrize(("first", "is_paired"), [(0, True), (4, False)])
def test_sides_are_paired_where_they_have_the_same_seeds(
    tmp_path: Path, first: int, is_paired: bool
) -> None:
    better = write_seeds(
        tmp_path / "b", {"grpo": [0.9] * 4}, seeds=range(first, first + 4), changes=dict(VARIED)
    )
    worse = write_seeds(tmp_path / "a", {"grpo": [0.6] * 4})
    question = replace(QUESTION, factors=("grpo.beta",))
    sides = [Side("b", tuple(better)), Side("a", tuple(worse))]
    found = build_methods(read_sides(sides, question))
    pair = found.pairs[0]
    assert (pair.found.is_paired, pair.is_clear, found.is_fair) == (is_paired, True, True)
    assert found.findings[0].values["better"] == "b"
    other = build_methods(read_sides(sides, QUESTION))
    assert not other.is_fair
    assert other.notices[0].level == "error"


def test_a_side_of_one_run_is_about_a_checkpoint(tmp_path: Path) -> None:
    better = write_seeds(tmp_path / "b", {"grpo": [0.9]}, seeds=range(1))
    worse = write_seeds(tmp_path / "a", {"grpo": [0.6] * 4})
    material = read_sides([Side("b", tuple(better)), Side("a", tuple(worse))], QUESTION)
    told = {
        name: "\n".join(tell_methods(build_methods(material), language=name)) for name in LANGUAGES
    }
    assert "about this checkpoint, not about the method" in told["en"]
    assert "只针对这个检查点" in told["zh"]


def test_a_policy_that_the_measure_is_none_of_has_dashes(tmp_path: Path) -> None:
    shares = {"majority": [0.5] * 3, "sft": [0.7, 0.72, 0.69], "grpo": [0.9, 0.88, 0.91]}
    changes = {f"evaluate/policies.json:{n}/inapplicable": ["iou"] for n in ("majority", "grpo")}
    folders = write_seeds(tmp_path, shares, seeds=range(3), changes=changes)
    for folder in folders:
        path = folder / "evaluate" / "predictions.jsonl"
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        scored = [
            {**one, "scores": {"iou": 0.25}} if one["policy"] == "sft" else one for one in rows
        ]
        path.write_text("".join(json.dumps(one) + "\n" for one in scored), encoding="utf-8")
    found = build_methods(read_repetitions(folders, replace(QUESTION, measure="iou")))
    page = write_methods(found, tmp_path / "page").with_suffix(".md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    cells = {row[0].removeprefix("| "): row[1:] for row in rows}
    assert [cells[name][0] for name in ("Majority label", "SFT warm-up", "GRPO")] == [
        "–",
        "25.0\u00a0%",
        "–",
    ]
    assert list(cells).index("SFT warm-up") < list(cells).index("GRPO")


def test_a_measure_of_no_policy_is_refused(tmp_path: Path) -> None:
    changes = {"evaluate/policies.json:grpo/inapplicable": ["iou"]}
    folders = write_seeds(tmp_path, {"grpo": [0.9, 0.8]}, seeds=range(2), changes=changes)
    with pytest.raises(EvaluationError, match=r"iou applies to no policy .* got \['grpo'\]"):
        read_repetitions(folders, replace(QUESTION, measure="iou"))


def test_the_page_has_the_same_numbers_in_every_form(flipped: list[Path], tmp_path: Path) -> None:
    found = report(flipped)
    for language in LANGUAGES:
        html = write_methods(found, tmp_path / language, language=language)
        markdown = html.with_suffix(".md").read_text(encoding="utf-8")
        values = json.loads(html.with_suffix(".json").read_text())
        assert values["pairs"][0]["found"]["estimate"] == found.pairs[0].found.estimate
        (row,) = [line for line in markdown.splitlines() if line.startswith("| GRPO |")]
        shown = [cell.strip() for cell in row.split("|")[-7:-1]]
        assert shown == [f"{100 * value:.1f}\u00a0%" for value in found.methods[2].values]
        assert all(cell in html.read_text(encoding="utf-8") for cell in shown)
        assert (tmp_path / language / "methods" / "seeds.svg").is_file()
        assert str(flipped[3]) in markdown
