"""What is reused, redone and continued; the state after every way a step can end."""

import json
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from groupwise.core import write_text
from groupwise.judges import ReplyCache
from groupwise.pipeline import Step, StepContext, StepProgress, run_steps

Work = Callable[[StepContext], None]


def write(text: str) -> Work:
    return lambda context: write_text(context.folder / "out.txt", text)


def make_steps(first: Work | None = None, *, settings: object = 1, digest: str = "a") -> list[Step]:
    """Return a → b → c, where c reads b only."""
    return [
        Step("a", first or write("a"), settings=settings, inputs={"file": digest}),
        Step("b", write("b"), uses=("a",)),
        Step("c", write("c"), uses=("b",)),
    ]


def list_states(steps: list[Step], run: Path, **options: str) -> dict[str, str]:
    return {done.name: done.state for done in run_steps(steps, run, **options)}


def test_unchanged_steps_are_reused(tmp_path: Path):
    assert list_states(make_steps(), tmp_path) == {"a": "run", "b": "run", "c": "run"}
    before = (tmp_path / "a" / "step.json").read_bytes()
    assert list_states(make_steps(), tmp_path) == {"a": "reused", "b": "reused", "c": "reused"}
    assert (tmp_path / "a" / "step.json").read_bytes() == before


def test_what_a_step_says_of_its_work_is_told(tmp_path: Path):
    def talk(context: StepContext) -> None:
        context.say(f"{context.name}: 3 of 8")
        write("a")(context)

    said: list[str] = []
    run_steps(make_steps(talk), tmp_path, say=said.append)
    assert said == ["a: 3 of 8"]


@pytest.mark.parametrize("changed", [{"settings": 2}, {"digest": "b"}])
def test_changed_settings_or_input_redo_the_step_only_if_output_is_the_same(
    tmp_path: Path, changed: dict[str, object]
):
    run_steps(make_steps(), tmp_path)
    states = list_states(make_steps(**changed), tmp_path)
    assert states == {"a": "run", "b": "reused", "c": "reused"}


def test_other_output_redoes_what_uses_it_and_nothing_further(tmp_path: Path):
    run_steps(make_steps(), tmp_path)
    states = list_states(make_steps(write("other"), settings=2), tmp_path)
    assert states == {"a": "run", "b": "run", "c": "reused"}
    assert (tmp_path / "a" / "out.txt").read_text() == "other"


@pytest.mark.parametrize("damage", ["changed", "removed", "added", "marker"])
def test_damaged_outputs_are_redone(tmp_path: Path, damage: str):
    run_steps(make_steps(), tmp_path)
    folder = tmp_path / "b"
    if damage == "changed":
        (folder / "out.txt").write_text("edited")
    elif damage == "removed":
        (folder / "out.txt").unlink()
    elif damage == "added":
        (folder / "more.txt").write_text("more")
    else:
        (folder / "step.json").write_text("{")
    assert list_states(make_steps(), tmp_path) == {"a": "reused", "b": "run", "c": "reused"}
    assert sorted(path.name for path in folder.iterdir()) == ["out.txt", "step.json"]


def test_new_version_redoes_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run_steps(make_steps(), tmp_path)
    monkeypatch.setattr("groupwise.pipeline.runner.__version__", "0.0.0")
    assert list_states(make_steps(), tmp_path) == {"a": "run", "b": "run", "c": "run"}


def test_checkpoints_are_not_outputs(tmp_path: Path):
    def train(context: StepContext) -> None:
        write_text(context.folder / "checkpoint-5" / "weights.txt", "w")
        write_text(context.folder / "model" / "weights.txt", "w")

    run_steps(make_steps(train), tmp_path)
    outputs = json.loads((tmp_path / "a" / "step.json").read_text())["outputs"]
    assert list(outputs) == ["a/model/weights.txt"]
    (tmp_path / "a" / "checkpoint-5" / "weights.txt").unlink()
    assert list_states(make_steps(train), tmp_path)["a"] == "reused"


def test_replies_whose_file_is_closed_after_the_step_redo_nothing(tmp_path: Path):
    opened: list[ReplyCache] = []

    def ask(context: StepContext) -> None:
        opened.append(ReplyCache(context.folder / "judge.sqlite"))
        opened[0].put("key", {"said": "yes"})
        write_text(context.folder / "verdict.txt", "yes")

    run_steps(make_steps(ask), tmp_path)
    before = (tmp_path / "a" / "judge.sqlite").read_bytes()
    opened[0].close()
    assert (tmp_path / "a" / "judge.sqlite").read_bytes() != before
    assert list_states(make_steps(ask), tmp_path)["a"] == "reused"


