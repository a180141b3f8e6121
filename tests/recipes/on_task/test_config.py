"""What the configs of on_task accept, and what a dry run says."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from groupwise.core import ConfigError, load_config, read_jsonl, write_jsonl
from groupwise.pipeline import Preview, find_recipe, list_configs
from groupwise_drawn.desktops import write_desktops
from groupwise_recipes.on_task.config import LABELS, OnTaskConfig

RECIPE = find_recipe("on_task")
CONFIGS = RECIPE.config_folder


def load(name: str, *overrides: str) -> OnTaskConfig:
    return load_config(OnTaskConfig, CONFIGS / f"{name}.yaml", overrides=overrides)


@pytest.mark.parametrize("name", ["demo", "qwen2.5-vl-3b", "qwen2.5-vl-3b-judge"])
def test_shipped_configs_can_start(name: str) -> None:
    preview = RECIPE.preview(load(name))
    assert preview.problems == []
    assert {"sft steps", "grpo steps"} <= {fact for fact, _ in preview.facts}


def test_grpo_may_start_from_the_base(tmp_path: Path) -> None:
    config = load("demo", "sft=null", "data.warmup_share=0")
    steps = [step.name for step in RECIPE.plan(config, tmp_path / "run")]
    assert not {"sft", "sft_control"} & set(steps)
    assert "grpo" in steps
    preview = RECIPE.preview(config)
    assert preview.problems == []
    assert "sft steps" not in dict(preview.facts)


def test_what_only_a_warmup_reads_is_refused_without_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.warmup_share must be 0 where sft is null"):
        load("demo", "sft=null")
    joined = (f"data.root={tmp_path}", "data.drawn.join_real=true")
    with pytest.raises(ConfigError, match=r"join_real is for the warm-up"):
        load("demo", "sft=null", "data.warmup_share=0", *joined)


def test_real_config_estimates_tokens_and_memory() -> None:
    preview = RECIPE.preview(load("qwen2.5-vl-3b"))
    (prompt, _) = preview.tables[1].rows
    assert prompt[2].startswith("1,2")
    assert "weights alone take" in dict(preview.facts)["memory"]


def test_the_config_with_a_judge_has_what_the_system_is_specified_with() -> None:
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


def test_included_files_are_no_configs_of_the_recipe() -> None:
    assert list_configs(RECIPE) == [
        "demo",
        "qwen2.5-vl-3b",
        "qwen2.5-vl-3b-judge",
        "screenagent-tiny",
        "screenagent-words",
    ]


def test_missing_folder_is_a_problem_that_names_it(tmp_path: Path) -> None:
    (problem,) = RECIPE.preview(load("screenagent-tiny", f"data.root={tmp_path / 'gone'}")).problems
    assert "gone" in problem


def test_budget_that_rejects_real_rows_is_a_problem() -> None:
    config = load("qwen2.5-vl-3b-judge", "data.budget.max_prompt_tokens=256")
    assert any(
        "is less than real rows have" in problem for problem in RECIPE.preview(config).problems
    )


def test_response_limit_that_cannot_hold_a_label_is_a_problem() -> None:
    config = load("demo", "grpo.max_new_tokens=3")
    assert any("cannot hold an answer" in problem for problem in RECIPE.preview(config).problems)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.drawn.num_sessions=0", "there is no data"),
        ("data.train_folds=[0]", "go together"),
        ("data.warmup_share=0.95", "no sessions for GRPO"),
        ("answer.labels=[ja, nein]", "does not name the label 'ja'"),
        ("answer.labels=[off-task, on-task]", "expected on-task's, then off-task's"),
        ("answer.labels=[on-task, off-task, unsure]", "expected on-task's, then off-task's"),
        ("prompt=Is it on-task or off-task?", "the template lacks {{ task }}"),
        ("prompt='{{ task }} {{ screen }}: on-task or off-task?'", "nothing fills {{ screen }}"),
        ("data.drawn.activities=[coding, vidoe]", "no activity 'vidoe'; did you mean 'video'"),
        ("data.drawn.activities=[coding]", "two are needed"),
        ("data.drawn.languages=[fr]", "data.drawn.languages"),
        ("data={drawn: {num_sessions: 9}, train_folds: [0], test_folds: [1]}", "have no folds"),
        ("grpo.group_size=1", "grpo.group_size"),
        ("sft.trainable.lora.rang=3", "did you mean 'rank'"),
    ],
)
def test_bad_settings_say_what_is_wrong(override: str, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        load("demo", override)


def test_fold_on_both_sides_is_refused() -> None:
    with pytest.raises(ConfigError, match="both"):
        load("screenagent-tiny", "data.test_folds=[2, 3]")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 screens in folds 0 to 3, and 20 rows that cannot be used."""
    folder = tmp_path_factory.mktemp("screens")
    size = {"screens_per_session": 1, "size": (160, 120)}
    index = write_desktops(folder, num_sessions=40, seed=1, activities=("coding", "video"), **size)
    rows = [row | {"fold": number % 4} for number, row in enumerate(read_jsonl(index))]
    broken = [{**rows[0], "image": f"{number}.jpg"} for number in range(20)]
    write_jsonl(index, rows + broken)
    return folder


