import json
from pathlib import Path

import pytest

from groupwise.core import Config, ConfigError, RunError, RunFolder
from groupwise.data import DropLog
from groupwise.pipeline import (
    FoundGroups,
    PredictionSource,
    Preview,
    Recipe,
    open_predictor,
    predict_folder,
    prediction,
)
from groupwise.serving import GroupRequest, GroupVerdict


class Settings(Config):
    seed: int = 0
    answer: str = "通过"


class StandIn:
    """Answers what the config says; groups whose picture is empty have no verdict."""

    tasks = ("doors",)
    asked: list[str]

    def __init__(self, config: Settings, run: Path) -> None:
        self.answer = config.answer
        self.asked = []
        made.append(self)

    def describe(self):
        return {"answer": self.answer}

    def predict(self, requests):
        self.asked += [request.id for request in requests]
        return [self.judge(request) for request in requests]

    def judge(self, request):
        if not request.pictures[0].read_bytes():
            return GroupVerdict(request.id, None, needs_person=True, failure="nothing to see")
        is_sure = "unsure" not in request.id
        return GroupVerdict(request.id, self.answer, "理由", 0.9 if is_sure else 0.5, not is_sure)


made: list[StandIn] = []


def list_groups(config, photos):
    drops = DropLog()
    for path in photos.glob("*.txt"):
        drops.add("no picture", path.name)
    found = sorted(photos.glob("*.jpg"))
    return FoundGroups(tuple(GroupRequest(p.stem, "doors", (p,)) for p in found), drops)


@pytest.fixture
def run(tmp_path, monkeypatch):
    recipe = Recipe(
        name="doors",
        summary="",
        config_type=Settings,
        config_folder=tmp_path,
        plan=lambda config, run: [],
        preview=lambda config: Preview(),
        prediction=PredictionSource(StandIn, list_groups),
    )
    made.clear()
    monkeypatch.setattr(prediction, "find_recipe", lambda name: recipe)
    return write_run(tmp_path / "run")


def write_run(folder, **config):
    folder.mkdir(exist_ok=True)
    RunFolder(folder).write_manifest(
        recipe="doors", config={"seed": 0, **config}, inputs={}, seed=0
    )
    return folder


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("一", "b unsure", "c", "d"):
        (folder / f"{name}.jpg").write_bytes(b"picture")
    (folder / "note.txt").write_text("x")
    return folder


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_group_gets_a_row_and_totals_add_up(run, photos, tmp_path):
    (photos / "c.jpg").write_bytes(b"")
    seen = []
    summary = predict_folder(
        run,
        photos,
        out=tmp_path / "out" / "verdicts.jsonl",
        batch_size=3,
        report_progress=lambda *numbers: seen.append(numbers),
    )
    rows = {row["id"]: row for row in read_rows(tmp_path / "out" / "verdicts.jsonl")}
    assert set(rows) == {"一", "b unsure", "c", "d"}
    assert rows["一"] | {"model": ""} == {
        "id": "一",
        "task": "doors",
        "verdict": "通过",
        "reason": "理由",
        "confidence": 0.9,
        "needs_person": False,
        "details": {},
        "failed": None,
        "model": "",
    }
    assert rows["c"]["verdict"] is None
    assert rows["c"]["failed"] == "nothing to see"
    assert summary.verdicts == {"通过": 3}
    assert summary.failures == {"nothing to see": 1}
    assert sum(summary.verdicts.values()) + 1 == summary.num_groups == 4
    assert summary.for_people == ("b unsure", "c")
    assert summary.drops.counts == {"no picture": 1}
    assert seen == [(0, 4), (3, 4), (4, 4)]


def predict(command_line, run, photos, out):
    return command_line("predict", run, photos, "--out", out)


def test_no_verdict_at_all_is_a_failure_that_says_why(run, photos, tmp_path, command_line):
    out = tmp_path / "verdicts.jsonl"
    for photo in photos.glob("*.jpg"):
        photo.write_bytes(b"")
    done = predict(command_line, run, photos, out)
    assert done.returncode == 1
    assert "4 groups: no verdict at all" in done.stdout
    assert "no verdict: 4 nothing to see" in done.stderr
    assert {row["failed"] for row in read_rows(out)} == {"nothing to see"}
    (photos / "c.jpg").write_bytes(b"picture")
    assert predict(command_line, run, photos, out).returncode == 0
    (tmp_path / "none").mkdir()
    assert predict(command_line, run, tmp_path / "none", tmp_path / "none.jsonl").returncode == 1


def test_only_what_has_no_verdict_is_asked_again(run, photos, tmp_path):
    out = tmp_path / "verdicts.jsonl"
    (photos / "c.jpg").write_bytes(b"")
    predict_folder(run, photos, out=out, batch_size=8)
    before = read_rows(out)
    with out.open("a") as stream:
        stream.write('{"id": "torn')
    (photos / "c.jpg").write_bytes(b"picture")
    (photos / "e.jpg").write_bytes(b"picture")
    summary = predict_folder(run, photos, out=out, batch_size=8)
    assert made[-1].asked == ["c", "e"]
    assert (summary.num_groups, summary.num_kept, summary.failures) == (5, 3, {})
    after = {row["id"]: row for row in read_rows(out)}
    assert len(read_rows(out)) == len(after) == 5
    assert all(after[row["id"]] == row for row in before if row["id"] != "c")


def test_verdicts_of_two_models_are_not_mixed(run, photos, tmp_path):
    out = tmp_path / "verdicts.jsonl"
    predict_folder(run, photos, out=out, batch_size=8)
    before = out.read_bytes()
    write_run(run, answer="不通过")
    with pytest.raises(RunError, match="verdicts of another model"):
        predict_folder(run, photos, out=out, batch_size=8)
    assert out.read_bytes() == before


def test_what_cannot_be_predicted_is_said(run, photos, tmp_path):
    with pytest.raises(ConfigError, match="there is no folder"):
        predict_folder(run, tmp_path / "nowhere", out=tmp_path / "o.jsonl", batch_size=8)
    with pytest.raises(RunError, match="holds no run"):
        predict_folder(photos, photos, out=tmp_path / "o.jsonl", batch_size=8)
    assert not (tmp_path / "o.jsonl").exists()


def test_a_recipe_without_groups_predicts_nothing(tmp_path, monkeypatch):
    other = Recipe("other", "", Settings, tmp_path, lambda c, r: [], lambda c: Preview())
    monkeypatch.setattr(prediction, "find_recipe", lambda name: other)
    with pytest.raises(ConfigError, match="the recipe other judges no groups"):
        open_predictor(write_run(tmp_path / "run"))
