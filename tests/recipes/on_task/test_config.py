"""Configs of on_task: what they refuse and foretell, what each step reads, and the warm-up."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from plan_keys import (
    list_changed,
    plan,
    read_config,
    read_keys,
    run_stand_ins,
    write_base,
)
from tables import read_tables

from groupwise.core import (
    Completion,
    ConfigError,
    DataError,
    Message,
    make_example,
    read_jsonl,
    write_jsonl,
)
from groupwise.run.asking import draw_items
from groupwise_drawn.desktops.sets import write_desktops
from groupwise_recipes.on_task.config import LABELS
from groupwise_recipes.on_task.prompt import make_warmup_rows
from groupwise_recipes.on_task.recipe import recipe
from groupwise_recipes.on_task.rewards import make_rewards
from groupwise_recipes.on_task.screenshots import load_screenshots

TABLES = read_tables(__file__)


def load(name, *overrides):
    return read_config("on_task", name, *overrides)


@pytest.mark.parametrize("name", ["demo", "qwen2.5-vl-3b", "qwen2.5-vl-3b-judge"])
def test_shipped_configs_can_start(name):
    preview = recipe.preview(load(name))
    assert preview.problems == []
    assert {"sft steps", "grpo steps"} <= {fact for fact, _ in preview.facts}


def test_settings_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"data\.warmup_share must be 0 where sft is null"):
        load("demo", "sft=null")
    joined = (f"data.root={tmp_path}", "data.drawn.join_real=true")
    with pytest.raises(ConfigError, match=r"join_real is for the warm-up"):
        load("demo", "sft=null", "data.warmup_share=0", *joined)
    with pytest.raises(ConfigError, match="both"):
        load("screenagent-tiny", "data.test_folds=[2, 3]")


def test_real_config_estimates_tokens_and_memory():
    preview = recipe.preview(load("qwen2.5-vl-3b"))
    (prompt, _) = preview.tables[1].rows
    assert prompt[2].startswith("1,2")
    assert "weights alone take" in dict(preview.facts)["memory"]


def test_the_config_with_a_judge_has_what_the_system_is_specified_with():
    """Batches of 32 and 64, 10 epochs, a save each 100 steps, a look each 50; longer prompts."""
    config = load("qwen2.5-vl-3b-judge")
    grpo, weights = config.grpo, config.rewards
    assert grpo.prompts_per_step * grpo.gradient_accumulation == 32
    assert config.evaluation.batch_size == 64
    assert (grpo.epochs, grpo.group_size, grpo.max_new_tokens) == (10, 5, 16)
    assert (grpo.save_every_steps, grpo.heldout_every_steps) == (100, 50)
    assert grpo.entropy_bonus == 0.01
    assert (weights.classification, weights.judge, weights.visual_verifier) == (0.3, 0.5, 0.2)
    assert config.judge is not None
    assert config.judge.server is not None
    assert "72B" in config.judge.server.model
    assert config.data.budget.max_prompt_tokens == 2048


@pytest.mark.parametrize(
    ("name", "override", "words", "is_alone"),
    TABLES["problems"].values(),
    ids=TABLES["problems"],
)
def test_what_cannot_be_trained_on_is_a_problem(name, override, words, is_alone):
    problems = recipe.preview(load(name, override)).problems
    assert any(words in one for one in problems)
    assert len(problems) == 1 or not is_alone


@pytest.mark.parametrize(("override", "words"), TABLES["bad_settings_say_what_is_wrong"])
def test_bad_settings_say_what_is_wrong(override, words):
    with pytest.raises(ConfigError, match=re.escape(words)):
        load("demo", override)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """40 screens in folds 0 to 3, and 20 rows that cannot be used."""
    folder = tmp_path_factory.mktemp("screens")
    size = {"screens_per_session": 1, "size": (160, 120)}
    index = write_desktops(folder, num_sessions=40, seed=1, activities=("coding", "video"), **size)
    rows = [row | {"fold": number % 4} for number, row in enumerate(read_jsonl(index))]
    broken = [{**rows[0], "image": f"{number}.jpg"} for number in range(20)]
    write_jsonl(index, rows + broken)
    return folder


FOLDS = ("data.train_folds=[0, 1]", "data.test_folds=[2]")


def preview_real(root, *overrides, config="screenagent-tiny"):
    given = (f"data.root={root}", *FOLDS, "data.validation_share=0.2", *overrides)
    return recipe.preview(load(config, *given))


def test_a_dry_run_counts_what_is_used_and_shows_screens_as_the_model_sees_them(root):
    found = preview_real(root)
    assert found.problems == []
    assert dict(found.facts)["rows"] == (
        "30 of 60 used; 20 x missing picture; 10 x in a fold that no split names"
    )
    first = found.shown[0]
    assert first.prompt.startswith(
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Task"
    )
    assert first.prompt.endswith("<|im_start|>assistant\n")
    assert first.answer.rpartition(" ")[2] in LABELS
    assert len(first.pictures) == 1


@pytest.mark.parametrize(("override", "words"), TABLES["what_stops_the_loading_is_a_problem"])
def test_what_stops_the_loading_is_a_problem_of_the_dry_run(root, override, words):
    (problem,) = preview_real(root, override).problems
    assert words in problem


def test_more_test_items_than_there_are_stop_the_baselines(root):
    (problem,) = preview_real(root, "evaluation.num_items=21").later["baselines"]
    assert "21 of 20 items" in problem


def test_drawn_screens_join_real_ones_only_if_asked_for_and_the_only_source_is_told(root):
    asked, unasked = (
        preview_real(root, f"data.drawn.join_real={on}").tables[0].rows for on in ("true", "false")
    )
    assert ("warmup", "captured", "16", "3.7%") in asked
    assert ("warmup", "drawn", "420", "96.3%") in asked
    assert ("warmup", "captured", "16", "100.0%") in unasked
    assert {source for _, source, _, _ in unasked} == {"captured"}
    alone = recipe.preview(load("demo")).tables[0].rows
    assert list(alone) == [("all", "drawn", "6,800", "100.0%")]


def test_a_dry_run_with_words_reads_no_screen_and_counts_as_many_others(root, monkeypatch):
    monkeypatch.setattr("groupwise_recipes.on_task.ocr.TextReader.read", lambda *_, **__: 1 / 0)
    found = preview_real(root, config="screenagent-words")
    assert found.problems == []
    assert "up to 80 characters; a dry run reads none" in dict(found.facts)["words on screens"]


LOADING = {"baselines", "sft", "grpo", "sft_control", "evaluate"}
"""The steps that load weights."""


def read(run, *overrides, config="demo"):
    return read_keys(plan("on_task", run, config, *overrides))


def test_another_commit_of_a_hub_id_is_another_base(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    reference = tmp_path / "models--some--model" / "refs" / "main"
    reference.parent.mkdir(parents=True)
    reference.write_text("a" * 40)
    before = read(tmp_path, "model.base=some/model")
    reference.write_text("b" * 40)
    assert list_changed(before, read(tmp_path, "model.base=some/model")) >= LOADING


def test_a_run_with_other_weights_takes_nothing_over_that_loaded_them(tmp_path):
    runs, base = tmp_path / "runs", write_base(tmp_path / "base")

    def run(name):
        steps = plan("on_task", runs / name, "demo", f"model.base={base}")
        states = run_stand_ins(steps, runs / name, siblings=runs)
        return {states[name] for name in LOADING}

    run("a")
    assert run("b") == {"shared"}
    (base / "model.safetensors").write_bytes(bytes(999) + b"1")
    assert run("c") == {"run"}


@pytest.fixture
def screens(tmp_path):
    """Three screenshots: in the folder, in a folder that is linked, and elsewhere."""
    root, elsewhere = tmp_path / "screens", tmp_path / "elsewhere"
    for folder in (root, elsewhere / "linked"):
        folder.mkdir(parents=True)
    places = {
        "own.png": root / "own.png",
        "linked/far.png": elsewhere / "linked" / "far.png",
        "../elsewhere/out.png": elsewhere / "out.png",
    }
    for path in places.values():
        Image.new("RGB", (8, 8)).save(path)
    (root / "linked").symlink_to(elsewhere / "linked")
    rows = "".join(f"{name},write,s{number}\n" for number, name in enumerate([*places, "gone.png"]))
    (root / "index.csv").write_text(f"image,task,session\n{rows}")
    return root


@pytest.mark.parametrize("name", ["own.png", "linked/far.png", "../elsewhere/out.png", "gone.png"])
def test_a_screenshot_changed_in_place_is_noticed_wherever_it_is_and_no_other_file(
    tmp_path, screens, name
):
    def look():
        return read(tmp_path, f"data.root={screens}", config="screenagent-tiny")

    before = look()
    (screens / "notes.txt").write_text("Nobody reads this.")
    assert look() == before
    Image.new("RGB", (8, 8), "red").save(screens / name)
    assert list_changed(before, look()) == {"prepare"}


def test_fewer_items_are_among_more_and_drawn_by_the_seed_in_whatever_order_they_stand():
    examples = [
        make_example([Message("user", f"第 {n} 题")], cluster=str(n), label="x") for n in range(40)
    ]

    def draw(num_items, seed=0, examples=examples):
        config = load("demo", f"evaluation.num_items={num_items}", f"seed={seed}")
        return [example.id for example in draw_items(examples, config)]

    every = [example.id for example in examples]
    drawn = {number: draw(number) for number in (1, 7, 20, 40)}
    assert [len(ids) for ids in drawn.values()] == [1, 7, 20, 40]
    assert set(drawn[1]) < set(drawn[7]) < set(drawn[20]) < set(drawn[40])
    assert all(ids == [name for name in every if name in ids] for ids in drawn.values())
    assert draw("null") == every
    assert draw(20) == drawn[20]
    assert draw(20, seed=1) != drawn[20] != every[:20]
    assert set(draw(20, examples=examples[::-1])) == set(drawn[20])
    with pytest.raises(DataError, match=r"got 41; expected at most 40\."):
        draw(41)


@pytest.mark.parametrize(("override", "changed"), TABLES["redone_by_a_setting"])
def test_a_setting_redoes_the_steps_that_read_it(override, changed):
    before, after = (
        {step.name: step.settings for step in recipe.plan(load("demo", *more), Path("nowhere"))}
        for more in ((), (override,))
    )
    assert list_changed(before, after) == set(changed)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    root = tmp_path_factory.mktemp("screens")
    write_desktops(root, num_sessions=60, screens_per_session=1, seed=5, size=(160, 120))
    return list(load_screenshots(root).screens)


def list_rows(drawn, share, epoch=0):
    return list(make_warmup_rows(drawn, load("demo", f"sft.labelled_share={share}"))(epoch))


def list_labelled(rows):
    return {row.example.cluster for row in rows if row.is_finished}


def test_the_same_share_of_sessions_is_labelled_in_every_epoch(drawn):
    labelled = [list_labelled(list_rows(drawn, 0.3, epoch)) for epoch in range(3)]
    assert labelled[0] == labelled[1] == labelled[2]
    assert 8 <= len(labelled[0]) <= 28
    assert [len(list_labelled(list_rows(drawn, share))) for share in (0.0, 1.0)] == [0, 60]


def test_an_unlabelled_row_is_the_labelled_one_up_to_its_label(drawn):
    for bare, whole in zip(list_rows(drawn, 0), list_rows(drawn, 1), strict=True):
        assert bare.example == whole.example
        assert whole.target == f"{bare.target} {whole.example.label}"
        assert not any(label in bare.target for label in LABELS)


def test_without_names_every_decision_is_taught(drawn):
    unnamed = [replace(screen, activity=None) for screen in drawn[:20]]
    unnamed = [replace(s, task=f"task {n}") for n, s in enumerate(unnamed)]
    rows = list_rows(unnamed, 0)
    assert rows
    assert all(row.is_finished and row.target in LABELS for row in rows)


def test_labels_are_words_of_the_config_and_what_is_paid_for(drawn):
    words = ["answer.labels=[在任务上, 不在任务上]", "answer.describe=[屏幕, 任务]"]
    question = "prompt=任务：{{ task }}。屏幕在任务上还是不在任务上？"
    config = read_config("on_task", "demo", *words, question, "sft.labelled_share=1")
    rows = make_warmup_rows(drawn, config)(0)
    known = make_warmup_rows(drawn, read_config("on_task", "demo"))(0)
    assert {row.example.label for row in rows} == {"在任务上", "不在任务上"}
    for row, same in zip(rows, known, strict=True):
        assert (row.example.label == "在任务上") == (same.example.label == "on-task")
        task, [asked] = row.example.fields["task"], row.example.prompt
        assert asked.text == f"任务：{task}。屏幕在任务上还是不在任务上？"
        assert config.answer.parse(row.target).label == row.example.label
        right = make_rewards(config).score(row.example, Completion(row.target))
        assert right.value == 1.0
