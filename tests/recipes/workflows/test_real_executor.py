"""Programs over a real vLLM server with a model that has learnt nothing: counts, format, restarts.

Needs the environment that ``examples/vllm/install.sh`` makes.
"""

import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest
from sandbox_host import MISSING
from workflow_problems import SUM

from groupwise.inference.model import Sampling
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import RetrySettings, ServerSettings
from groupwise.judges import ReplyCache
from groupwise.models.tiny import write_tiny_policy
from groupwise_recipes.workflows.execution import Executor
from groupwise_recipes.workflows.outcome import ExecutionSettings

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("GROUPWISE_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))
EXAMPLE = ROOT / "examples" / "workflows"
NAME = "tiny"
MAX_ATTEMPTS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.skipif(
        not PYTHON.is_file(),
        reason=f"no vLLM at {PYTHON}: run examples/vllm/install.sh or set GROUPWISE_VLLM_PYTHON",
    ),
]

READS = "async def workflow(problem):\n    return (await answer_generate(problem)).answer"
CATCHES = """
async def workflow(problem):
    try:
        a = (await custom(problem, 'Answer.')).response
    except OperatorError as error:
        a = str(error)
    return a
"""
PROBLEMS = [
    SUM.model_copy(update={"id": f"s{n}", "problem": f"What is {n} + 1?", "ground_truth": str(n)})
    for n in range(4)
]
PAIRS = [(program, problem) for problem in PROBLEMS for program in (READS, CATCHES)]


class Server:
    """vLLM started by the example, always on the same port."""

    def __init__(self, model, log):
        self.model, self.log = model, log
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.start()

    def start(self):
        with self.log.open("ab") as stream:
            self.script = subprocess.Popen(
                [EXAMPLE / "executor.sh", self.model, str(self.port)],
                env={**os.environ, "VLLM_VENV": str(PYTHON.parent.parent), "EXECUTOR_NAME": NAME},
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        assert self.script.stdout is not None
        assert self.script.stdout.readline().startswith("ready"), self.log.read_text()[-3000:]

    def kill(self):
        children = Path(f"/proc/{self.script.pid}/task/{self.script.pid}/children").read_text()
        for pid in children.split():
            if b"vllm\0serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        assert self.script.wait(timeout=60) == 1

    def stop(self):
        self.script.terminate()
        self.script.wait(timeout=60)

    def count_requests(self):
        """Requests that the server finished, as it counts them."""
        with urllib.request.urlopen(f"{self.url[:-3]}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        counts = re.findall(r"^vllm:request_success_total\{.*\} ([\d.e+]+)$", text, re.MULTILINE)
        return int(sum(map(float, counts)))


@pytest.fixture
def server(tmp_path):
    model = write_tiny_policy("tiny-qwen2", tmp_path / "model")
    server = Server(model, tmp_path / "vllm.log")
    yield server
    server.stop()


def check(server, name):
    command = [EXAMPLE / "check.sh", server.url, name]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)


def make(server, cache):
    settings = ServerSettings(url=server.url, model=NAME, timeout_s=60)
    execution = ExecutionSettings(
        sampling=Sampling(temperature=0.7, max_new_tokens=8, seed=1),
        retry=RetrySettings(max_attempts=MAX_ATTEMPTS, base_delay_s=0.05),
    )
    return Executor(ServerModel(settings), settings=execution, cache=cache)


def test_programs_over_a_server_that_answers_noise_dies_and_comes_back(server, tmp_path):
    assert check(server, NAME).returncode == 0
    wrong = check(server, "other")
    assert (wrong.returncode, "offers no model other" in wrong.stderr) == (1, True)
    num_before = server.count_requests()
    cache = ReplyCache(tmp_path / "replies.sqlite")
    executor = make(server, cache)
    found = executor.run_all(PAIRS)
    # Noise has no format, and ends nowhere: that is the operator's to say, never the executor's.
    assert {(one.fault, one.reason) for one in found[::2]} == {("policy", "operator_error")}
    assert all(one.value for one in found[1::2])
    report = executor.report()
    assert report["outcomes"] == {"policy": len(PROBLEMS), "value": len(PROBLEMS)}
    assert set(report["failed_requests"]) <= {"truncated", "empty"}
    assert report["num_requests"] == server.count_requests() - num_before
    assert report["num_requests"] >= len(PAIRS)
    assert report["completion_tokens"] > 0

    server.kill()
    away = make(server, cache)
    outcomes = away.run_all(PAIRS)
    kept = [one.fault != "executor" for one in outcomes]
    assert [a for a, is_kept in zip(outcomes, kept, strict=True) if is_kept] == [
        one for one, is_kept in zip(found, kept, strict=True) if is_kept
    ]
    assert {one.reason for one in outcomes if one.fault == "executor"} == {"connection"}
    assert set(away.report()["failed_requests"]) == {"connection"}
    assert check(server, NAME).returncode == 1

    server.start()
    assert away.run_all(PAIRS) == found
    assert away.report()["outcomes"]["executor"] == kept.count(False)
