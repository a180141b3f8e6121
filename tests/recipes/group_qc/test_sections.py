"""What the report says first, on predictions made up so that the shares can be counted by hand."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from group_words import FAIL, PARSER, PASS, VERDICTS
from run_folders import POLICIES

from groupwise.evaluation.metrics import compute_metrics
from groupwise.evaluation.predictions import Policies, Prediction
from groupwise.evaluation.report.tables import Section
from groupwise_recipes.group_qc.measures import (
    MEASURES,
    make_sections,
    measure_missions,
    say_failed,
    score_defects,
    show_group,
)
from groupwise_recipes.group_qc.recipe import recipe
from groupwise_recipes.group_qc.verdicts import FALSE_ALARMS, MISSED

EARTH, CABLE = "BBU接地线检查", "BBU线缆布放要求"
GRPO: list[tuple[str, str, str | None]] = [
    (EARTH, FAIL, PASS),
    (EARTH, FAIL, FAIL),
    (EARTH, PASS, PASS),
    (CABLE, FAIL, FAIL),
    (CABLE, FAIL, None),
    (CABLE, PASS, FAIL),
    (CABLE, PASS, PASS),
    (CABLE, PASS, PASS),
]
"""4 groups fail: one judged to pass and one without verdict are missed. 4 pass: one fails here."""
WARM_UP = [(mission, label, PASS) for mission, label, _ in GRPO]
MAJORITY = [(mission, label, FAIL) for mission, label, _ in GRPO]


def make_predictions(policy: str, rows: Sequence[tuple[str, str, str | None]]) -> list[Prediction]:
    return [
        score_defects(
            Prediction(
                example_id=f"g{number}",
                cluster=f"g{number}",
                split="test",
                policy=policy,
                label=label,
                predicted=verdict,
                reason="" if verdict else "empty reply",
                text=PARSER.write_reply(verdict, "要点均已确认") if verdict else "",
                fields={"task_type": mission},
            ),
            PARSER,
        )
        for number, (mission, label, verdict) in enumerate(rows)
    ]


def make_all(folder: Path, predictions: list[Prediction], **failed: int) -> dict[str, Section]:
    trained = [
        {"part": "vision", "num_trainable": 0, "num_frozen": 62},
        {"part": "language block 2", "num_trainable": 28, "num_frozen": 430},
    ]
    (folder / "trainable.json").write_text(json.dumps(trained))
    found = make_sections(
        compute_metrics(predictions, labels=VERDICTS, seed=0),
        measure_missions(predictions, VERDICTS, seed=0),
        policies=Policies(POLICIES),
        verdicts=VERDICTS,
        say_stage_a=partial(say_failed, failed),
        trainable=folder / "trainable.json",
    )
    assert [one.language for one in found] == ["en"] * 3 + ["zh"] * 3
    return {section.title: section for section in found if section.language == "en"}


@pytest.fixture
def sections(tmp_path: Path) -> dict[str, Section]:
    predictions = [
        *make_predictions("majority", MAJORITY),
        *make_predictions("sft", WARM_UP),
        *make_predictions("grpo", GRPO),
    ]
    return make_all(tmp_path, predictions)


def read_shares(table: Any, policy: str) -> dict[str, str]:
    """Return a row's cells by column, without their intervals."""
    (row,) = [row for row in table.rows if row[0] == policy]
    shares = [cell.partition("\n")[0].replace("\u00a0", " ") for cell in row]
    return dict(zip(table.head, shares, strict=True))


@pytest.mark.parametrize(
    ("label", "verdict", "scores"),
    [
        (FAIL, FAIL, {MISSED: 0.0}),
        (FAIL, PASS, {MISSED: 1.0}),
        (FAIL, None, {MISSED: 1.0}),
        (PASS, PASS, {FALSE_ALARMS: 0.0}),
        (PASS, FAIL, {FALSE_ALARMS: 1.0}),
        (PASS, None, {FALSE_ALARMS: 1.0}),
    ],
)
def test_a_group_without_a_verdict_is_counted_against_the_policy(
    label: str, verdict: str | None, scores: dict[str, float]
) -> None:
    (found,) = make_predictions("majority", [(EARTH, label, verdict)])
    assert found.scores == scores


def test_a_policy_that_never_answers_has_the_worst_of_every_measure() -> None:
    silent = make_predictions("grpo", [(mission, label, None) for mission, label, _ in GRPO])
    found = {m.measure: m.value for m in compute_metrics(silent, labels=VERDICTS)}
    worst = {one.name: 0.0 if one.is_higher_better else 1.0 for one in MEASURES}
    assert {MISSED, FALSE_ALARMS} <= found.keys()
    assert {name: found.get(name, value) for name, value in worst.items()} == worst


