"""The executor's process is killed in the middle of a GRPO training."""

import random
import threading

import pytest
from sandbox_host import needs_bubblewrap
from stub_process import StubProcess
from workflow_problems import SUM, configure

from groupwise.core import dump_config, read_jsonl, write_jsonl
from groupwise.inference.server import ServerEngine
from groupwise.inference.server_settings import RetrySettings, ServerSettings
from groupwise.models.policy import load_policy
from groupwise.models.tiny import write_tiny_policy
from groupwise.models.trainable import TrainableSettings
from groupwise.rewards import RewardSet
from groupwise.sandbox import Limits
from groupwise.training.checkpoints import Workspace
from groupwise.training.grpo import train_grpo
from groupwise.training.settings import GrpoSettings, SftRow, SftSettings
from groupwise.training.sft import train_sft
from groupwise_recipes.workflows.deciding import Decider
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.executor_stub import STUB_NAME
from groupwise_recipes.workflows.forms import draw_form
from groupwise_recipes.workflows.outcome import ExecutionSettings
from groupwise_recipes.workflows.problems import ask_about_problem
from groupwise_recipes.workflows.rewards import Success
from groupwise_recipes.workflows.scoring import ProgramScorer

pytestmark = [pytest.mark.slow, needs_bubblewrap]
PROBLEMS = [
    SUM.model_copy(
        update={"id": f"s{n}", "problem": f"What is {n} + 1?", "ground_truth": str(n + 1)}
    )
    for n in range(16)
]
CONFIG = configure(sft=None)
EXAMPLES = [ask_about_problem(CONFIG, one) for one in PROBLEMS]
PATIENT = RetrySettings(max_attempts=40, base_delay_s=0.2, max_delay_s=0.5)
IMPATIENT = RetrySettings(max_attempts=2, base_delay_s=0.01)
FULL = TrainableSettings(method="full")


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A policy that writes programs in the right form."""
    folder = tmp_path_factory.mktemp("taught")
    texts = [draw_form(random.Random(n)) for n in range(100)]
    base = write_tiny_policy("tiny-qwen2", folder / "base", texts=texts, looks_back=True)
    rows = [SftRow(EXAMPLES[n % 16], texts[n]) for n in range(64)]
    settings = SftSettings(epochs=16, batch_size=16, learning_rate=3e-3, trainable=FULL)
    trained = train_sft(
        load_policy(base), lambda _: rows, settings, workspace=Workspace(folder / "sft", 0)
    )
    trained.model.save_pretrained(folder / "policy")
    trained.processor.save_pretrained(folder / "policy")
    return folder / "policy"


@pytest.fixture
def server(tmp_path):
    write_jsonl(tmp_path / "problems.jsonl", [dump_config(one) for one in PROBLEMS])
    found = StubProcess(tmp_path / "problems.jsonl")
    yield found
    found.kill()


class Interrupted(Success):
    """The reward; before its second batch the executor is killed, and it comes back later."""

    def __init__(self, scorer, server, back_s):
        super().__init__(scorer)
        self.server = server
        self.back_s = back_s
        self.batches = []

    def score_batch(self, examples, completions):
        is_second = len(self.batches) == 1 and self.server is not None
        if is_second and self.server is not None:
            self.server.kill()
            if self.back_s is not None:
                threading.Timer(self.back_s, self.server.restart).start()
        self.batches.append(super().score_batch(examples, completions))
        if is_second and self.server is not None and self.back_s is None:
            self.server.restart()
        return self.batches[-1]


def train(policy, url, folder, retry, *, killed=None, back_s=None):
    engine = ServerEngine(ServerSettings(url=url, model=STUB_NAME))
    executor = Executor(engine, settings=ExecutionSettings(retry=retry))
    scorer = ProgramScorer(executor, Decider(limits=Limits()))
    reward = Interrupted(scorer, killed, back_s)
    settings = GrpoSettings(
        prompts_per_step=4,
        group_size=4,
        max_steps=4,
        max_new_tokens=110,
        learning_rate=1e-4,
        log_every_steps=1,
        warmup_share=0.0,
        trainable=FULL,
    )
    rewards = RewardSet({"success": (reward, 1.0)})
    workspace = Workspace(folder, 0)
    train_grpo(load_policy(policy), EXAMPLES, rewards, settings, workspace=workspace)
    return reward, [row for row in read_jsonl(folder / "metrics.jsonl") if "loss" in row]


def test_a_short_outage_changes_no_reward(taught, server, tmp_path):
    whole, rows = train(taught, server.url, tmp_path / "whole", PATIENT)
    cut, cut_rows = train(taught, server.url, tmp_path / "cut", PATIENT, killed=server, back_s=2.0)
    assert len(whole.batches) == 4
    assert cut.batches == whole.batches
    assert cut.scorer.executor.failed_requests["connection"] > 0
    same = ("loss", "reward", "unscored", "grad_norm")
    assert [[row.get(name) for name in same] for row in cut_rows] == [
        [row.get(name) for name in same] for row in rows
    ]


def test_a_long_outage_leaves_its_programs_without_a_reward(taught, server, tmp_path):
    whole, _ = train(taught, server.url, tmp_path / "whole", IMPATIENT)
    cut, rows = train(taught, server.url, tmp_path / "cut", IMPATIENT, killed=server)
    first, second, *later = cut.batches
    assert first == whole.batches[0]
    # The same programs as without the outage: those that asked have no score, the others theirs.
    asked = [one.value is None for one in second]
    assert any(asked)
    for got, usual in zip(second, whole.batches[1], strict=True):
        assert got == usual or (got.value is None and "executor" in got.reason)
    assert rows[1]["unscored"] == pytest.approx(sum(asked) / len(second))
    assert [row["unscored"] for row in (rows[0], *rows[2:])] == [0.0] * 3
    assert len(later) == 2
    report = cut.scorer.report()
    assert report["reasons"]["connection"] == sum(asked)
    assert sum(report["reasons"].values()) == 4 * 16
