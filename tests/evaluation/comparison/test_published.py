"""Published cells: unlike data, cells that have not run, and values of other items."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from compared_runs import list_notices, list_reasons, render

from groupwise.core import ConfigError, write_json
from groupwise.evaluation.compare import Comparison, compare_results
from groupwise.evaluation.predictions import Language
from groupwise.evaluation.published import read_published
from groupwise.evaluation.report.comparison import tell_comparison
from groupwise.evaluation.report.phrases import LANGUAGES

FIXTURE = Path(__file__).parents[2] / "fixtures" / "published_beta_table.json"
PLACES = [("1", "200", str(shots)) for shots in range(1, 5)]
CELL = {"system": 0.12, "at": {"epoch": 1, "size": 200, "shots": 1}, "value": 57.0}


def change_fixture(folder: Path, **changes: object) -> Path:
    path = folder / "cells.json"
    path.write_text(json.dumps(json.loads(FIXTURE.read_text()) | changes))
    return path


def compare(folder: Path, **changes: object) -> Comparison:
    return compare_results(read_published(change_fixture(folder, **changes)))


def test_differences_keep_their_sign(published: Comparison) -> None:
    (pair,) = published.pairs
    assert (pair.first, pair.second) == ("0.12", "0.15")
    gaps = {gap.cell: gap for gap in pair.gaps}
    assert [round(100 * gaps[at].difference, 6) for at in PLACES] == [-1.8, -0.5, 1.2, 0.0]
    assert (pair.counts, pair.num_tested) == ((2, 4, 2), 0)
    assert pair.mean == pytest.approx(-0.00275)


def test_nothing_is_computed_from_cells_that_have_not_run(published: Comparison) -> None:
    (pair,) = published.pairs
    empty = [gap for gap in pair.gaps if gap.cell[1] != "200"]
    assert len(empty) == 24
    assert {(gap.difference, gap.why_none) for gap in empty} == {(None, "missing")}
    sizes = {row.value: (row.mean, row.num_compared, row.num_cells) for row in pair.by_axis[1]}
    assert [sizes[x] for x in ("100", "400", "800")] == [(None, 0, 8)] * 3
    assert sizes["200"][1:] == (8, 8)


@pytest.mark.parametrize(
    ("language", "data", "epochs", "none"),
    [
        ("en", "5/800 against 664/800", "Epoch 1, 2 are identical", "No recommendation"),
        ("zh", "5/800 对 664/800", "Epoch 1, 2 在全部", "不作推荐"),
    ],
)
def test_the_data_mismatch_comes_first_and_nothing_is_recommended(
    published: Comparison, language: Language, data: str, epochs: str, none: str
) -> None:
    lines = list(tell_comparison(published, language=language))
    assert "recorded_candidates" in lines[0]
    assert data in lines[0]
    (line,) = [line for line in lines if epochs in line]
    assert "trained" in line or "训练" in line
    assert none in lines
    assert list_reasons(published) == ["unfair", "missing", "no_items"]
    for text in render(published, language):
        places = [text.index(mark) for mark in ("5/800", "−1.8", "−0.5", "+1.2", "±0.0")]
        assert places[0] < min(places[1:])
        assert "★" not in text


def test_training_values_are_shown_by_epoch(tmp_path: Path) -> None:
    """The values are made up: none were published with the cells."""
    rows = [
        {"system": 0.12, "step": "grpo", "epoch": epoch, "values": {"kl": kl}}
        for epoch, kl in ((1, 0.5), (2, 0.25))
    ]
    found = compare(tmp_path, training=rows)
    assert [row.values["kl"] for row in found.table.epochs] == [0.5, 0.25]
    assert "0.25" in render(found)[1]


BESIDE = {
    "systems": {"key": "arm", "values": ["SFT", "GRPO"]},
    "axes": [{"key": "measure", "values": ["accuracy", "alignment"]}],
    "facts": {},
}


def type_in(measure: str, **known: object) -> dict[str, object]:
    state = {} if "value" in known else {"state": "waiting"}
    return {"system": "SFT", "at": {"measure": measure}, **state, **known}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cells": [CELL, CELL]}, "appears twice"),
        ({"cells": [CELL | {"system": 0.2}]}, "not in the grid"),
        ({"cells": [CELL | {"at": {"epoch": 1, "size": 200}}]}, "not in the grid"),
        ({"cells": [CELL | {"value": 157.0}]}, "not in [0, 100"),
        ({"cells": [CELL | {"value": None}]}, "done without a value"),
        ({"facts": {"0.2": {}}}, "no systems ['0.2']"),
        ({"cels": []}, "did you mean 'cells'"),
        *(
            (
                {**BESIDE, "cells": [type_in("accuracy", **a), type_in("alignment", **b)]},
                words,
            )
            for a, b, words in (
                ({"n": 340}, {"n": 350}, "SFT is of n 340 at "),
                ({"n": 340, "value": 50.0}, {"n": 350, "value": 50.0}, "and of n 350 at "),
                ({"n": 340, "digest": "b"}, {"n": 340, "digest": "a"}, "of digest a"),
            )
        ),
    ],
)
def test_wrong_files_are_refused_in_a_sentence(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_published(change_fixture(tmp_path, **changes))
    assert words in str(caught.value)


def test_items_may_differ_along_an_axis_that_says_so(tmp_path: Path) -> None:
    cells = [type_in("accuracy", n=340), type_in("alignment", n=350)]
    axes = [BESIDE["axes"][0] | {"nested": False}]
    read_published(change_fixture(tmp_path, cells=cells, **(BESIDE | {"axes": axes})))
    cells[1]["n"] = 340
    read_published(change_fixture(tmp_path, cells=cells, **BESIDE))


def test_systems_of_which_nothing_is_known_cannot_be_checked(tmp_path: Path) -> None:
    found = compare(tmp_path, facts={})
    assert (found.table.is_fair, found.recommended) == (False, None)


@pytest.mark.parametrize(
    ("one", "two"), [({"digest": "a"}, {"digest": "b"}), ({"n": 340}, {"n": 350})]
)
def test_values_of_other_items_are_not_subtracted(
    tmp_path: Path, one: dict[str, Any], two: dict[str, Any]
) -> None:
    found = compare(tmp_path, cells=[CELL | one, CELL | two | {"system": 0.15, "value": 58.8}])
    (gap,) = [gap for gap in found.pairs[0].gaps if gap.cell == PLACES[0]]
    assert (gap.difference, gap.why_none) == (None, "other_items")
    assert "other_items" in list_reasons(found)


@pytest.mark.parametrize(("language", "word"), [("en", "does not apply"), ("zh", "不适用")])
def test_a_measure_that_does_not_apply_is_no_missing_run(
    tmp_path: Path, language: Language, word: str
) -> None:
    other = CELL | {"system": 0.15, "value": None, "state": "inapplicable"}
    axes = [{"key": key, "values": [value]} for key, value in CELL["at"].items()]
    found = compare(tmp_path, cells=[CELL, other], axes=axes)
    assert found.pairs[0].gaps[0].why_none == "inapplicable"
    assert "missing" not in [*list_notices(found), *list_reasons(found)]
    shown = render(found, language)[1]
    assert word in shown
    row = next(line for line in shown.splitlines() if line.startswith("| ") and "0.15" in line)
    assert "–" in row
    assert "?" not in row


def test_one_equal_pair_of_values_may_be_chance(tmp_path: Path) -> None:
    found = compare(tmp_path, cells=[CELL, CELL | {"at": CELL["at"] | {"epoch": 2}}])
    assert "same_epochs" not in list_notices(found)


SHAPE = {
    "systems": {"key": "system", "values": ["x", "y"]},
    "axes": [{"key": "epoch", "values": [1, 2]}, {"key": "shots", "values": [1, 2]}],
    "facts": {},
}
ARROWS = [
    {"system": system, "at": {"epoch": epoch, "shots": shots}, "value": value}
    for epoch, shots, x, y in ((1, 1, 57, 58), (2, 1, 60, 58), (1, 2, 50, 50), (2, 2, 49, 50))
    for system, value in (("x", x), ("y", y))
]


@pytest.mark.parametrize("less_is_better", [False, True])
def test_a_typed_table_has_arrows_trends_and_a_direction(
    tmp_path: Path, less_is_better: bool
) -> None:
    named = {"cells": ARROWS, "measure": "errors", "less_is_better": less_is_better, **SHAPE}
    found = compare(tmp_path, **named)
    (pair,) = found.pairs
    assert pair.counts == ((2, 1, 1) if less_is_better else (1, 2, 1))
    text = render(found)[1].replace("\u00a0", " ")
    for row in ("| 1 | −1.0 ⬇️ | ±0.0 ➡️ |", "| 2 | +2.0 ⬆️ | −1.0 ⬇️ |"):
        assert row in text
    # By shots: the mean over epochs, and its change; by epoch: the change of the mean.
    assert re.search(r"\| shots 1 \| \+0\.5 ⬆️ .*\| \+3\.0 ⬆️ \|", text)
    assert re.search(r"\| shots 2 \| −0\.5 ⬇️ .*\| −1\.0 ⬇️ \|", text)
    assert "| Trend, first to last epoch | +1.0 ⬆️ |" in text


def test_a_trend_is_told_only_where_all_epochs_have_the_same_cells(tmp_path: Path) -> None:
    found = compare(tmp_path, cells=ARROWS[:-1], **SHAPE)
    (pair,) = found.pairs
    assert pair.trends[0] is None
    assert [row.trend for row in pair.by_axis[1]] == [pytest.approx(0.03), None]
    assert "| 趋势（首轮到末轮） | ? |" in render(found, "zh")[1].replace("\u00a0", " ")


def test_a_typed_table_keeps_two_decimals_and_asks_nobody_to_run_again(tmp_path: Path) -> None:
    facts = {"x": {"config/a": 1, "metrics/accuracy": 1}, "y": {"metrics/accuracy": 2}}
    cells = [
        {"system": name, "at": {"epoch": 1}, "value": value}
        for name, value in (("x", 57.27), ("y", 58.8))
    ]
    table = {"title": "typed", "unit": "percent", "cells": cells, "facts": facts}
    table |= {"systems": SHAPE["systems"], "axes": [{"key": "epoch", "values": [1]}]}
    write_json(tmp_path / "cells.json", table)
    found = compare_results(read_published(tmp_path / "cells.json"))
    for language in LANGUAGES:
        text = render(found, language)[1]
        assert "57.27\u00a0%" in text
        assert "58.80\u00a0%" in text
        assert not re.search(r"run (that|it|its).* again|evaluate .* again|重新(运行|评测)", text)