class TestInterrupted:
    @staticmethod
    def fail_after_one_row(context: StepContext) -> None:
        (context.folder / "rows.txt").write_text("1\n")
        raise OSError("stopped")

    @staticmethod
    def finish(context: StepContext) -> None:
        rows = context.folder / "rows.txt"
        found = rows.read_text() if rows.is_file() else "fresh\n"
        write_text(rows, found + f"{context.is_resumed}\n")

    def test_it_continues_with_its_files(self, tmp_path: Path):
        with pytest.raises(OSError, match="stopped"):
            run_steps(make_steps(self.fail_after_one_row), tmp_path)
        states = list_states(make_steps(self.finish), tmp_path)
        assert states == {"a": "resumed", "b": "run", "c": "run"}
        assert (tmp_path / "a" / "rows.txt").read_text() == "1\nTrue\n"
        assert json.loads((tmp_path / "a" / "step.json").read_text())["is_resumed"]
        assert not (tmp_path / "a" / "started.json").exists()

    def test_with_another_key_its_folder_is_emptied(self, tmp_path: Path):
        with pytest.raises(OSError, match="stopped"):
            run_steps(make_steps(self.fail_after_one_row), tmp_path)
        assert list_states(make_steps(self.finish, settings=2), tmp_path)["a"] == "run"
        assert (tmp_path / "a" / "rows.txt").read_text() == "fresh\nFalse\n"

    def test_a_redo_that_is_interrupted_never_counts_as_done(self, tmp_path: Path):
        run_steps(make_steps(), tmp_path)
        with pytest.raises(OSError, match="stopped"):
            run_steps(make_steps(self.fail_after_one_row, settings=2), tmp_path)
        assert list_states(make_steps(write("a")), tmp_path)["a"] == "run"

    def test_kill_between_the_two_markers_is_done(self, tmp_path: Path):
        run_steps(make_steps(), tmp_path)
        key = json.loads((tmp_path / "a" / "step.json").read_text())["key"]
        (tmp_path / "a" / "started.json").write_text(json.dumps({"key": key}))
        assert list_states(make_steps(), tmp_path)["a"] == "reused"


def _count_to_ten(context: StepContext) -> None:
    rows = context.folder / "rows.txt"
    num_done = len(rows.read_text().splitlines()) if rows.is_file() else 0
    for row in range(num_done, 10):
        if row == 4 and not context.is_resumed:
            os.kill(os.getpid(), signal.SIGKILL)
        with rows.open("a") as stream:
            stream.write(f"{row}\n")


def test_kill_9_in_the_middle_then_again_gives_the_uninterrupted_result(tmp_path: Path):
    steps = make_steps(_count_to_ten)
    child = multiprocessing.get_context("fork").Process(target=run_steps, args=(steps, tmp_path))
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    assert (tmp_path / "a" / "rows.txt").read_text() == "0\n1\n2\n3\n"
    assert list_states(steps, tmp_path) == {"a": "resumed", "b": "run", "c": "run"}
    assert (tmp_path / "a" / "rows.txt").read_text() == "".join(f"{row}\n" for row in range(10))
    assert list_states(steps, tmp_path)["a"] == "reused"


class TestFilesInTheRunFolder:
    @staticmethod
    def make(first: Work | None = None, settings: int = 1) -> list[Step]:
        def report(context: StepContext) -> None:
            write_text(context.run / "report.html", "report")

        last = Step("report", report, uses=("b",), files=("report.html",))
        return [*make_steps(first, settings=settings), last]

    def test_removed_file_is_written_again(self, tmp_path: Path):
        run_steps(self.make(), tmp_path)
        (tmp_path / "report.html").unlink()
        states = list_states(self.make(), tmp_path)
        assert states == {"a": "reused", "b": "reused", "c": "reused", "report": "run"}
        assert (tmp_path / "report.html").read_text() == "report"

    def test_no_old_report_stands_while_its_steps_are_redone(self, tmp_path: Path):
        run_steps(self.make(), tmp_path)
        with pytest.raises(OSError, match="stopped"):
            run_steps(self.make(TestInterrupted.fail_after_one_row, 2), tmp_path)
        assert not (tmp_path / "report.html").exists()


def test_steps_out_of_the_plan_are_removed_and_other_folders_stay(tmp_path: Path):
    run_steps(make_steps(), tmp_path)
    (tmp_path / "notes").mkdir()
    run_steps(make_steps()[:1], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "notes"]


def test_until_stops_early_and_removes_nothing(tmp_path: Path):
    run_steps(make_steps(), tmp_path)
    assert list_states(make_steps(), tmp_path, until="b") == {"a": "reused", "b": "reused"}
    assert (tmp_path / "c" / "out.txt").is_file()


def test_progress_is_told_at_the_start_and_end_of_work(tmp_path: Path):
    told: list[StepProgress] = []
    run_steps(make_steps(), tmp_path, report_progress=told.append)
    assert [(p.name, p.duration_s is None) for p in told] == [
        (name, begins) for name in "abc" for begins in (True, False)
    ]
    assert told[0].remaining == ("b", "c")
    told.clear()
    run_steps(make_steps(), tmp_path, report_progress=told.append)
    assert [(p.position, p.state, p.num_steps) for p in told] == [
        (position, "reused", 3) for position in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "steps",
    [
        [Step("a", write("a")), Step("a", write("a"))],
        [Step("a", write("a"), uses=("b",)), Step("b", write("b"))],
        [Step("../a", write("a"))],
        [Step("manifest.json", write("a"))],
    ],
)
def test_inconsistent_plans_are_bugs(tmp_path: Path, steps: list[Step]):
    with pytest.raises(ValueError, match="step"):
        run_steps(steps, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_reading_a_step_that_is_not_listed_is_a_bug(tmp_path: Path):
    def read(context: StepContext) -> None:
        context.output_of("a")

    steps = [Step("a", write("a")), Step("b", read)]
    with pytest.raises(ValueError, match="does not list it in uses"):
        run_steps(steps, tmp_path)
