"""GEPA on a prompt, by the real library: a scripted model reflects, a stub executes programs."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from faulty_server import Fault
from hypothesis import example, given
from hypothesis import strategies as st
from sandbox_host import MISSING
from scripted_reflector import ScriptedReflector
from workflow_problems import PROBLEMS, make_abilities

from groupwise.core import ConfigError, Example, ModelError, RunError, read_jsonl
from groupwise.inference import (
    RetrySettings,
    ServerEngine,
    ServerSettings,
    open_responder,
)
from groupwise.pipeline import find_recipe
from groupwise.sandbox import Limits
from groupwise_recipes.workflows import estimate
from groupwise_recipes.workflows.config import GepaSettings, RewardSettings, WorkflowsConfig
from groupwise_recipes.workflows.deciding import Decider
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME, ExecutorStub
from groupwise_recipes.workflows.outcome import ExecutionSettings
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.prompt_search import (
    FoundPrompt,
    PromptSearch,
    explain_refusal,
)
from groupwise_recipes.workflows.prompt_stage import Trials, write_prompt
from groupwise_recipes.workflows.reflecting import Reflector
from groupwise_recipes.workflows.rewards import make_success
from groupwise_recipes.workflows.scoring import ProgramScorer, read_problem

needs_sandbox = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

GIVEN = "Write a program.\n{{ problem }}\nEntry point: {{ entry_point }}"
BETTER = GIVEN.replace("program.", "program; where code is asked for, call code_generate.")
NO_RETRY = RetrySettings(max_attempts=1)
BY_ANSWER = (
    "async def workflow(problem):\n    a = await answer_generate(problem)\n    return a.answer"
)
BY_CODE = (
    "async def workflow(problem, entry_point):\n    if entry_point:\n"
    "        c = await code_generate(problem, entry_point)\n        return c.code\n"
    "    a = await answer_generate(problem)\n    return a.answer"
)
CONFIG = WorkflowsConfig.model_validate(
    {
        "model": {"base": "tiny-qwen2", "max_pixels": 16384},
        "sft": {"epochs": 1},
        "grpo": {},
        "executor": {"stub": {}},
        "prompt": GIVEN,
    }
)
EXAMPLES = [ask_about_problem(CONFIG, one) for one in PROBLEMS]


class ObedientPolicy:
    """Calls ``code_generate`` only if the prompt says so; no model. Counts what it is asked."""

    def __init__(self) -> None:
        self.num_asked = 0

    def __call__(self, examples: Sequence[Example]) -> list[str]:
        self.num_asked += len(examples)
        texts = [str(one.prompt[0].text) for one in examples]
        return [BY_CODE if "code_generate" in text else BY_ANSWER for text in texts]


@pytest.fixture(scope="module")
def stub() -> Iterator[ExecutorStub]:
    """An executor that is always right, but for code when ``answer_generate`` is asked for it."""
    able = make_abilities(1.0)
    solve = {name: dict(shares) for name, shares in able.solve.items()}
    solve["answer_generate"]["code"] = 0.0
    with ExecutorStub(PROBLEMS, able.model_copy(update={"solve": solve})) as found:
        yield found


def make_scorer(url: str) -> ProgramScorer:
    engine = ServerEngine(ServerSettings(url=url, model=STUB_NAME))
    executor = Executor(engine, settings=ExecutionSettings(retry=NO_RETRY))
    return ProgramScorer(executor, Decider(limits=Limits()))


class Search:
    """A search with all that it needs, whose files are in a folder."""

    def __init__(self, url: str, folder: Path, *prompts: str, num_executions: int = 40) -> None:
        self.server = ScriptedReflector(prompts)
        self.policy = ObedientPolicy()
        settings = GepaSettings(model=self.server.settings, retry=NO_RETRY)
        success = make_success(RewardSettings(), make_scorer(url))
        self.search = PromptSearch(
            run=Trials(self.policy, success, self.write, path=folder / "trials.jsonl"),
            reflect=Reflector(
                open_responder(settings.model), settings, path=folder / "said.jsonl", seed=0
            ),
            is_too_long=lambda prompt: len(prompt) > 200,
            num_executions=num_executions,
            minibatch_size=3,
            seed=1,
        )

    def write(self, prompt: str, example: Example) -> Example:
        return ask_about_problem(CONFIG, read_problem(example), prompt=prompt)

    def find(self) -> FoundPrompt:
        try:
            return self.search.find(GIVEN, train=EXAMPLES, validation=EXAMPLES)
        finally:
            self.server.close()


@needs_sandbox
def test_the_better_prompt_is_found_within_the_budget(stub: ExecutorStub, tmp_path: Path) -> None:
    made = Search(stub.url, tmp_path, BETTER)
    found = made.find()
    assert found.prompt == BETTER
    assert (found.score, found.given_score) == (1.0, 0.75)
    assert len(read_jsonl(tmp_path / "trials.jsonl")) == made.policy.num_asked
    assert made.policy.num_asked <= found.num_executions <= 40
    assert found.num_prompts == 2


@needs_sandbox
@pytest.mark.parametrize("num_executions", [14, 23, 24])
def test_no_more_programs_are_run_than_grpo_had(
    stub: ExecutorStub, tmp_path: Path, num_executions: int
) -> None:
    """The first look takes 4, each round at most 10."""
    found = Search(stub.url, tmp_path, GIVEN + " x", num_executions=num_executions).find()
    assert num_executions - 10 < found.num_executions <= num_executions


@needs_sandbox
def test_what_the_model_is_told_leads_to_a_better_prompt(
    stub: ExecutorStub, tmp_path: Path
) -> None:
    made = Search(stub.url, tmp_path, BETTER)
    made.find()
    asked = made.server.texts[0]
    assert "{{ entry_point }}, {{ problem }}" in asked
    assert GIVEN in asked
    assert "Reward 0 of 1" in asked
    assert BY_ANSWER in asked
    assert "the hidden test" not in asked
    assert "the secret reference" not in asked


@needs_sandbox
def test_prompts_without_a_place_are_refused_and_counted(
    stub: ExecutorStub, tmp_path: Path
) -> None:
    bad = (
        "Call code_generate.\nEntry point: {{ entry_point }}",  # lacks the problem
        BETTER + " {{ ground_truth }}",
        BETTER + " {% for i in range(9) %}x{% endfor %}",
        BETTER + " {{",
        BETTER + "x" * 200,
        GIVEN,
    )
    made = Search(stub.url, tmp_path, *bad, BETTER, num_executions=60)
    found = made.find()
    assert found.refused == {
        "lost_place": 1,
        "new_place": 2,
        "no_template": 1,
        "too_long": 1,
        "unchanged": 1,
    }
    assert found.prompt == BETTER
    # What was refused was never run: what was given and what was found, on each problem.
    assert made.policy.num_asked == 2 * len(EXAMPLES)


@needs_sandbox
def test_a_search_that_is_begun_again_asks_nothing_again(
    stub: ExecutorStub, tmp_path: Path
) -> None:
    first = Search(stub.url, tmp_path, "no place", BETTER)
    before = first.find()
    again = Search("http://127.0.0.1:9/v1", tmp_path, "never said")
    assert again.find() == before
    assert (again.policy.num_asked, again.server.asked) == (0, [])
    half = read_jsonl(tmp_path / "said.jsonl")[:1]
    (tmp_path / "said.jsonl").unlink()
    third = Search(stub.url, tmp_path, "no place", BETTER)
    assert third.find() == before
    assert read_jsonl(tmp_path / "said.jsonl")[:1] == half


@needs_sandbox
def test_a_model_that_does_not_answer_ends_the_search(stub: ExecutorStub, tmp_path: Path) -> None:
    made = Search(stub.url, tmp_path, BETTER)
    made.server.script = [Fault(status=500)]
    with pytest.raises(ModelError, match="the reflecting model does not answer"):
        made.find()
    # The given prompt on validation, and a minibatch of the same problems: no more was spent.
    assert made.policy.num_asked == len(EXAMPLES)
    assert Search(stub.url, tmp_path, BETTER).find().prompt == BETTER


@needs_sandbox
def test_a_fault_of_the_executor_is_no_reward_of_a_prompt(tmp_path: Path) -> None:
    made = Search("http://127.0.0.1:9/v1", tmp_path, BETTER)
    with pytest.raises(RunError, match="not every answer could be measured"):
        made.find()
    assert not (tmp_path / "trials.jsonl").exists()


@needs_sandbox
def test_too_few_executions_are_refused_before_any(stub: ExecutorStub, tmp_path: Path) -> None:
    made = Search(stub.url, tmp_path, BETTER, num_executions=13)
    with pytest.raises(ConfigError, match="got 13; expected at least 14"):
        made.find()
    assert made.policy.num_asked == 0


def test_without_the_library_the_command_that_installs_it_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "gepa", None)
    with pytest.raises(ConfigError, match=r"pip install 'groupwise\[gepa\]'"):
        Search("http://127.0.0.1:9/v1", tmp_path, BETTER).find()
    monkeypatch.setattr(estimate, "find_spec", lambda _: None)
    gepa = {"model": {"server": {"url": "http://127.0.0.1:9/v1", "model": "m"}}}
    told = find_recipe("workflows").preview(
        CONFIG.model_copy(update={"gepa": GepaSettings.model_validate(gepa)})
    )
    assert told.later["optimise_prompt"] == ["gepa is not installed: pip install 'groupwise[gepa]'"]


PIECES = st.sampled_from(
    ["{{ problem }}", "{{problem}}", "{{ entry_point }}", "{{ x }}", "{% if x %}", "a", "\n", "{{"]
)


@given(st.lists(PIECES, max_size=8).map("".join))
def test_what_is_not_refused_has_all_places_and_can_be_filled(prompt: str) -> None:
    if not explain_refusal(GIVEN, prompt):
        asked = ask_about_problem(CONFIG, PROBLEMS[1], prompt=prompt).prompt[0].text
        assert PROBLEMS[1].problem in str(asked)
        assert str(PROBLEMS[1].entry_point) in str(asked)
        assert not {"{{ x }}", "{% if x %}"} & {prompt}
    else:
        assert prompt != GIVEN


@given(st.text(max_size=80))
@example("\x85")
@example("a\u2028b")
def test_the_file_gives_the_prompt_back_whole(text: str) -> None:
    import yaml

    found = FoundPrompt(
        prompt=text, score=1, given_score=0.5, num_executions=7, num_prompts=2, refused={}
    )
    written = write_prompt(found, num_validation=4)
    assert yaml.safe_load(written) == {"prompt": text}
    assert "7 programs were run" in written.splitlines()[0]
