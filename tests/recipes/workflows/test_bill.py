"""A dry run says what the executor will be asked and what that costs, before it is paid."""

from pathlib import Path

import pytest

from groupwise.core import load_config
from groupwise_recipes.workflows.bill import count_requests, estimate_bill
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.estimate import estimate_run
from groupwise_recipes.workflows.problems import choose_examples
from groupwise_recipes.workflows.recipe import recipe
from groupwise_recipes.workflows.rivals import DIRECT, SELF_CONSISTENCY

SERVED = (
    "executor={model: {server: {url: 'http://127.0.0.1:8002/v1', model: big, prompt_price: 1, "
    "completion_price: 2}}}"
)


@pytest.fixture
def config() -> WorkflowsConfig:
    demo = Path(recipe.config_folder) / "demo.yaml"
    small = ("data.num_generated=48", "data.max_test=4", "rivals.num_problems=2")
    return load_config(WorkflowsConfig, demo, overrides=[SERVED, *small])


@pytest.mark.parametrize(
    ("program", "kind", "least", "most"),
    [
        (DIRECT, "math", 1, 2),
        (DIRECT, "code", 1, 2),
        (SELF_CONSISTENCY, "math", 6, 12),
        (SELF_CONSISTENCY, "code", 6, 12),
    ],
)
def test_requests_of_a_program_are_counted(program: str, kind: str, least: int, most: int):
    assert count_requests(program, kind) == (least, most)


def test_the_bill_is_told_for_every_rival_and_stage(config: WorkflowsConfig):
    examples, _ = choose_examples(config)
    bill = {one.name: one for one in estimate_bill(config, examples)}
    num_test = len(examples["test"])
    assert bill["direct"].programs == num_test
    assert bill["direct"].requests == num_test
    assert bill["self_consistency"].requests == 6 * num_test
    assert bill["top_by_type"].programs == config.rivals.top_k * num_test
    assert bill["rivals"].programs > 10 * 2 * 3
    grpo = config.grpo
    steps = grpo.max_steps or 4
    assert bill["grpo"].programs >= min(steps, 4) * grpo.prompts_per_step * grpo.group_size
    for one in bill.values():
        assert one.requests <= one.most_requests
        prompts, replies = one.prompt_tokens, one.completion_tokens
        assert one.cost == pytest.approx((prompts + 2 * replies) / 1e6)
    facts = dict(estimate_run(config).facts)
    assert "requests" in facts["executor, self_consistency"]
    assert "cost" in facts["executor, all"]


def test_a_stub_costs_nothing_and_has_no_bill(config: WorkflowsConfig):
    demo = load_config(WorkflowsConfig, Path(recipe.config_folder) / "demo.yaml")
    assert not any(name.startswith("executor, ") for name, _ in estimate_run(demo).facts)
