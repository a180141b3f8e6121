"""Comparisons of run folders and grids: fair ones are recommended from, all others say why not."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from compared_runs import list_notices, list_reasons, make_answers, render
from run_folders import VARIED, make_run

from groupwise.core import EvaluationError
from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.predictions import Prediction, read_policies, write_policies
from groupwise.evaluation.report.comparison import list_findings, tell_comparison
from groupwise.evaluation.report.phrases import LANGUAGES
from groupwise.evaluation.result_table import Question, Result, read_runs

Compare = Callable[..., Comparison]
MEASURES = ("accuracy", "invalid_rate", "missed")
ORDERS = (("good", "bad"), ("bad", "good"))


def score(value: float, *, rows: list[Prediction] | None = None, name: str = "overlap") -> Any:
    return [
        replace(row, scores={name: min(1.0, value + 0.01 * (n % 5))})
        for n, row in enumerate(rows or make_answers(0.8))
    ]


def spoil(every: int) -> list[Prediction]:
    """Return answers of which the model's are invalid every so often."""
    return [
        replace(row, predicted=None, reason="no label")
        if n % every == 0 and row.policy != "majority"
        else row
        for n, row in enumerate(make_answers(0.8))
    ]


def drop(policy: str, rows: list[Prediction], *, all_of: bool = False) -> list[Prediction]:
    return [row for n, row in enumerate(rows) if row.policy != policy or (n % 2 and not all_of)]


OTHER_DATA = ({}, {**VARIED, "evaluate/conditions.json:data/train/digest": "other"})
ALONE = make_answers(0.8, policies=("sft", "grpo"))


@pytest.mark.parametrize(
    ("answers", "named", "recommended", "reasons"),
    [
        ([make_answers(x) for x in (0.6, 0.95)], {}, "second", ["fair", "baseline"]),
        ([make_answers(x, name=str(x)) for x in (0.8, 0.81)], {}, None, ["not_clear"]),
        ([make_answers(x) for x in (0.6, 0.95)], {"changes": OTHER_DATA}, None, ["unfair"]),
        ([make_answers(x) for x in (0.1, 0.5)], {}, None, ["not_above_baseline"]),
        ([score(x, rows=ALONE) for x in (0.3, 0.7)], {"measure": "overlap"}, None, ["no_baseline"]),
        # A baseline on other items is none.
        (
            [drop("majority", score(x)) for x in (0.3, 0.7)],
            {"measure": "overlap"},
            None,
            ["no_baseline"],
        ),
        ([spoil(3), spoil(12)], {"measure": "invalid_rate"}, None, ["not_above_baseline"]),
        (
            [make_answers(0.6), make_answers(0.9, num_items=200)],
            {},
            None,
            ["unfair", "other_items"],
        ),
        # The same items in other clusters are not paired.
        (
            [make_answers(0.6), [replace(row, cluster="all") for row in make_answers(0.6)]],
            {},
            None,
            ["other_items"],
        ),
        ([make_answers(0.8), make_answers(0.8)], {}, None, ["equal"]),
        (
            [make_answers(x, name=str(x)) for x in (0.55, 0.75, 0.97)],
            {},
            "third",
            ["fair", "baseline"],
        ),
    ],
)
def test_what_is_recommended_and_why_not(
    compare: Compare,
    answers: list[list[Prediction]],
    named: dict[str, Any],
    recommended: str | None,
    reasons: list[str],
) -> None:
    found = compare(answers, **named)
    assert (found.recommended, list_reasons(found)) == (recommended, reasons)
    # The same runs say the same.
    again = compare(answers, **named)
    assert (again.pairs, again.notices, again.reasons) == (
        found.pairs,
        found.notices,
        found.reasons,
    )


def test_a_difference_is_first_minus_second(compare: Compare) -> None:
    found = compare([make_answers(0.6), make_answers(0.95)])
    ((gap,),) = [pair.gaps for pair in found.pairs]
    first, second = (one.value for one in found.cells)
    assert gap.difference == pytest.approx(first - second) == pytest.approx(gap.test.difference)
    assert gap.is_clear
    kinds = [one.kind for one in list_findings(found)]
    assert kinds == [f"finding.{x}" for x in ("values", "gap", "checkpoints")]


