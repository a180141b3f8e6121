"""Which system is better is told alike by every sentence, table and colour.

The same two runs, one of them good and one bad, compared by measures of both directions.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from compared_runs import make_answers
from run_folders import VARIED, make_run

from groupwise.core import EvaluationError, write_json
from groupwise.evaluation import Prediction
from groupwise.evaluation.comparison import (
    Comparison,
    Question,
    Source,
    build_comparison,
    read_cells_file,
    read_sources,
    render_html,
    render_markdown,
    tell_comparison,
)
from groupwise.evaluation.page import LANGUAGES, Language, Scale

Compare = Callable[..., Comparison]
MEASURES = ("accuracy", "invalid_rate", "missed")
ORDERS = (("good", "bad"), ("bad", "good"))
IS_BEST = {"en": "{} is the better", "zh": "{} 更好。"}


def answer(*, is_good: bool) -> list[Prediction]:
    """The good one fails on every twelfth item, the bad one on every second, never on the same."""
    rows: list[Prediction] = []
    for n, row in enumerate(make_answers(1.0, policies=("grpo",), num_items=120)):
        fails = n % 12 == 0 if is_good else n % 2 == 1
        if fails:
            row = replace(row, predicted=None, reason="no label")
        rows.append(replace(row, scores={"missed": float(fails), "unheard_of": 0.5}))
    return rows


@pytest.fixture
def compare(tmp_path: Path) -> Compare:
    def build(order: tuple[str, str], measure: str) -> Comparison:
        sources: list[Source] = []
        for name, change in zip(order, ({}, VARIED), strict=True):
            rows = answer(is_good=name == "good")
            folder = make_run(tmp_path / f"{name}-{measure}", change, predictions=rows)
            sources.append(Source(name, (), folder))
        question = Question(measure=measure, factors=("grpo.beta",))
        return build_comparison(read_sources(sources, (), question))

    return build


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("measure", MEASURES)
def test_the_good_run_is_the_better_one_in_every_sentence(
    measure: str, order: tuple[str, str], compare: Compare
) -> None:
    found = compare(order, measure)
    is_first = order[0] == "good"
    (pair,) = found.versus
    assert (pair.num_better, pair.num_worse) == ((1, 0) if is_first else (0, 1))
    assert (pair.num_clear_better, pair.num_clear_worse) == (pair.num_better, pair.num_worse)
    values = {one.kind: one.values for one in found.findings}
    assert values["finding.clear"]["better"] == "good"
    won = values.get("finding.discordant") or values["finding.won"]
    assert (won["only_first"], won["only_second"]) == ((60, 10) if is_first else (10, 60))
    assert pair.discordant is not None
    counts = (pair.discordant.num_first_better, pair.discordant.num_second_better)
    assert counts == (won["only_first"], won["only_second"])
    for language in LANGUAGES:
        said = " ".join(tell_comparison(found, language=language)).replace("\u00a0", " ")
        assert IS_BEST[language].format("good") in said
        assert IS_BEST[language].format("bad") not in said
        page = render_html(found, language=language)
        assert f">{won['only_first']} : {won['only_second']}<" in page


@pytest.mark.parametrize("measure", MEASURES)
def test_items_are_ticked_where_they_are_right(measure: str, compare: Compare) -> None:
    found = compare(("good", "bad"), measure)
    assert found.versus[0].discordant is not None
    rows = [line for line in render_markdown(found).splitlines() if line.startswith("| 任务")]
    assert len(rows) == len(found.versus[0].discordant.shown)
    for one, line in zip(found.versus[0].discordant.shown, rows, strict=True):
        is_best = (one.value_a == 1) == found.measure.is_higher_better
        first, second = line.split(" | ")[2:4]
        assert ("✓" in first, "✓" in second) == (is_best, not is_best)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_measure_has_a_title_and_its_direction_stands_beside_it(
    language: Language, compare: Compare
) -> None:
    page = render_markdown(compare(("good", "bad"), "missed"), language=language)
    title = {"en": "Missed (less is better) · test", "zh": "漏检（越低越好） · test"}[language]
    assert title in page
    assert "better" not in render_markdown(compare(("good", "bad"), "accuracy")).splitlines()[2]


def test_invalid_answers_stand_beside_every_measure(compare: Compare) -> None:
    found = compare(("good", "bad"), "missed")
    assert [cell.invalid_rate for cell in found.cells] == [pytest.approx(1 / 12), 0.5]
    notices = {one.values["name"]: one for one in found.notices if one.kind == "notice.invalid"}
    assert set(notices) == {"good", "bad"}
    assert "50.0\u00a0% of the answers of bad are invalid" in render_html(found)


def test_a_measure_that_nobody_defines_is_told(compare: Compare) -> None:
    found = compare(("good", "bad"), "unheard_of")
    assert [one.kind for one in found.notices if one.kind == "notice.direction"]
    known = compare(("good", "bad"), "missed")
    assert not [one.kind for one in known.notices if one.kind == "notice.direction"]


def test_runs_that_disagree_on_the_direction_are_refused(tmp_path: Path) -> None:
    own = {"name": "missed", "title": "Found", "title_zh": "检出", "is_higher_better": True}
    changes = ({}, {"evaluate/conditions.json:measures": [own]})
    sources = [
        Source(str(n), (), make_run(tmp_path / str(n), change, predictions=answer(is_good=True)))
        for n, change in enumerate(changes)
    ]
    with pytest.raises(EvaluationError, match="better in one run and less in another"):
        read_sources(sources, (), Question(measure="missed"))


@pytest.mark.parametrize(("less_is_better", "better"), [(True, "b"), (False, "a")])
def test_a_grid_of_typed_cells_has_its_gains_in_its_direction(
    less_is_better: bool, better: str, tmp_path: Path
) -> None:
    cells = [
        {"system": name, "at": {"size": size}, "value": value}
        for name, size, value in (("a", 1, 0.6), ("b", 1, 0.2), ("a", 2, 0.5), ("b", 2, 0.4))
    ]
    table = {
        "title": "errors",
        "measure": "error_rate",
        "less_is_better": less_is_better,
        "systems": {"key": "name", "values": ["a", "b"]},
        "axes": [{"key": "size", "values": [1, 2]}],
        "cells": cells,
    }
    write_json(tmp_path / "cells.json", table)
    found = build_comparison(read_cells_file(tmp_path / "cells.json"))
    (pair,) = found.versus
    assert (pair.num_better, pair.num_worse) == ((2, 0) if better == "a" else (0, 2))
    assert (pair.best, pair.worst) == ((("1",), ("2",)) if better == "a" else (("2",), ("1",)))
    (line,) = [x for x in render_markdown(found).splitlines() if x.startswith("| name a − b | +")]
    gain, loss = line.split(" | ")[2:4]
    assert ("(size 1)" in gain, "(size 2)" in loss) == (better == "a", better == "a")
    sentences = [one for one in found.findings if one.kind == "finding.grid"]
    assert [one.values["better"] for one in sentences] == [pair.num_better]
    blue, orange = (Scale(-1, 1).shade_difference(x) for x in (0.1, -0.1))
    shown = Scale(-1, 1, found.measure.sign).shade_difference(0.1)
    assert shown == (blue if better == "a" else orange)
    scale = Scale(0, 1, found.measure.sign)
    assert scale.shade_value(1.0) == Scale(0, 1).shade_value(1.0 if better == "a" else 0.0)


@pytest.mark.parametrize("measure", MEASURES)
def test_equal_means_have_no_best_one(measure: str, tmp_path: Path) -> None:
    sources = [
        Source(name, (), make_run(tmp_path / name, change, predictions=answer(is_good=True)))
        for name, change in (("one", {}), ("two", VARIED))
    ]
    question = Question(measure=measure, factors=("grpo.beta",))
    found = build_comparison(read_sources(sources, (), question))
    (reason,) = found.recommendation.reasons
    assert (reason.kind, reason.values) == ("reason.equal", {"names": ["one", "two"]})
