"""Taking over a sibling's finished step: what counts, what is linked, and who waits."""

import json
import threading
from pathlib import Path

import pytest

from groupwise.core import RunError, write_text
from groupwise.pipeline import Siblings, Step, StepContext, StepProgress, are_done, run_steps


class Recipe:
    """Two runs' worth of steps that count how often each is really done."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def write(self, context: StepContext) -> None:
        self.done.append(f"{context.run.name}/{context.name}")
        write_text(context.folder / "rows.jsonl", f"{context.name}\n")
        write_text(context.folder / "policy" / "model.safetensors", "weights")
        write_text(context.folder / "checkpoint-1" / "model.safetensors", "scratch")

    def report(self, context: StepContext) -> None:
        self.done.append(f"{context.run.name}/{context.name}")
        write_text(context.run / "report.html", context.run.name)

    def make(self, settings: object = 1) -> list[Step]:
        return [
            Step("train", self.write),
            Step("ask", self.write, uses=("train",), settings=settings),
            Step("report", self.report, uses=("ask",), files=("report.html",)),
        ]

    def run(self, run: Path, settings: object = 1) -> dict[str, str]:
        run.mkdir(exist_ok=True)
        siblings = Siblings(run.parent)
        finished = run_steps(self.make(settings), run, siblings=siblings)
        return {progress.name: progress.state for progress in finished}


@pytest.fixture
def recipe() -> Recipe:
    return Recipe()


def test_the_same_step_is_taken_over_and_what_differs_is_done(tmp_path: Path, recipe: Recipe):
    assert recipe.run(tmp_path / "a") == {"train": "run", "ask": "run", "report": "run"}
    states = recipe.run(tmp_path / "b", settings=2)
    assert states == {"train": "shared", "ask": "run", "report": "run"}
    assert recipe.done == ["a/train", "a/ask", "a/report", "b/ask", "b/report"]
    assert json.loads((tmp_path / "b/train/step.json").read_text())["taken_from"] == "a"
    assert not (tmp_path / "b/train/checkpoint-1").exists()
    assert are_done(recipe.make(2), tmp_path / "b")


def test_a_step_about_its_own_run_is_never_taken_over(tmp_path: Path, recipe: Recipe):
    recipe.run(tmp_path / "a")
    assert recipe.run(tmp_path / "b") == {"train": "shared", "ask": "shared", "report": "run"}
    assert (tmp_path / "b/report.html").read_text() == "b"


def test_weights_are_linked_and_what_may_grow_is_copied(tmp_path: Path, recipe: Recipe):
    recipe.run(tmp_path / "a")
    recipe.run(tmp_path / "b")
    weights, rows = "train/policy/model.safetensors", "train/rows.jsonl"
    assert (tmp_path / "a" / weights).samefile(tmp_path / "b" / weights)
    assert not (tmp_path / "a" / rows).samefile(tmp_path / "b" / rows)


def test_redoing_a_taken_step_leaves_the_sibling_alone(tmp_path: Path, recipe: Recipe):
    recipe.run(tmp_path / "a")
    recipe.run(tmp_path / "b")
    (tmp_path / "b/train/rows.jsonl").write_text("edited")
    run_steps(recipe.make(), tmp_path / "b")
    assert recipe.done[-2:] == ["b/train", "b/report"]
    assert are_done(recipe.make(), tmp_path / "a")
    assert are_done(recipe.make(), tmp_path / "b")


@pytest.mark.parametrize("damage", ["changed", "gone", "marker", "half marker"])
def test_a_damaged_donor_is_not_taken(tmp_path: Path, recipe: Recipe, damage: str):
    recipe.run(tmp_path / "a")
    rows, marker = tmp_path / "a/train/rows.jsonl", tmp_path / "a/train/step.json"
    if damage == "changed":
        rows.write_text("edited")
    elif damage == "gone":
        rows.unlink()
    elif damage == "marker":
        marker.write_text(marker.read_text()[:90])
    else:
        key = json.loads(marker.read_text())["key"]
        marker.write_text(json.dumps({"key": key}))
    assert recipe.run(tmp_path / "b")["train"] == "run"
    assert [path.name for path in (tmp_path / "b").glob(".*.taken")] == []


def test_a_whole_donor_is_found_behind_a_damaged_one(tmp_path: Path, recipe: Recipe):
    recipe.run(tmp_path / "a")
    recipe.run(tmp_path / "b")
    (tmp_path / "a/train/rows.jsonl").write_text("edited")
    assert recipe.run(tmp_path / "c")["train"] == "shared"
    assert json.loads((tmp_path / "c/train/step.json").read_text())["taken_from"] == "b"


def test_half_a_step_of_ones_own_gives_way_to_a_whole_one(tmp_path: Path, recipe: Recipe):
    def stop(context: StepContext) -> None:
        write_text(context.folder / "half.txt", "half")
        raise OSError("stopped")

    (tmp_path / "b").mkdir()
    with pytest.raises(OSError, match="stopped"):
        run_steps([Step("train", stop)], tmp_path / "b")
    recipe.run(tmp_path / "a")
    assert recipe.run(tmp_path / "b")["train"] == "shared"
    assert not (tmp_path / "b/train/half.txt").exists()


def test_two_runs_at_once_do_a_step_once(tmp_path: Path, recipe: Recipe):
    is_begun, may_end = threading.Event(), threading.Event()

    def train(context: StepContext) -> None:
        is_begun.set()
        assert may_end.wait(30)
        recipe.write(context)

    def start(name: str, told: list[StepProgress]) -> threading.Thread:
        def tell(progress: StepProgress) -> None:
            told.append(progress)
            if progress.state == "waiting":
                may_end.set()

        (tmp_path / name).mkdir()
        options = {"siblings": Siblings(tmp_path), "report_progress": tell}
        steps = [Step("train", train)]
        thread = threading.Thread(target=run_steps, args=(steps, tmp_path / name), kwargs=options)
        thread.start()
        return thread

    first: list[StepProgress] = []
    second: list[StepProgress] = []
    threads = [start("a", first)]
    assert is_begun.wait(30)
    threads.append(start("b", second))
    for thread in threads:
        thread.join(30)
    assert [progress.state for progress in first] == ["run", "run"]
    assert [progress.state for progress in second] == ["waiting", "shared"]
    assert recipe.done == ["a/train"]


def test_nothing_changed_is_what_done_means(tmp_path: Path, recipe: Recipe):
    assert not are_done(recipe.make(), tmp_path / "a")
    recipe.run(tmp_path / "a")
    assert are_done(recipe.make(), tmp_path / "a")
    assert not are_done(recipe.make(settings=2), tmp_path / "a")
    (tmp_path / "a/report.html").unlink()
    assert not are_done(recipe.make(), tmp_path / "a")


def test_a_run_is_no_folder_of_runs(tmp_path: Path):
    write_text(tmp_path / "runs/a/manifest.json", "{}")
    message = rf"got .*runs/a, which is a run; give {tmp_path}/runs\."
    with pytest.raises(RunError, match=message):
        Siblings(tmp_path / "runs/a")
    with pytest.raises(RunError, match="which is a file"):
        Siblings(tmp_path / "runs/a/manifest.json")