def test_an_unfair_pair_says_so_first(compare: Compare) -> None:
    found = compare([make_answers(0.6), make_answers(0.95)], OTHER_DATA)
    assert found.pairs[0].gaps[0].is_clear
    assert found.notices[0].values["aspect"] == "data"
    assert "do not say what made the difference" in " ".join(tell_comparison(found))


def test_three_runs_are_compared_in_all_pairs_with_holm(compare: Compare) -> None:
    found = compare([make_answers(x, name=str(x)) for x in (0.55, 0.75, 0.97)])
    pairs = [("first", "second"), ("first", "third"), ("second", "third")]
    assert [(one.first, one.second) for one in found.pairs] == pairs
    gaps = [one.gaps[0] for one in found.pairs]
    plain = sorted(gap.test.p_value_clustered for gap in gaps)
    holm = [min(1, (3 - place) * p) for place, p in enumerate(plain)]
    holm = [max(holm[: place + 1]) for place in range(3)]
    assert sorted(gap.p_holm for gap in gaps) == pytest.approx(holm)


def test_pairs_are_all_until_that_is_too_many(compare_grid: Compare) -> None:
    betas = {str(n): 0.5 + n / 60 for n in range(22)}
    found = compare_grid(betas, sizes=(8,))
    assert [(one.first, one.second) for one in found.pairs] == [("0", x) for x in list(betas)[1:]]


def test_the_last_policy_of_all_runs_is_compared(compare: Compare) -> None:
    rows, short = make_answers(0.8), drop("grpo", make_answers(0.9), all_of=True)
    found = compare([rows, short])
    assert {one.policy for one in found.table.results} == {"sft"}
    with pytest.raises(EvaluationError, match="no policy in common"):
        compare([[r for r in rows if r.policy == "grpo"], short])


def test_two_policies_of_one_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", predictions=make_answers(0.8))
    sources = [
        Result("a", folder=str(folder), policy="sft"),
        Result("b", folder=str(folder), policy="grpo"),
    ]
    for factors, is_fair in ((("policy",), True), ((), False)):
        found = read_runs(sources, Question(factors=factors))
        assert [one.policy for one in found.results] == ["sft", "grpo"]
        assert found.is_fair == is_fair


def test_settings_and_data_stand_side_by_side(compare: Compare) -> None:
    found = compare([make_answers(0.6), make_answers(0.9)]).table.sides
    rows = {(row.aspect, row.key): row for row in found}
    assert rows["config", "grpo.beta"].values == ("0.12", "0.15")
    assert rows["config", "grpo.beta"].kind == "intended"
    assert rows["config", "sft.epochs"].kind is None
    kinds = [row.kind is None for row in found]
    assert kinds == sorted(kinds)
    assert rows["data", "train"].values == ("digest t1, num_rows 200",) * 2


WEIGHTS = {"prepare/base": 0.0, "sft/policy": 1.0, "grpo/policy": 2.0}


@pytest.mark.parametrize(
    ("others", "told"),
    [
        (WEIGHTS, "identical"),
        ({**WEIGHTS, "grpo/policy": 3.0}, "identical_other_weights"),
        (None, "identical_answers"),
    ],
)
def test_a_run_and_its_copy_are_called_identical(
    others: dict[str, float] | None, told: str, tmp_path: Path
) -> None:
    sources = [
        Result(
            name,
            folder=str(make_run(tmp_path / name, predictions=make_answers(0.8), weights=weights)),
        )
        for name, weights in (("demo", WEIGHTS), ("copy", others))
    ]
    found = compare_results(read_runs(sources, Question()))
    assert [n for n in list_notices(found) if n.startswith("identical")] == [told]
    assert (found.table.is_fair, list_reasons(found)) == (True, ["equal"])
    said = {name: " ".join(tell_comparison(found, language=name)) for name in LANGUAGES}
    assert "all 240 predictions" in said["en"].partition(": demo and copy ")[2]
    assert "全部 240 个预测" in said["zh"]
    assert "best mean" not in said["en"]


