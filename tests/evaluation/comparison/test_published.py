"""The published table of two betas: unlike data, and two epochs that are the same."""

import json
import re
from pathlib import Path

import pytest

from groupwise.core import ConfigError, write_json
from groupwise.evaluation.comparison import (
    Comparison,
    build_comparison,
    read_cells_file,
    render_html,
    render_markdown,
    tell_comparison,
    write_comparison,
)
from groupwise.evaluation.page import LANGUAGES, Language, Scale

FIXTURE = Path(__file__).parents[2] / "fixtures" / "published_beta_table.json"
PLACES = [("1", "200", str(shots)) for shots in range(1, 5)]


def test_differences_keep_their_sign(published: Comparison) -> None:
    (pair,) = published.versus
    assert (pair.first, pair.second) == ("0.12", "0.15")
    found = [pair.find(place) for place in PLACES]
    assert [round(100 * gap.difference, 6) for gap in found] == [-1.8, -0.5, 1.2, 0.0]
    assert (pair.num_better, pair.num_worse, pair.num_equal, pair.num_tested) == (2, 4, 2, 0)
    assert pair.mean == pytest.approx(-0.00275)
    assert (pair.best, pair.worst) == (PLACES[2], PLACES[0])


def test_nothing_is_computed_from_cells_that_have_not_run(published: Comparison) -> None:
    (pair,) = published.versus
    empty = [gap for gap in pair.gaps if gap.coordinates[1] != "200"]
    assert len(empty) == 24
    assert {(gap.difference, gap.why_none) for gap in empty} == {(None, "missing")}
    sizes = pair.by_axis[1].rows
    assert [(row.value, row.mean, row.num_compared) for row in sizes if row.value != "200"] == [
        ("100", None, 0),
        ("400", None, 0),
        ("800", None, 0),
    ]
    assert (sizes[1].num_compared, sizes[1].num_cells) == (8, 8)


@pytest.mark.parametrize(
    ("language", "data", "epochs", "none"),
    [
        ("en", "5/800 against 664/800", "Epoch 1, 2 are identical", "No recommendation"),
        ("zh", "5/800 对 664/800", "epoch 1, 2 在全部", "不作推荐"),
    ],
)
def test_the_data_mismatch_comes_first_and_nothing_is_recommended(
    published: Comparison, language: Language, data: str, epochs: str, none: str
) -> None:
    lines = list(tell_comparison(published, language=language))
    assert "recorded_candidates" in lines[0]
    assert data in lines[0]
    assert epochs in lines[1]
    assert "trained" in lines[1] or "训练" in lines[1]
    assert none in lines
    assert published.recommendation.system is None
    kinds = [reason.kind for reason in published.recommendation.reasons]
    assert kinds == ["reason.unfair", "reason.missing", "reason.no_items"]
    for text in (
        render_html(published, language=language),
        render_markdown(published, language=language),
    ):
        places = [text.index(mark) for mark in ("5/800", "−1.8", "−0.5", "+1.2", "±0.0")]
        assert places[0] < min(places[1:])
        assert "★" not in text


def test_the_three_files_say_the_same(published: Comparison, tmp_path: Path) -> None:
    for language in LANGUAGES:
        written = write_comparison(published, tmp_path, language=language)
        values = json.loads(written.data.read_text())
        assert values["is_fair"] is False
        assert values["versus"][0]["num_worse"] == 4
        assert len(values["cells"]) == 64
        assert written.html.read_text() == render_html(published, language=language)
        assert written.markdown.read_text() == render_markdown(published, language=language)


def test_training_values_are_shown_by_epoch(tmp_path: Path) -> None:
    """The values are made up: none were published with the cells."""
    rows = [
        {"system": 0.12, "step": "grpo", "epoch": epoch, "values": {"kl": kl}}
        for epoch, kl in ((1, 0.5), (2, 0.25))
    ]
    found = build_comparison(read_cells_file(change_fixture(tmp_path, training=rows)))
    assert [row.values["kl"] for row in found.epochs] == [0.5, 0.25]
    assert "0.25" in render_markdown(found)


def change_fixture(folder: Path, **changes: object) -> Path:
    values = json.loads(FIXTURE.read_text()) | changes
    path = folder / "cells.json"
    path.write_text(json.dumps(values))
    return path


