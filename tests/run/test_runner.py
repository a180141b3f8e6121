"""What is reused, redone and continued; the state after every way a step can end."""

import gc
import json
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import pytest

from groupwise.core import Config, Harmless, Place, RunError, write_text
from groupwise.evaluation.predictions import METRIC_VERSIONS
from groupwise.judges import ReplyCache
from groupwise.run.stages import Planner, collect_settings, digest_code, view_config
from groupwise.run.steps import Siblings, Step, StepContext, StepProgress, are_done, run_steps

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
    monkeypatch.setattr("groupwise.run.steps.__version__", "0.0.0")
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
    opened.clear()
    gc.collect()  # which closes the file
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


class Training(Config):
    epochs: int = 2
    rates: tuple[float, ...] = (0.5,)
    batch_size: int = 8


class Job(Config):
    seed: int = 7
    training: Training = Training()


def plan_step(reads: str, facts: Mapping[str, Any] = MappingProxyType({})) -> Step:
    return Planner(Job(), facts).make_step("train", read_epochs_and_seed, reads=reads)


def read_epochs_and_seed(context: StepContext) -> None:
    assert (context.config.training.epochs, context.config.seed) == (2, 7)


def test_a_key_has_what_is_declared_settings_and_facts() -> None:
    reads = "seed training training.epochs metric_versions retry"
    assert plan_step(reads, {"retry": 3, "other": 4}).settings == {
        "seed": 7,
        "training": {"epochs": 2, "rates": [0.5], "batch_size": 8},
        "training.epochs": 2,
        "metric_versions": METRIC_VERSIONS,
        "retry": 3,
    }


def test_a_fact_stands_for_its_section_in_the_key_and_not_in_the_view() -> None:
    step = plan_step("training", {"training": "what counts"})
    assert step.settings == {"training": "what counts"}
    assert step.config.training == Training()


def test_a_work_that_reads_what_is_not_declared_stops_at_once(tmp_path: Path) -> None:
    assert run_steps([plan_step("seed training")], tmp_path)[0].state == "run"
    with pytest.raises(ValueError, match="step 'train' reads seed but does not list it in reads"):
        run_steps([plan_step("training")], tmp_path)


def test_inputs_and_code_belong_to_the_steps_that_read_them() -> None:
    inputs = {"training.rates": "a", "seed": "b", "other": "c"}
    plan = partial(Planner(Job(), inputs=inputs).make_step, run=read_epochs_and_seed)
    assert plan("whole", reads="training").inputs == {"training.rates": "a"}
    assert plan("part", reads="training.epochs").inputs == {}
    assert plan("both", reads="seed training.rates").inputs == {"training.rates": "a", "seed": "b"}
    code = plan("train", reads="", code="groupwise.rewards.labels").inputs
    assert code == digest_code("groupwise.rewards.labels")


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
    # Weights are linked, and what may grow is copied.
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


class Inner(Config):
    depth: int = 3
    width: int = 4

    @property
    def area(self) -> int:
        return self.depth * self.width

    def grow(self, factor: int) -> int:
        return self.depth * factor


class Outer(Config):
    seed: int = 7
    inner: Inner = Inner()
    absent: Inner | None = None

    @property
    def deep(self) -> int:
        return self.inner.depth


def view(*reads: str, config: Config | None = None):
    return view_config(config or Outer(), reads, step="train")


def test_what_is_declared_is_the_configs_own_also_for_methods_and_properties() -> None:
    config = Outer()
    assert view("seed", "inner", config=config).inner is config.inner
    assert view("seed").seed == 7
    assert view("inner.depth").inner.depth == view("inner.depth").deep == 3
    assert view("inner.depth").inner.grow(2) == 6
    assert view("inner.depth", "inner.width").inner.area == 12
    assert view("absent.depth").absent is view("absent").absent is None
    assert collect_settings(Outer(), ["absent.depth"]) == {"absent.depth": None}


@pytest.mark.parametrize(
    ("reads", "read", "path"),
    [
        (("inner",), lambda v: v.seed, "seed"),
        (("seed",), lambda v: v.inner, "inner"),
        (("inner.depth",), lambda v: v.inner.width, "inner.width"),
        (("inner.depth",), lambda v: v.inner.area, "inner.width"),
        (("inner.depth",), lambda v: v.inner.model_dump(), "inner.model_dump"),
        (("seed", "inner", "absent"), lambda v: v.model_copy(), "model_copy"),
        (("inner.width",), lambda v: v.deep, "inner.depth"),
    ],
)
def test_anything_else_raises_with_the_step_and_the_setting(reads, read, path) -> None:
    words = f"^step 'train' reads {path} but does not list it in reads$"
    with pytest.raises(ValueError, match=words):
        read(view(*reads))


def test_names_that_no_config_has_are_unknown_as_usual() -> None:
    assert not hasattr(view("seed"), "nothing")
    assert not hasattr(view("seed"), "__len__")
    assert callable(view("seed").__pretty__)  # rich looks for it on whatever is printed


@pytest.mark.parametrize("path", ["sed", "inner.dept", "seed.depth"])
def test_a_declaration_of_no_setting_is_a_bug_of_the_recipe(path: str) -> None:
    with pytest.raises(ValueError, match=f"declares to read {path}, which is no setting"):
        collect_settings(Outer(), [path])


class Server(Config):
    url: Annotated[str, Place("where", "何处")] = "http://one"
    model: str = "m"
    price: Annotated[float, Harmless("counted", "统计")] = 1.0


class Asking(Config):
    servers: dict[str, Server]
    server: Server | None = Server()


def test_where_a_server_is_reached_is_in_no_key_and_can_be_read() -> None:
    reads = ["servers", "server", "server.url"]
    held = {"model": "m", "price": 1.0}
    assert collect_settings(Asking(servers={"a": Server()}), reads) == {
        "servers": {"a": held},
        "server": held,
    }
    assert collect_settings(Asking(servers={}, server=None), reads)["server"] is None
    assert view("server", config=Asking(servers={})).server.url == "http://one"