@pytest.mark.parametrize(
    ("answers", "told", "untold"),
    [
        ([make_answers(0.8), make_answers(0.8)], {"same_predictions"}, {"identical"}),
        ([make_answers(0.8), make_answers(0.8, name="x")], set(), {"same_predictions"}),
        ([make_answers(x, num_items=40) for x in (0.5, 0.9)], {"small"}, set()),
        ([spoil(3), make_answers(0.8)], {"invalid"}, {"small"}),
        (
            [make_answers(0.8), [replace(r, predicted="on-task") for r in make_answers(0.8)]],
            {"constant"},
            {"invalid"},
        ),
    ],
)
def test_what_must_be_known_first(
    compare: Compare, answers: list[list[Prediction]], told: set[str], untold: set[str]
) -> None:
    notices = set(list_notices(compare(answers)))
    assert told <= notices
    assert not untold & notices


def test_a_measure_that_is_none_of_a_policy_is_a_dash(tmp_path: Path) -> None:
    sources: list[Result] = []
    for name, has_it in (("reasons", True), ("silent", False)):
        rows = [
            replace(row, scores={"alignment": 1.0} if has_it and row.policy == "grpo" else {})
            for row in make_answers(0.8)
        ]
        folder = make_run(tmp_path / name, predictions=rows)
        none = () if has_it else ("alignment",)
        listed = [replace(one, inapplicable=none) for one in read_policies(folder).listed]
        write_policies(folder, listed)
        sources.append(Result(name, folder=str(folder)))
    found = compare_results(read_runs(sources, Question(measure="alignment")))
    shown = [(cell.state, cell.value) for cell in found.cells]
    assert shown == [("done", 1.0), ("inapplicable", None)]
    assert list_reasons(found) == ["inapplicable"]
    assert "missing" not in list_notices(found)
    assert "does not apply" in " ".join(tell_comparison(found))
    with pytest.raises(EvaluationError, match="alignmnt"):
        read_runs(sources[:1], Question(measure="alignmnt"))


def answer(name: str) -> list[Prediction]:
    """The good one fails on every twelfth item, the bad one on every second, never on the same."""
    rows: list[Prediction] = []
    for n, row in enumerate(make_answers(1.0, policies=("grpo",), num_items=120)):
        fails = n % 12 == 0 if name == "good" else n % 2 == 1
        if fails:
            row = replace(row, predicted=None, reason="no label")
        rows.append(replace(row, scores={"missed": float(fails), "unheard_of": 0.5}))
    return rows


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("measure", MEASURES)
def test_the_good_run_is_the_better_one_in_every_direction(
    measure: str, order: tuple[str, str], compare: Compare
) -> None:
    found = compare([answer(name) for name in order], measure=measure, names=order)
    is_first = order[0] == "good"
    (pair,) = found.pairs
    assert pair.counts == ((1, 0, 0) if is_first else (0, 1, 0))
    assert pair.clear == pair.counts[:2]
    values = {one.kind: one.values for one in list_findings(found)}
    assert values["finding.gap"]["ending"].values["better"] == "good"
    won = pair.gaps[0].test.count_wins(found.table.measure)
    assert won == ((60, 10) if is_first else (10, 60))
    for language, said in (("en", "good is the better"), ("zh", "：good 更好")):
        told = " ".join(tell_comparison(found, language=language)).replace("\u00a0", " ")
        assert said in told
        assert said.replace("good", "bad") not in told