CELL = {"system": 0.12, "at": {"epoch": 1, "size": 200, "shots": 1}, "value": 57.0}


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
    ],
)
def test_wrong_files_are_refused_in_a_sentence(
    tmp_path: Path, changes: dict[str, object], words: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_cells_file(change_fixture(tmp_path, **changes))
    assert words in str(caught.value)


def test_systems_of_which_nothing_is_known_cannot_be_checked(tmp_path: Path) -> None:
    found = build_comparison(read_cells_file(change_fixture(tmp_path, facts={})))
    assert not found.is_fair
    assert found.recommendation.system is None


def test_values_of_other_items_are_not_subtracted(tmp_path: Path) -> None:
    cells = [CELL | {"digest": "a"}, CELL | {"system": 0.15, "digest": "b", "value": 58.8}]
    found = build_comparison(read_cells_file(change_fixture(tmp_path, cells=cells)))
    gap = found.versus[0].find(("1", "200", "1"))
    assert (gap.difference, gap.why_none) == (None, "other_items")
    assert "reason.other_items" in [reason.kind for reason in found.recommendation.reasons]


def test_values_of_other_numbers_of_items_are_not_subtracted(tmp_path: Path) -> None:
    cells = [CELL | {"n": 340}, CELL | {"system": 0.15, "n": 350}]
    found = build_comparison(read_cells_file(change_fixture(tmp_path, cells=cells)))
    gap = found.versus[0].find(("1", "200", "1"))
    assert (gap.difference, gap.why_none) == (None, "other_items")


BESIDE = {
    "systems": {"key": "arm", "values": ["SFT", "GRPO"]},
    "axes": [{"key": "measure", "values": ["accuracy", "alignment"]}],
    "facts": {},
}


def type_in(system: str, measure: str, **known: object) -> dict[str, object]:
    state = {} if "value" in known else {"state": "waiting"}
    return {"system": system, "at": {"measure": measure}, **state, **known}


@pytest.mark.parametrize("more", [{}, {"value": 50.0}])
def test_measures_of_unlike_items_are_refused_side_by_side(
    tmp_path: Path, more: dict[str, float]
) -> None:
    cells = [type_in("SFT", "accuracy", n=340, **more), type_in("SFT", "alignment", n=350, **more)]
    with pytest.raises(ConfigError, match=r"SFT is of n 340 at .* and of n 350 at "):
        read_cells_file(change_fixture(tmp_path, cells=cells, **BESIDE))
    cells[1]["n"] = 340
    read_cells_file(change_fixture(tmp_path, cells=cells, **BESIDE))
    cells[1]["digest"], cells[0]["digest"] = "a", "b"
    with pytest.raises(ConfigError, match="of digest b"):
        read_cells_file(change_fixture(tmp_path, cells=cells, **BESIDE))


def test_items_may_differ_along_an_axis_that_says_so(tmp_path: Path) -> None:
    cells = [type_in("SFT", "accuracy", n=340), type_in("SFT", "alignment", n=350)]
    axes = [BESIDE["axes"][0] | {"nested": False}]
    read_cells_file(change_fixture(tmp_path, cells=cells, **(BESIDE | {"axes": axes})))


@pytest.mark.parametrize(("language", "word"), [("en", "does not apply"), ("zh", "不适用")])
def test_a_measure_that_does_not_apply_is_no_missing_run(
    tmp_path: Path, language: Language, word: str
) -> None:
    other = CELL | {"system": 0.15, "value": None, "state": "inapplicable"}
    axes = [{"key": key, "values": [value]} for key, value in CELL["at"].items()]
    found = build_comparison(
        read_cells_file(change_fixture(tmp_path, cells=[CELL, other], axes=axes))
    )
    assert found.versus[0].gaps[0].why_none == "inapplicable"
    assert "notice.missing" not in [one.kind for one in found.notices]
    kinds = [reason.kind for reason in found.recommendation.reasons]
    assert "reason.inapplicable" in kinds
    assert "reason.missing" not in kinds
    shown = render_markdown(found, language=language)
    assert word in shown
    row = next(line for line in shown.splitlines() if line.startswith("| ") and "0.15" in line)
    assert "–" in row
    assert "?" not in row


def test_one_equal_pair_of_values_may_be_chance(tmp_path: Path) -> None:
    other = CELL | {"at": CELL["at"] | {"epoch": 2}}
    found = build_comparison(read_cells_file(change_fixture(tmp_path, cells=[CELL, other])))
    assert "same_epochs" not in [one.values.get("reason") for one in found.notices]


ARROWS = [
    *({"system": s, "at": {"epoch": 1, "shots": 1}, "value": v} for s, v in (("x", 57), ("y", 58))),
    *({"system": s, "at": {"epoch": 2, "shots": 1}, "value": v} for s, v in (("x", 60), ("y", 58))),
    *({"system": s, "at": {"epoch": 1, "shots": 2}, "value": 50} for s in ("x", "y")),
    *({"system": s, "at": {"epoch": 2, "shots": 2}, "value": v} for s, v in (("x", 49), ("y", 50))),
]


@pytest.mark.parametrize("less_is_better", [False, True])
def test_a_typed_table_has_the_arrows_and_trends_of_a_study(
    tmp_path: Path, less_is_better: bool
) -> None:
    shape = {
        "systems": {"key": "system", "values": ["x", "y"]},
        "axes": [{"key": "epoch", "values": [1, 2]}, {"key": "shots", "values": [1, 2]}],
        "measure": "errors",
        "less_is_better": less_is_better,
        "facts": {},
    }
    found = build_comparison(read_cells_file(change_fixture(tmp_path, cells=ARROWS, **shape)))
    text = render_markdown(found).replace("\u00a0", " ")
    for row in ("| 1 | −1.0 ⬇️ | ±0.0 ➡️ |", "| 2 | +2.0 ⬆️ | −1.0 ⬇️ |"):
        assert row in text
    # By shots: the mean over epochs, and its change; by epoch: the change of the mean.
    assert re.search(r"\| 1 \| \+0\.5 ⬆️ .*\| \+3\.0 ⬆️ \|", text)
    assert re.search(r"\| 2 \| −0\.5 ⬇️ .*\| −1\.0 ⬇️ \|", text)
    assert "| Trend, first to last epoch | +1.0 ⬆️ |" in text
    # Arrows say more or less, colours better or worse.
    gain, loss = (Scale(-0.01, 0.02).shade_difference(value) for value in (0.02, -0.02))
    (style,) = re.findall(r'style="([^"]*)"[^>]*>\+2\.0', render_html(found))
    assert style == (loss if less_is_better else gain)


def test_a_trend_is_told_only_where_all_epochs_have_the_same_cells(tmp_path: Path) -> None:
    shape = {
        "systems": {"key": "system", "values": ["x", "y"]},
        "axes": [{"key": "epoch", "values": [1, 2]}, {"key": "shots", "values": [1, 2]}],
        "facts": {},
    }
    found = build_comparison(read_cells_file(change_fixture(tmp_path, cells=ARROWS[:-1], **shape)))
    (pair,) = found.versus
    epochs, shots = pair.by_axis
    assert epochs.trend is None
    assert [row.trend for row in shots.rows] == [pytest.approx(0.03), None]
    text = render_markdown(found, language="zh").replace("\u00a0", " ")
    assert "| 趋势（首轮到末轮） | ? |" in text


def test_a_typed_table_keeps_two_decimals_and_asks_nobody_to_run_again(tmp_path: Path) -> None:
    table = {
        "title": "typed",
        "unit": "percent",
        "systems": {"key": "system", "values": ["x", "y"]},
        "axes": [{"key": "epoch", "values": [1]}],
        "cells": [
            {"system": "x", "at": {"epoch": 1}, "value": 57.27},
            {"system": "y", "at": {"epoch": 1}, "value": 58.8},
        ],
        "facts": {"x": {"config/a": 1, "metrics/accuracy": 1}, "y": {"metrics/accuracy": 2}},
    }
    write_json(tmp_path / "cells.json", table)
    found = build_comparison(read_cells_file(tmp_path / "cells.json"))
    for language in LANGUAGES:
        text = render_markdown(found, language=language)
        assert "57.27\u00a0%" in text
        assert "58.80\u00a0%" in text
        assert not re.search(r"run (that|it|its).* again|evaluate .* again|重新(运行|评测)", text)
