"""A judge of entailment is measured by people's labels."""

import json
from pathlib import Path
from typing import Any

import pytest
from faulty_server import MODEL, Fault, FaultyServer
from typer.testing import CliRunner

from groupwise.core import DataError, read_json, write_json, write_jsonl
from groupwise_recipes.visual_reasoning.human_labels import compare_with_people, judge_reasoning
from groupwise_recipes.visual_reasoning.judging import RuleEntailment
from groupwise_recipes.visual_reasoning.sources import add_judged, load_vsr

CAPTION = "The cat is left of the dog."
LEFT, RIGHT = "The cat is to the left of the dog.", "The dog is to the left of the cat."
LABELS: list[tuple[str, str, Any]] = [
    (LEFT, "True", "True"),
    (LEFT, "False", "False"),
    (RIGHT, "False", "True"),
    (RIGHT, "True", "False"),
    (RIGHT, "true", "True"),
    ("It is raining.", "True", "False"),
    ("Whatever, it is wrong.", "True", "False"),
    (LEFT, "True", ""),
    (LEFT, "nobody knows", "True"),
]
"""Of those with a label and an answer, rules decide six, and five as people did."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Made files of the published forms: a picture for each reasoning."""
    for number, split in enumerate(("train", "dev", "test")):
        rows = [
            {"image": f"{n}.jpg", "caption": CAPTION, "label": 1, "relation": "left of"}
            for n in range(len(LABELS))
            if n % 3 == number
        ]
        write_jsonl(tmp_path / "vsr" / f"{split}.jsonl", rows)
    judged = [
        {
            "question": CAPTION,
            "image_url": f"http://pictures/{n}.jpg",
            "model_reasoning": said,
            "final_ans": answer,
            "human_aligns": aligns,
        }
        for n, (said, answer, aligns) in enumerate(LABELS)
    ]
    write_json(tmp_path / "judged.json", judged)
    return tmp_path


def read_metrics(out: Path) -> dict[str, dict[str, Any]]:
    rows = read_json(out / "calibration.json", dict)["metrics"]
    return {row["name"].rpartition("/")[2]: row for row in rows}


def call(folder: Path, *more: str) -> str:
    import typer

    app = typer.Typer()
    app.command()(judge_reasoning)
    paths = ["--data", folder / "vsr", "--labels", folder / "judged.json", "--out", folder / "out"]
    done = CliRunner().invoke(app, [*map(str, paths), *more], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_agreement_and_kappa_are_those_of_the_labels(folder: Path) -> None:
    output = call(folder)
    found = read_metrics(folder / "out")
    assert found["agreement"]["value"] == pytest.approx(5 / 6)
    assert found["agreement"]["n"] == 6
    # Both say "aligned" of 2 and "not aligned" of 3; people say "aligned" of one more.
    by_chance = (3 / 6) * (2 / 6) + (3 / 6) * (4 / 6)
    assert found["kappa"]["value"] == pytest.approx((5 / 6 - by_chance) / (1 - by_chance))
    assert found["kappa"]["low"] < found["kappa"]["value"] < found["kappa"]["high"]
    assert (found["no_verdict_rate"]["value"], found["no_verdict_rate"]["n"]) == (1 / 7, 7)
    assert "by rules for drawn scenes" in output
    assert "kappa: 0.667" in output
    assert (folder / "out" / "report.html").is_file()


def test_a_model_is_measured_likewise(folder: Path) -> None:
    server = FaultyServer(lambda _: Fault('{"aligns": true, "type": null, "why": ""}'))
    config = {"judge": "model", "model": {"server": {"url": server.url, "model": MODEL}}}
    (folder / "judge.yaml").write_text(json.dumps(config))
    try:
        output = call(folder, "--judge", str(folder / "judge.yaml"))
    finally:
        server.close()
    assert read_metrics(folder / "out")["agreement"]["value"] == pytest.approx(3 / 7)
    assert f"{MODEL} at {server.url}" in output


def test_without_labels_there_is_nothing_to_measure(folder: Path) -> None:
    write_json(folder / "none.json", [])
    loaded = add_judged(load_vsr(folder / "vsr"), folder / "none.json")
    with pytest.raises(DataError, match="people judged none"):
        compare_with_people(RuleEntailment(), loaded, folder / "out")
