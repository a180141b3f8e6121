import json
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.core import (
    Completion,
    Config,
    ConfigError,
    DataError,
    GroupwiseError,
    Message,
    ModelError,
    RunError,
    RunFolder,
    make_example,
)
from groupwise.evaluation.predictions import RunPolicy, write_policies
from groupwise.run import predict as predicting
from groupwise.run.predict import (
    Served,
    find_source,
    name_version,
    open_run,
    predict_rows,
    read_served,
    write_served,
)
from groupwise.run.recipe import Preview, Recipe
from groupwise.run.running import sample_base
from groupwise.run.task import Task
from groupwise.serving import Answer


class Settings(Config):
    seed: int = 0
    answer: str = "通过"


class Doors(Task[Settings]):
    """Rows with a door; the answer is what the config says."""

    def picture_columns(self, config):
        return ("photo",)

    def make_question(self, config, request, folder):
        if not request.row.get("door"):
            raise DataError("there is no door")
        fields = {"num_pictures": len(request.pictures)}
        prompt = [Message("user", request.row["door"])]
        return make_example(prompt, cluster=request.id, fields=fields)

    def find_base(self, config, run):
        return "the base"

    def open_predictor(self, config, policy, run):
        opened.append(StandIn(self, config, policy))
        return opened[-1]


class StandIn:
    labels = ("通过", "不通过")

    def __init__(self, task, config, policy):
        self.task, self.config, self.policy = task, config, policy
        self.asked = []

    def describe(self):
        return {"answer": self.config.answer}

    def make_question(self, request, folder):
        return self.task.make_question(self.config, request, folder)

    def answer(self, questions):
        if any(question.prompt[0].text == "long" for question in questions):
            raise ModelError("the prompt is too long")
        self.asked += [question.cluster for question in questions]
        return [self.judge(question) for question in questions]

    def judge(self, question):
        text = question.prompt[0].text
        if text == "mumble":
            return Answer("hm", None, "no label", needs_person=True)
        is_sure = "unsure" not in text
        details = {"num_pictures": question.fields["num_pictures"]}
        return Answer(self.config.answer, self.config.answer, "理由", 0.9, not is_sure, details)


opened: list[StandIn] = []
task = Doors()


@pytest.fixture
def run(tmp_path, monkeypatch):
    recipe = Recipe(
        name="doors",
        summary="",
        config_type=Settings,
        config_folder=tmp_path,
        plan=lambda config, run: [],
        preview=lambda config: Preview(),
        task=lambda: task,
    )
    opened.clear()
    monkeypatch.setattr(predicting, "find_recipe", lambda name, run: recipe)
    return write_run(tmp_path / "run")


def write_run(folder, **config):
    for step in ("grpo", "sft"):
        (folder / step / "policy").mkdir(parents=True, exist_ok=True)
        (folder / step / "step.json").write_text("{}")
    (folder / "half" / "policy").mkdir(parents=True, exist_ok=True)
    known = [RunPolicy(name=n, title=n, title_zh=n, kind="trained") for n in ("sft", "grpo")]
    write_policies(folder, known)
    RunFolder(folder).write_manifest(
        recipe="doors", config={"seed": 0, **config}, inputs={}, seed=0
    )
    return folder


ROWS = [{"door": "一"}, {"door": "unsure"}, {"door": "mumble"}, {"door": "long"}, {"doof": "x"}]


@pytest.fixture
def rows(tmp_path):
    return write_rows(tmp_path / "rows.jsonl", ROWS)


def write_rows(path, rows):
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("\n".join([*lines, "no json", ""]), encoding="utf-8")
    return path


def read_rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def predict(run, rows, out, **named):
    return predict_rows(open_run(run), rows, out=out, **named)


