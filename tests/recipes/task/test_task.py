"""The task of a user's own: its file, its demo, and what becomes of it."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from asked_rows import ASKED, ask_many
from click.testing import CliRunner
from faulty_server import MODEL, Fault, say
from plan_keys import list_changed, list_done, read_keys
from recipe_plans import list_all_steps
from recipe_runs import POLICIES
from run_folders import VARIED, list_confounding, make_run
from tables import read_tables

from groupwise import core
from groupwise.cli.main import app
from groupwise.core import Completion, ConfigError, DataError, Message
from groupwise.data.examples import read_examples
from groupwise.evaluation.fairness import check_fairness, read_facts
from groupwise.evaluation.metrics import read_metrics
from groupwise.own_task.config import TaskConfig
from groupwise.own_task.recipe import recipe
from groupwise.own_task.task import TASK
from groupwise.rewards import ChoiceParser, FunctionReward, LabelParser, TextParser
from groupwise.rewards.audit.audit import audit_rewards
from groupwise.run.recipe import find_config, find_recipe_of
from groupwise.run.running import plan_steps, run_recipe
from groupwise.run.steps import StepContext
from groupwise.run.training import run_prepare
from groupwise.serving import Request

TABLES = read_tables(__file__)
KINDS = ["labels", "choice", "number", "text", "json", "code", "pictures"]
TINY = TABLES["tiny"]
LEARNED = {"grpo", "audit_rewards"}


@pytest.fixture
def make(tmp_path):
    """Return a writer of a new task of some kind."""

    def make(kind="labels"):
        done = CliRunner().invoke(app, ["new", str(tmp_path / "新任务"), "--kind", kind, "--tiny"])
        assert done.exit_code == 0, done.output
        return tmp_path / "新任务"

    return make


def load(folder, *overrides):
    return core.load_config(TaskConfig, folder / "task.yaml", overrides=overrides)


def read(folder, *overrides):
    return read_keys(plan_steps(recipe, load(folder, *overrides), folder / "run"))


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_task_of_every_kind_is_ready_to_run(make, kind):
    folder = make(kind)
    assert {"README.md", "rewards.py", "task.yaml"} < {path.name for path in folder.iterdir()}
    assert find_recipe_of(folder / "task.yaml").name == "task"
    preview = recipe.preview(load(folder))
    assert preview.list_problems(["prepare", "sft", "grpo"]) == []
    facts = dict(preview.facts)
    num_used, _, num_rows = facts["rows"].split()[:3]
    assert num_used == num_rows
    assert "brevity" in facts["reward weights"]
    assert "warning" not in facts


@pytest.mark.parametrize(
    "kind",
    [
        one if one in ("labels", "json") else pytest.param(one, marks=pytest.mark.slow)
        for one in KINDS
    ],
)
def test_the_rewards_of_a_new_task_pass_the_audit(make, tmp_path, kind):
    config = load(make(kind))
    TASK.prepare(config, tmp_path / "prepare")
    audit = audit_rewards(recipe.find_rewarded().make_case(config, tmp_path / "prepare"))
    assert [finding.name for finding in audit.errors] == []


def test_the_reference_of_a_row_is_its_target_where_it_has_one(tmp_path):
    rows = [{**row, "答案": f"{n}", "示范": f"想{n}#### {n}"} for n, row in enumerate(ask_many(60))]
    rows[0]["示范"] = None
    config = prepare(tmp_path, rows, answer={"kind": "maths"})
    case = TASK.make_case(config, tmp_path / "prepared")
    assert len(case.examples) > 20
    for example in case.examples:
        own = str(example.label)
        for label in (own, "77"):
            taught = f"想{own}#### {label}"
            wanted = taught if own != "0" else case.parser.write(label)
            assert case.write(example, label) == wanted


@pytest.mark.parametrize("kind", [*KINDS[:-1], "checker"])
def test_a_new_task_starts_with_a_real_model_unless_it_is_to_be_tiny(tmp_path, kind):
    for name, more in (("real", []), ("tiny", ["--tiny"])):
        done = CliRunner().invoke(app, ["new", str(tmp_path / name), "--kind", kind, *more])
        assert done.exit_code == 0, done.output
    real, tiny = (
        core.load_config(TaskConfig, tmp_path / n / "task.yaml") for n in ("real", "tiny")
    )
    assert (real.model.base, tiny.model.base) == ("smollm2-135m-instruct", "tiny-qwen2")
    assert (real.grpo.trainable.method, tiny.grpo.trainable.method) == ("lora", "full")
    assert (real.data.columns, real.answer) == (tiny.data.columns, tiny.answer)
    files = [sorted(path.name for path in (tmp_path / n).iterdir()) for n in ("real", "tiny")]
    assert files[0] == files[1]
    assert "tiny.yaml" not in files[0]


def test_a_new_task_needs_a_new_folder_and_a_known_kind(make, tmp_path):
    make()
    with pytest.raises(ConfigError, match="is there already"):
        CliRunner().invoke(app, ["new", str(tmp_path / "新任务")], catch_exceptions=False)
    with pytest.raises(
        ConfigError, match="there is no kind of task 'label'; did you mean 'labels'"
    ):
        CliRunner().invoke(
            app, ["new", str(tmp_path / "b"), "--kind", "label"], catch_exceptions=False
        )


def test_a_file_that_names_no_recipe_that_there_is_is_refused(make):
    path = make() / "task.yaml"
    path.write_text(path.read_text().replace("recipe: task", "recipe: taks"))
    with pytest.raises(ConfigError, match="there is no recipe 'taks'; did you mean 'task'"):
        find_recipe_of(path)


def test_a_changed_line_of_a_reward_redoes_what_it_pays_and_nothing_before(make):
    folder = make()
    before = read(folder)
    file = folder / "rewards.py"
    file.write_text(f"# a comment\n{file.read_text()}")
    assert list_changed(before, read(folder)) == set()
    file.write_text(file.read_text().replace("(36", "(37"))
    assert list_changed(before, read(folder)) == LEARNED


def test_a_changed_picture_or_another_label_redoes_what_reads_it(make):
    folder = make("pictures")
    before = read(folder)
    shutil.copy(folder / "pictures" / "000.jpg", folder / "pictures" / "001.jpg")
    assert list_changed(before, read(folder)) == {"prepare"}
    labels = [*load(folder).answer.labels, "other"]
    changed = list_changed(read(folder), read(folder, f"answer.labels=[{', '.join(labels)}]"))
    assert changed >= {"prepare", "baselines", "grpo", "evaluate"}


def prepare(folder, rows, **values):
    core.write_jsonl(folder / "评论.jsonl", rows)
    given = {
        "model": {"base": "tiny-qwen2", "max_pixels": 784},
        "data": {"files": str(folder / "评论.jsonl"), "columns": {**ASKED, "target": "示范"}},
        "answer": {"kind": "labels", "labels": ["好评", "差评"]},
        "sft": {},
        "grpo": {},
        **values,
    }
    config = core.load_config(TaskConfig, given)
    TASK.prepare(config, folder / "prepared")
    return config


def test_only_targets_that_give_the_answer_are_taught(tmp_path):
    rows = [{**row, "示范": row["答案"] if n > 4 else "好评"} for n, row in enumerate(ask_many(60))]
    rows[9]["示范"] = None
    config = prepare(tmp_path, rows)
    taught = TASK.warmup(config, tmp_path / "prepared")(0)
    train = read_examples(tmp_path / "prepared" / "train.jsonl")
    assert all(row.target == row.example.label for row in taught)
    found = {finding.name: finding for finding in TASK.find_in_data(config, tmp_path / "prepared")}
    wrong = [e for e in train if e.fields["示范"] not in (None, e.label)]
    assert len(taught) == sum(e.fields["示范"] == e.label for e in train)
    assert wrong
    assert found["targets_disagree"].count == len(wrong)
    assert found["targets_disagree"].where[0].startswith("评论.jsonl:")
    assert found["sources"].where[0].startswith("train: 评论.jsonl ")


def test_whole_answers_are_taught_where_no_column_has_targets(tmp_path):
    data = {"files": str(tmp_path / "评论.jsonl"), "columns": ASKED}
    config = prepare(tmp_path, ask_many(60), data=data)
    taught = TASK.warmup(config, tmp_path / "prepared")(0)
    train = read_examples(tmp_path / "prepared" / "train.jsonl")
    assert {row.example.id: row.target for row in taught} == {e.id: e.label for e in train}


def test_rows_over_the_budget_are_dropped_from_every_split_and_counted(tmp_path):
    rows = ask_many(60)
    column = str(ASKED["prompt"])
    rows = [{**r, column: f"{n} {r[column]}" * (9 if n % 5 else 400)} for n, r in enumerate(rows)]
    budget = {"max_prompt_tokens": 900, "drop_longer": True}
    data = {"files": str(tmp_path / "评论.jsonl"), "columns": ASKED, "budget": budget}
    config = prepare(tmp_path, rows, data=data)
    run = tmp_path / "run"
    context = StepContext(run, run / "prepare", "prepare", False, (), config=config)
    run_prepare(recipe.task(), context)
    kept = [
        e
        for s in ("train", "validation", "test")
        for e in read_examples(run / "prepare" / f"{s}.jsonl")
    ]
    drops = json.loads((run / "prepare" / "source.json").read_text())["drops"]
    assert max(len(e.prompt[-1].text) for e in kept) < 400
    assert (len(kept), drops["counts"]) == (48, {"longer than data.budget.max_prompt_tokens": 12})
    assert {row.example.id for row in TASK.warmup(config, run / "prepare")(0)} <= {
        e.id for e in kept
    }
    lengths = recipe.preview(config).tables[1].rows[0]
    assert int(lengths[2].replace(",", "")) <= 900
    assert "12 longer ones are dropped" in lengths[5]


def test_a_warmup_without_any_target_is_refused_also_by_the_dry_run(tmp_path):
    config = prepare(tmp_path, [{**row, "示范": None} for row in ask_many(20)])
    with pytest.raises(DataError, match="no row for training has a target"):
        TASK.warmup(config, tmp_path / "prepared")
    config = prepare(tmp_path, [{**row, "示范": "?"} for row in ask_many(60)])
    [problem] = recipe.preview(config).later["sft"]
    assert "no row for training has a target that gives its answer" in problem
    assert not recipe.preview(config.model_copy(update={"sft": None})).later.get("sft")


@pytest.fixture
def server(serve):
    """A judge that finds every answer right."""
    return serve(lambda _: Fault(say("True")))


def test_the_whole_way_of_a_task_of_ones_own(make, server):
    folder = make()
    out = folder / "run"
    (folder / "messages.csv").rename(folder / "messages_test.csv")
    judge = f"{{kind: generative, server: {{url: '{server.url}', model: {MODEL}}}}}"
    given = (
        "data.files=messages_test.csv",
        f"rewards.clear={{kind: judge, weight: 0.5, judge: {judge}}}",
    )
    run_recipe(recipe, load(folder, *TINY, *given), out=out)
    assert list_done(out) == list_all_steps("task", folder / "planned")
    accuracies = {
        metric.policy: metric
        for metric in read_metrics(out / "evaluate" / "metrics.json")
        if metric.measure == "accuracy"
    }
    assert set(accuracies) == POLICIES - {"picture_only"} | {"prompt_lenient"}
    assert {metric.n for metric in accuracies.values()} == {6}
    rows = core.read_jsonl(out / "grpo" / "metrics.jsonl")
    assert {"reward/correct", "reward/format", "reward/brevity", "reward/clear"} <= set(rows[0])
    assert json.loads((out / "grpo" / "judge.json").read_text())["num_questions"] > 0
    assert len(server.asked) > 0
    audit = json.loads((out / "audit_rewards" / "audit.json").read_text())
    assert audit
    report = (out / "report.md").read_text()
    assert "8 of 8 rows for training come from a published test part" in report.split("\n## ")[0]


def test_the_recipe_alone_says_that_it_needs_a_config():
    with pytest.raises(ConfigError, match=r"task has no config of its own; .*groupwise new DIR"):
        find_config(recipe)


def test_labelled_rows_of_another_file_are_read_as_the_run_reads_its_own(make, tmp_path):
    config = load(make())
    known = config.data.columns
    context = StepContext(tmp_path, tmp_path, "evaluate", False, ())
    other = tmp_path / "other.csv"
    other.write_text(
        "message,team\nMy parcel is late., delivery \nMy parcel is late.,delivery\nHello?,nobody\n"
        "I was charged twice.,billing\n",
        encoding="utf-8",
    )
    assert known.target is not None
    rows, drops = recipe.task().read_labelled(config, context, other, tmp_path / "pictures")
    assert [one.label for one in rows] == ["delivery", "billing"]
    assert drops.counts == {"answer that cannot be given": 1, "repeats another row": 1}
    asked = recipe.task().make_question(
        config, Request("1", {"message": "My parcel is late."}), tmp_path
    )
    assert rows[0].prompt == asked.prompt
    other.write_text("message\nHello?\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"columns\.answer needs the column 'team'"):
        recipe.task().read_labelled(config, context, other, tmp_path / "pictures")


GIVEN = {
    "model": {"base": "tiny-qwen2", "max_pixels": 784},
    "data": {"files": "rows.csv", "columns": {"prompt": "问题", "answer": "答案"}},
    "answer": {"kind": "labels", "labels": ["好评", "差评"]},
    "grpo": {},
}
BARE = {"files": "a.csv", "columns": {"prompt": "q"}}


def load_given(**values):
    return core.load_config(TaskConfig, {**GIVEN, **values})


def test_the_answer_has_the_parser_of_its_kind_and_rewards_are_names_weights_or_more():
    assert isinstance(load_given().answer, LabelParser)
    assert isinstance(load_given(answer={"kind": "choice", "num_options": 3}).answer, ChoiceParser)
    assert load_given().rewards["correct"].weight == 1
    assert list(load_given(rewards=["correct", "format"]).rewards) == ["correct", "format"]
    shaped = {"correct": 2, "rewards.py:f": {"weight": 0.5, "kind": "shaping"}}
    parts = load_given(rewards=shaped).rewards
    assert (parts["correct"].weight, parts["rewards.py:f"].kind) == (2, "shaping")


def test_files_are_found_beside_the_configuration(tmp_path):
    (tmp_path / "task.yaml").write_text(
        "recipe: task\nmodel: {base: tiny-qwen2, max_pixels: 784}\ngrpo: {}\n"
        "data: {files: rows.csv, columns: {prompt: 问题, answer: 答案}}\n"
        "answer: {kind: text}\nrewards: {奖励.py:f: 1}\n",
        encoding="utf-8",
    )
    config = core.load_config(TaskConfig, tmp_path / "task.yaml")
    assert config.data.files == {"train": (str(tmp_path / "rows.csv"),)}
    assert list(config.rewards) == [f"{tmp_path / '奖励.py'}:f"]
    assert core.load_config(TaskConfig, core.dump_config(config)) == config


MINIMAL = {**{name: GIVEN[name] for name in ("data", "answer")}, "model": {"base": "tiny-qwen2"}}


def test_what_suits_a_pretrained_base_is_chosen_where_nothing_is_said():
    config = core.load_config(TaskConfig, MINIMAL)
    assert config.sft is not None
    assert (config.sft.learning_rate, config.grpo.learning_rate) == (2e-4, 1e-4)
    assert config.grpo.max_new_tokens == 24
    assert core.load_config(TaskConfig, core.dump_config(config)) == config


def test_all_weights_take_shorter_steps_than_an_adapter_and_what_is_said_stands():
    full = {"trainable": {"method": "full"}}
    config = load_given(sft=full, grpo=full)
    assert config.sft is not None
    assert (config.sft.learning_rate, config.grpo.learning_rate) == (1e-5, 1e-6)
    assert load_given(grpo={**full, "learning_rate": 3e-4}).grpo.learning_rate == 3e-4
    config = load_given(sft=None, grpo={"max_new_tokens": 5})
    assert (config.sft, config.grpo.max_new_tokens) == (None, 5)
    with pytest.raises(ConfigError, match=r"^1 problem\(s\)"):
        load_given(grpo={"trainable": {"method": "lorra"}})


@pytest.mark.parametrize("answer", [{"kind": "maths"}, {"kind": "number", "tags": ["think", "n"]}])
def test_an_answer_behind_a_way_to_it_gets_room_and_is_not_taught_alone(answer):
    config = load_given(answer=answer)
    assert config.sft is None
    assert config.grpo.max_new_tokens == 256


def test_an_answer_is_a_text_where_there_is_no_reference():
    given = {name: value for name, value in GIVEN.items() if name != "answer"}
    bare = core.load_config(TaskConfig, {**given, "data": BARE, "rewards": ["a.py:f"]})
    assert isinstance(bare.answer, TextParser)
    assert core.load_config(TaskConfig, core.dump_config(bare)) == bare
    with pytest.raises(ConfigError, match=r"answer is needed: it says how data\.columns\.answer"):
        core.load_config(TaskConfig, given)


FOLDER = Path(__file__).parents[3] / "examples" / "demo"
RIVER = core.make_example(
    [Message("user", "a river")],
    cluster="a river",
    fields={"topic": "a river", "first": "never", "second": "together"},
)


def test_topics_and_words_of_each_split_occur_in_no_other():
    config = core.load_config(TaskConfig, FOLDER / "task.yaml")
    assert config.measures["good"].all_of == ("passes", "fluent")
    rows = core.read_jsonl(FOLDER / "prompts.jsonl")
    topics = [(row["split"], row["topic"]) for row in rows]
    words = [(row["split"], row[name]) for row in rows for name in ("first", "second")]
    for pairs in (topics, words):
        assert len({value for _, value in pairs}) == len(set(pairs))
    assert len({(row["topic"], row["first"], row["second"]) for row in rows}) == len(rows)
    assert sum(row["split"] == "test" for row in rows) >= 200


@pytest.mark.parametrize(("text", "share"), TABLES["an_answer_earns_the_share_of_the_checks"])
def test_an_answer_earns_the_share_of_the_checks_that_it_passes(text, share):
    def rate(name):
        file = FOLDER / "rewards.py"
        reward = FunctionReward(f"{file}:{name}", kind="other", messages=False, values=(0.0, 1.0))
        return reward(RIVER, Completion(text)).value

    assert rate("checks") == pytest.approx(share)
    assert rate("passes") == float(share == 1.0)


@pytest.mark.parametrize("kind", ["labels", "checker", "pictures"])
def test_the_same_task_elsewhere_is_the_same(tmp_path, kind):
    new = ["new", str(tmp_path / "one" / "task"), "--kind", kind, "--tiny"]
    assert CliRunner().invoke(app, new).exit_code == 0
    shutil.copytree(tmp_path / "one", tmp_path / "two" / "moved")
    folders = [tmp_path / "one" / "task", tmp_path / "two" / "moved" / "task"]
    plans, runs = [], []
    for folder, answers in zip(folders, ("one", "two"), strict=True):
        config = core.load_config(TaskConfig, folder / "task.yaml")
        steps = plan_steps(recipe, config, tmp_path / "run")
        plans.append(read_keys(steps))
        values = {
            "manifest.json:config": core.dump_config(config),
            "manifest.json:effects": {
                k: asdict(v) for k, v in core.list_effects(TaskConfig).items()
            },
            "manifest.json:inputs": {k: v for step in steps for k, v in step.inputs.items()},
        }
        varied = {k: v for k, v in VARIED.items() if answers == "two" and "beta" not in k}
        runs.append(make_run(tmp_path / "runs" / answers, {**varied, **values}, answers=answers))
    # What is written names pictures where they lie, so that has to be written again.
    has_pictures = kind == "pictures"
    assert bool(list_changed(*plans)) == has_pictures
    verdict = check_fairness([read_facts(run) for run in runs])
    assert {one.name for one in list_confounding(verdict)} == {"budget/grpo.num_tokens"}