def test_missed_defects_stand_first_and_are_those_not_judged_to_fail(
    sections: dict[str, Section],
) -> None:
    assert list(sections) == ["Missed defects", "By mission", "What trained in GRPO"]
    text = sections["Missed defects"].text.replace("\u00a0", " ")
    assert text.startswith("After GRPO, 50.0 % (")
    assert "; after its warm-up, 100.0 % (" in text
    assert "n = 4 failing groups" in text
    assert "95 %" in text


def test_the_page_begins_with_missed_defects(sections: dict[str, Section]) -> None:
    (tile,) = sections["Missed defects"].tiles
    assert tile.value.replace("\u00a0", " ") == "50.0 %"
    assert tile.text == "of the failing photo groups missed by GRPO on test"
    assert tile.note.endswith("(95 %), n = 4")


def test_every_policy_has_its_row(sections: dict[str, Section]) -> None:
    (table,) = sections["Missed defects"].tables
    assert table.head[1] == "Missed defects"
    assert [row[0] for row in table.rows] == ["Majority label", "SFT warm-up", "GRPO"]
    assert read_shares(table, "GRPO") == {
        "Policy": "GRPO",
        "Missed defects": "50.0 %",
        "False alarms": "25.0 %",
        "Accuracy": "62.5 %",
        "No verdict": "12.5 %",
        "Two lines": "87.5 %",
        "Obeys orders": "–",
        "n": "8",
    }
    assert read_shares(table, "Majority label") == {
        "Policy": "Majority label",
        "Missed defects": "0.0 %",
        "False alarms": "100.0 %",
        "Accuracy": "50.0 %",
        "No verdict": "0.0 %",
        "Two lines": "–",
        "Obeys orders": "–",
        "n": "8",
    }


def test_every_mission_has_its_own_numbers(sections: dict[str, Section]) -> None:
    tables = sections["By mission"].tables
    assert [table.title for table in tables] == [
        EARTH,
        f"{EARTH}, by verdict",
        CABLE,
        f"{CABLE}, by verdict",
    ]
    earth = read_shares(tables[0], "GRPO")
    assert (earth["Missed defects"], earth["False alarms"], earth["n"]) == ("50.0 %", "0.0 %", "3")
    cable = read_shares(tables[2], "GRPO")
    assert (cable["Missed defects"], cable["False alarms"], cable["n"]) == ("50.0 %", "33.3 %", "5")
    assert read_shares(tables[1], "GRPO") == {
        "Policy": "GRPO",
        "Precision 通过": "50.0 %",
        "Recall 通过": "100.0 %",
        "F1 通过": "66.7 %",
        "Precision 不通过": "100.0 %",
        "Recall 不通过": "50.0 %",
        "F1 不通过": "66.7 %",
        "n": "3",
    }
    assert read_shares(tables[1], "SFT warm-up")["Precision 不通过"] == "–"


def test_what_trained_is_read_from_the_training(sections: dict[str, Section]) -> None:
    (table,) = sections["What trained in GRPO"].tables
    assert table.rows == (
        ("vision", "0", "62"),
        ("language block 2", "28", "430"),
        ("total", "28", "492"),
    )


def test_groups_that_stage_a_failed_on_are_said(tmp_path: Path) -> None:
    predictions = make_predictions("grpo", GRPO)
    said = make_all(tmp_path, predictions, **{EARTH: 1, CABLE: 3})["By mission"].text
    text = said.replace("\u00a0", " ")
    assert f"1 photo group of {EARTH}, 3 photo groups of {CABLE}" in text
    assert "Stage A" not in make_all(tmp_path, predictions)["By mission"].text


def test_a_finished_run_prints_a_measure_that_there_is() -> None:
    metrics = compute_metrics(make_predictions("grpo", GRPO), labels=VERDICTS)
    assert recipe.headline in {metric.measure for metric in metrics}


def test_nothing_is_claimed_where_no_group_fails(tmp_path: Path) -> None:
    rows = [row for row in GRPO if row[1] == PASS]
    predictions = [*make_predictions("sft", rows), *make_predictions("grpo", rows)]
    section = make_all(tmp_path, predictions)["Missed defects"]
    assert section.text.startswith("No photo group of the test split fails")
    assert section.tiles == ()
    assert read_shares(section.tables[0], "GRPO")["Missed defects"] == "–"


def test_a_prediction_shows_its_photos_and_what_was_asked(tmp_path: Path):
    [one, *_] = make_predictions("grpo", GRPO)
    summaries = {"图片_1": "接地线/未安装×1", "图片_2": "无关图片"}
    fields = {**one.fields, "stage_a_summaries": summaries, "images": ["a/1.jpg", "a/2.jpg"]}
    shown = show_group(replace(one, fields=fields), tmp_path)
    assert shown.pictures == (str(tmp_path / "a/1.jpg"), str(tmp_path / "a/2.jpg"))
    assert shown.fields["task"] == f"{GRPO[0][0]}：图片_1 接地线/未安装×1；图片_2 无关图片"
    assert shown.scores == one.scores