def test_every_row_gets_an_answer_or_a_reason_and_totals_add_up(run, rows, tmp_path):
    seen = []
    out = tmp_path / "out" / "answers.jsonl"
    summary = predict(
        run, rows, out, batch_size=4, report_progress=lambda *numbers: seen.append(numbers)
    )
    found = {row["id"].partition(":")[2]: row for row in read_rows(out)}
    assert set(found) == {"1", "2", "3", "4", "5"}
    assert found["1"] | {"model": "", "input": ""} == {
        "id": "rows.jsonl:1",
        "row": {"door": "一"},
        "input": "",
        "text": "通过",
        "answer": "通过",
        "reason": "理由",
        "confidence": 0.9,
        "needs_person": False,
        "details": {"num_pictures": 0},
        "failed": None,
        "model": "",
    }
    assert (found["3"]["text"], found["3"]["answer"], found["3"]["failed"]) == ("hm", None, None)
    assert found["4"]["failed"] == "the prompt is too long."
    assert found["5"]["failed"] == "there is no door."
    assert [found[str(number)]["row"] for number in range(1, 6)] == ROWS
    assert summary.answers == {"通过": 2}
    assert summary.failures == {"no label": 1, "the prompt is too long.": 1, "there is no door.": 1}
    assert sum(summary.answers.values()) + sum(summary.failures.values()) == summary.num_rows == 5
    assert summary.num_again == 2
    assert summary.for_people == tuple(f"rows.jsonl:{number}" for number in (2, 3, 4, 5))
    assert summary.drops.counts == {"line cannot be read": 1}
    assert seen == [(0, 5), (4, 5), (5, 5)]


def test_only_what_could_not_be_asked_is_asked_again(run, rows, tmp_path):
    out = tmp_path / "answers.jsonl"
    predict(run, rows, out)
    before = read_rows(out)
    with out.open("a") as stream:
        stream.write('{"id": "torn')
    write_rows(rows, [*ROWS[:3], {"door": "short"}, *ROWS[4:], {"door": "new"}])
    summary = predict(run, rows, out)
    assert opened[-1].asked == ["rows.jsonl:4", "rows.jsonl:6"]
    assert (summary.num_rows, summary.num_kept, summary.num_again) == (6, 3, 1)
    after = {row["id"]: row for row in read_rows(out)}
    assert len(read_rows(out)) == len(after) == 6
    assert [after[row["id"]] == row for row in before] == [True, True, True, False, True]


def test_answers_to_other_contents_are_not_kept(run, rows, tmp_path):
    out = tmp_path / "answers.jsonl"
    photo = tmp_path / "a.jpg"
    photo.write_bytes(b"one")
    write_rows(rows, [{"door": "a", "photo": "a.jpg"}])
    predict(run, rows, out)
    assert read_rows(out)[0]["details"] == {"num_pictures": 1}
    before = out.read_bytes()
    photo.write_bytes(b"two")
    with pytest.raises(RunError, match=r"an answer to other contents of rows\.jsonl:1"):
        predict(run, rows, out)
    assert out.read_bytes() == before


def test_answers_of_two_models_are_not_mixed(run, rows, tmp_path):
    out = tmp_path / "answers.jsonl"
    predict(run, rows, out)
    before = out.read_bytes()
    write_run(run, answer="不通过")
    with pytest.raises(RunError, match="answers of another model"):
        predict(run, rows, out)
    assert out.read_bytes() == before


def test_a_policy_may_be_named(run, rows, tmp_path):
    predict(run, rows, tmp_path / "1.jsonl")
    predict(run, rows, tmp_path / "2.jsonl", policy="sft")
    predict(run, rows, tmp_path / "3.jsonl", policy="prompt")
    policies = [one.policy for one in opened]
    assert policies == [run / "grpo" / "policy", run / "sft" / "policy", "the base"]
    with pytest.raises(RunError, match=r"no policy of .* 'half' .*grpo, sft, prompt"):
        predict(run, rows, tmp_path / "4.jsonl", policy="half")
    (run / "grpo" / "step.json").unlink()
    with pytest.raises(RunError, match="has no main policy yet"):
        predict(run, rows, tmp_path / "4.jsonl")


