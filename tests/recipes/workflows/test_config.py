"""What the configs of workflows accept, and what a dry run says."""

from pathlib import Path

import pytest
from workflow_problems import PROBLEMS

from groupwise.core import dump_config, load_config, write_jsonl
from groupwise.pipeline import find_recipe
from groupwise_recipes.workflows.config import ScoringSettings, WorkflowsConfig
from groupwise_recipes.workflows.problems import SPLITS, ask_about_problem
from groupwise_recipes.workflows.task import TASK

RECIPE = find_recipe("workflows")
DEMO = RECIPE.config_folder / "demo.yaml"
SOURCE = RECIPE.config_folder / "qwen2.5-7b.yaml"


@pytest.fixture
def config(tmp_path: Path) -> WorkflowsConfig:
    """Return the source's config on made problems."""
    for split in SPLITS:
        rows = [one.model_copy(update={"id": f"{split}/{one.id}"}) for one in PROBLEMS]
        write_jsonl(tmp_path / f"{split}.jsonl", map(dump_config, rows))
    return load_config(WorkflowsConfig, SOURCE, overrides=[f"data.mix={tmp_path}"])


def test_the_sources_setting_can_start(config: WorkflowsConfig):
    preview = RECIPE.preview(config)
    assert preview.problems == []
    facts = dict(preview.facts)
    assert facts["executor"] == "gpt-oss-120b at http://127.0.0.1:8002/v1"
    assert "4 prompts x 6 completions" in facts["grpo steps"]
    assert (config.grpo.max_steps, config.grpo.heldout_every_steps) == (500, 10)
    assert config.judge is not None
    assert config.judge.model is None


def test_the_policy_is_told_operators_rules_problem_and_entry_point(config: WorkflowsConfig):
    for problem in PROBLEMS:
        text = ask_about_problem(config, problem).prompt[0].text
        assert problem.problem in text
        assert "code_generate(" in text
        assert "`await`" in text
        assert text.endswith(f": {problem.entry_point or 'none'}")


def test_a_prompt_has_no_unknown_place():
    with pytest.raises(Exception, match=r"prompt: .*answer"):
        load_config(WorkflowsConfig, SOURCE, overrides=["prompt='{{ problem }} {{ answer }}'"])


def test_a_prompt_is_optimised_for_a_policy_that_there_is():
    gepa = "gepa={model: {server: {url: 'http://127.0.0.1:9/v1', model: m}}, policy: sft}"
    with pytest.raises(Exception, match=r"gepa\.policy sft needs a warm-up"):
        load_config(WorkflowsConfig, SOURCE, overrides=[gepa])
    assert load_config(WorkflowsConfig, DEMO, overrides=[gepa]).gepa is not None


def test_whatever_is_rewarded_is_measured_by_rules_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Scorer:
        """Keeps who decides, and scores nothing."""

        def __init__(self, config: ScoringSettings, run: Path) -> None:
            del run
            self.mode = config.reward.mode

        def score_all(self, pairs: object) -> list[object]:
            measured.append(self.mode)
            return []

    measured: list[str] = []
    monkeypatch.setattr("groupwise_recipes.workflows.opening.open_scorer", Scorer)
    overrides = ["reward.mode=judge_only", "judge={}"]
    config = load_config(WorkflowsConfig, DEMO, overrides=overrides)
    assert vars(TASK.judge(config, tmp_path / "grpo"))["mode"] == "judge_only"
    assert TASK.read_answers(config, tmp_path, [], []) == []
    assert measured == ["rules_first"]