def list_sources(preview: Preview) -> list[Sequence[str]]:
    return list(preview.tables[0].rows)


def preview_real(root: Path, *overrides: str) -> Preview:
    folds = ("data.train_folds=[0, 1]", "data.test_folds=[2]", "data.validation_share=0.2")
    return RECIPE.preview(load("screenagent-tiny", f"data.root={root}", *folds, *overrides))


def test_a_dry_run_counts_what_is_used_and_dropped(root: Path) -> None:
    found = preview_real(root)
    assert found.problems == []
    assert dict(found.facts)["rows"] == (
        "30 of 60 used; 20 x missing picture; 10 x in a fold that no split names"
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("data.test_folds=[9]", "fold 9 of split 'test' has no screens"),
        ("data.train_folds=[0, 9]", "fold 9 of split 'rest' has no screens"),
        ("data.validation_share=0.001", "the split 'validation' would be empty"),
    ],
)
def test_what_stops_the_loading_is_a_problem_of_the_dry_run(
    root: Path, override: str, words: str
) -> None:
    (problem,) = preview_real(root, override).problems
    assert words in problem


def test_too_few_drawn_sessions_are_a_problem_of_the_dry_run() -> None:
    (problem,) = RECIPE.preview(load("demo", "data.drawn.num_sessions=9")).problems
    assert "would be empty" in problem


def test_more_test_items_than_there_are_stop_the_baselines(root: Path) -> None:
    found = preview_real(root, "evaluation.num_items=21")
    (problem,) = found.later["baselines"]
    assert "21 of 20 items" in problem


def test_drawn_screens_join_real_ones_only_if_asked_for(root: Path) -> None:
    asked, unasked = (
        list_sources(preview_real(root, f"data.drawn.join_real={on}")) for on in ("true", "false")
    )
    assert ("warmup", "captured", "16", "3.7%") in asked
    assert ("warmup", "drawn", "420", "96.3%") in asked
    assert ("warmup", "captured", "16", "100.0%") in unasked
    assert {source for _, source, _, _ in unasked} == {"captured"}


def test_the_only_source_is_told() -> None:
    assert list_sources(RECIPE.preview(load("demo"))) == [("all", "drawn", "6,800", "100.0%")]


def test_a_dry_run_shows_screens_as_the_model_sees_them(root: Path) -> None:
    first, *_ = preview_real(root).shown
    assert first.prompt.startswith(
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Task"
    )
    assert first.prompt.endswith("<|im_start|>assistant\n")
    assert first.answer.rpartition(" ")[2] in LABELS
    assert len(first.pictures) == 1


def test_a_dry_run_with_words_reads_no_screen_and_counts_as_many_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("groupwise.data.ocr.TextReader.read", lambda *_, **__: 1 / 0)
    folds = ("data.train_folds=[0, 1]", "data.test_folds=[2]", "data.validation_share=0.2")
    found = RECIPE.preview(load("screenagent-words", f"data.root={root}", *folds))
    assert found.problems == []
    assert "up to 80 characters; a dry run reads none" in dict(found.facts)["words on screens"]