def test_what_cannot_be_predicted_is_said(run, rows, tmp_path, monkeypatch):
    out = tmp_path / "o.jsonl"
    with pytest.raises(ConfigError, match="there is no file or folder"):
        predict(run, tmp_path / "nowhere", out)
    with pytest.raises(RunError, match="holds no run"):
        predict(tmp_path, rows, out)
    with pytest.raises(DataError, match="is no table"):
        predict(run, write_rows(tmp_path / "rows.xls", ROWS), out)
    other = Recipe("other", "", Settings, tmp_path, lambda c, r: [], lambda c: Preview())
    monkeypatch.setattr(predicting, "find_recipe", lambda name, run: other)
    with pytest.raises(ConfigError, match="the recipe other answers no new rows"):
        predict(run, rows, out)
    assert not out.exists()


def test_a_bug_is_no_reason(run, rows, tmp_path, monkeypatch):
    monkeypatch.setattr(StandIn, "judge", lambda self, question: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        predict(run, rows, tmp_path / "o.jsonl")


def test_the_command_says_what_became_of_the_rows(run, rows, tmp_path, command_line):
    out = tmp_path / "answers.jsonl"
    write_rows(rows, [{"door": "mumble"}, {"doof": 1}])
    done = command_line("predict", run, rows, "--out", out)
    assert done.returncode == 1
    assert "2 rows: no answer at all" in done.stdout
    assert "no answer: 1 no label" in done.stderr
    assert "1 not asked: the same command tries them again" in done.stderr
    assert "not used: 1 line cannot be read" in done.stderr
    write_rows(rows, [{"door": "mumble"}, {"door": "x"}])
    done = command_line.succeed("predict", f"{run}:sft", rows, "--out", out)
    assert "2 rows (1 from before): 通过 1" in done.stdout
    assert opened[-1].policy == Path(run, "sft", "policy")


NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
in_any_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_any_folder
@given(parts=st.lists(NAMES, min_size=1, max_size=4), policy=NAMES, version=NAMES, inside=...)
def test_what_was_written_is_read_again(tmp_path, parts, policy, version, inside: bool):
    folder = tmp_path / "loop"
    served = Served((folder if inside else tmp_path / "runs").joinpath(*parts), policy, version)
    write_served(folder, served)
    assert read_served(folder) == served


def test_a_run_inside_the_folder_moves_with_it_and_one_outside_stays(tmp_path):
    for name, run in (("a", tmp_path / "a" / "rounds" / "1"), ("b", tmp_path / "ab" / "1")):
        write_served(tmp_path / name, Served(run, "grpo", "v1"))
    (tmp_path / "a").rename(tmp_path / "c")
    assert read_served(tmp_path / "c").run == tmp_path / "c" / "rounds" / "1"
    assert read_served(tmp_path / "b").run == tmp_path / "ab" / "1"
    assert json.loads((tmp_path / "c" / "served.json").read_text())["run"] == "rounds/1"


def test_paths_may_be_relative_to_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_served(Path("loop"), Served(Path("loop/run"), "grpo", "v1"))
    assert read_served(Path("loop")) == read_served(tmp_path / "loop")
    write_served(Path("loop"), Served(Path("other/run"), "grpo", "v1"))
    assert read_served(Path("loop")).run == tmp_path / "other" / "run"
    with pytest.raises(RunError, match="leads upwards"):
        write_served(Path("loop"), Served(Path("loop/../run"), "grpo", "v1"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
GOOD = {"run": "run", "policy": "grpo", "version": "v1"}
ODD = ({"more": "x"}, {"policy": ""}, {"version": 1})


@in_any_folder
@given(
    content=JSON.map(json.dumps)
    | st.text()
    | st.fixed_dictionaries(
        {"run": JSON, "policy": JSON}, optional={"version": JSON, "more": JSON}
    ).map(json.dumps)
)
def test_whatever_the_file_holds_is_a_served_run_or_one_sentence(tmp_path, content):
    (tmp_path / "served.json").write_text(content, "utf-8", "surrogatepass", newline="")
    said = ""
    try:
        assert read_served(tmp_path).policy
    except DataError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *((json.dumps(GOOD | one), "does not say what is served") for one in ODD),
        (json.dumps(GOOD | {"run": "../run"}), "outside its folder"),
        (json.dumps(GOOD | {"run": "run\0"}), "outside its folder"),
        ('{"run": "ru', "is not JSON"),
        (None, "cannot read"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, text, words):
    if text is not None:
        (tmp_path / "served.json").write_text(text)
    with pytest.raises(DataError, match=words):
        read_served(tmp_path)


def test_only_the_version_that_is_named_is_opened(tmp_path, finished):
    version = name_version(open_run(finished).open_predictor("grpo"))
    write_served(tmp_path, Served(finished, "grpo", version))
    source = find_source(tmp_path, None)
    assert source.open().version == version == name_version(source.open().predictor)
    write_served(tmp_path, Served(finished, "sft", version))
    with pytest.raises(RunError, match="does not have the version"):
        source.open()
    write_served(tmp_path, Served(finished, "nowhere", version))
    with pytest.raises(GroupwiseError, match="nowhere"):
        source.open()


EXAMPLES = [make_example([Message("user", f"Say {n}")], cluster=str(n)) for n in range(9)]


def make_config(*, is_tiny=False):
    return SimpleNamespace(
        seed=0,
        model=SimpleNamespace(is_tiny=is_tiny, base="some/base"),
        grpo=SimpleNamespace(temperature=0.8, max_new_tokens=5),
        evaluation=SimpleNamespace(batch_size=4),
    )


class BaseTask:
    def find_base(self, config, run):
        return run / "base" if config.model.is_tiny else config.model.base


class Engine:
    """Says its prompt again, and counts how it was asked."""

    asked: ClassVar[list] = []

    def __init__(self, policy, *, batch_size):
        self.policy = policy

    def generate(self, examples, *, sampling, num_completions):
        self.asked.append((self.policy, len(examples), num_completions, sampling.temperature))
        return [[Completion(e.prompt[0].text)] * num_completions for e in examples]


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr("groupwise.inference.local.LocalModel", Engine)
    monkeypatch.setattr("groupwise.run.asking.open_policy", lambda config, base: base)
    monkeypatch.setattr(Engine, "asked", [])
    return Engine


@pytest.mark.parametrize(
    ("number", "prompts", "each"), [(8, 2, 4), (9, 3, 4), (2, 1, 2), (99, 9, 4)]
)
def test_a_small_batch_comes_first_and_says_how_long_it_takes(
    tmp_path, engine, number, prompts, each
):
    said: list[str] = []
    found = sample_base(BaseTask(), make_config(), tmp_path, EXAMPLES, number, said.append)
    assert engine.asked == [("some/base", 1, each, 0.8), ("some/base", prompts - 1, each, 0.8)]
    assert [len(texts) for texts in found.values()] == [each] * prompts
    texts = {example.id: example.prompt[0].text for example in EXAMPLES}
    assert all(texts[name] == answers[0] for name, answers in found.items())
    assert (
        f"{prompts * each} answers of the base are sampled, {each} to a prompt: at most" in said[0]
    )


def test_a_base_that_the_run_builds_is_asked_when_it_is_there(tmp_path, engine):
    config = make_config(is_tiny=True)
    with pytest.raises(ConfigError, match="built by the run"):
        sample_base(BaseTask(), config, tmp_path, EXAMPLES, 4, print)
    (tmp_path / "base").mkdir()
    assert sample_base(BaseTask(), config, tmp_path, EXAMPLES, 4, print)