def test_directions_that_nobody_or_two_define(compare: Compare, tmp_path: Path) -> None:
    for measure, is_told in (("unheard_of", True), ("missed", False)):
        found = compare([answer("good"), answer("bad")], measure=measure)
        assert ("direction" in list_notices(found)) == is_told
    own = {"name": "missed", "title": "Found", "title_zh": "检出", "is_higher_better": True}
    changes = ({}, {"evaluate/conditions.json:measures": [own]})
    sources = [
        Result(
            str(n),
            folder=str(make_run(tmp_path / str(n), change, predictions=answer("good"))),
        )
        for n, change in enumerate(changes)
    ]
    with pytest.raises(EvaluationError, match="better in one run and less in another"):
        read_runs(sources, Question(measure="missed"))


def test_a_whole_grid_is_recommended_from(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95})
    (pair,) = found.pairs
    assert (pair.counts, pair.clear, pair.num_tested) == ((0, 2, 0), (0, 2), 2)
    assert (found.recommended, list_reasons(found)) == ("0.15", ["fair", "baseline"])
    # Smaller sets of items lie in larger ones, which is told; where they only overlap it is not.
    assert [one.values for one in found.notices if one.kind == "notice.nested"] == [
        {"axis": "evaluation.num_items"}
    ]
    assert "nested" not in list_notices(compare_grid({"0.12": 0.6, "0.15": 0.95}, first=8))


@pytest.mark.parametrize("state", ["waiting", "failed", "running"])
def test_a_cell_that_has_not_run_stops_the_recommendation(
    compare_grid: Compare, state: str
) -> None:
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, states={("0.12", 240): state})
    assert list_reasons(found) == ["missing"]
    (pair,) = found.pairs
    assert [gap.why_none for gap in pair.gaps] == ["", "missing"]
    assert pair.mean == pair.gaps[0].difference
    assert "\n| 240 | ? (over 0 of 1) |" in render(found)[1]
    failed = [one.values for one in found.notices if one.kind == "notice.failed"]
    told = {"name": "0.12", "at": ("240",), "error": "out of memory"}
    assert failed == ([told] if state == "failed" else [])


def test_an_unfair_grid_names_what_differs_once(compare_grid: Compare) -> None:
    changes = {
        "evaluate/conditions.json:data/train/digest": "other",
        "evaluate/conditions.json:parser/labels": ["yes"],
        "manifest.json:config/sft/epochs": 9,
    }
    found = compare_grid({"0.12": 0.6, "0.15": 0.95}, changes=changes)
    assert (found.pairs[0].clear, found.recommended) == ((0, 2), None)
    aspects = [one.values["aspect"] for one in found.notices if one.level == "error"]
    assert sorted(aspects) == ["config", "data", "parser"]
    assert aspects[0] == "data"


def test_one_system_has_nothing_to_be_held_against(compare_grid: Compare) -> None:
    found = compare_grid({"0.12": 0.8}, sizes=(120, 121))
    assert (found.pairs, list_reasons(found)) == ((), ["one_system"])
    assert "same_axis" not in list_notices(found)


def test_seeds_of_a_grid_are_repetitions_of_its_cells(tmp_path: Path) -> None:
    sources: list[Result] = []
    for beta, change in (("0.12", {}), ("0.15", VARIED)):
        for size, seed in ((s, n) for s in ("40", "80") for n in range(3)):
            seeded = {**change, "manifest.json:seed": seed, "manifest.json:config/seed": seed}
            share = 0.6 if beta == "0.12" else 0.9
            rows = make_answers(share, name=f"{beta} {seed}", num_items=int(size))
            folder = make_run(tmp_path / f"{beta}-{size}-{seed}", seeded, predictions=rows)
            sources.append(Result(beta, (size,), folder=str(folder)))
    question = Question(factors=("grpo.beta",), system_axis="grpo.beta")
    axes = {"size": ("40", "80")}
    found = compare_results(read_runs(sources, question, axes))
    assert [len(cell.seeds) for cell in found.cells] == [3, 3, 3, 3]
    gap = found.pairs[0].gaps[0]
    assert (gap.test.num_seeds_a, gap.test.is_paired) == (3, True)
    mean = sum(value for _, value in found.cells[0].seeds) / 3
    assert found.cells[0].value == pytest.approx(mean)
    assert found.cells[0].low < mean < found.cells[0].high
