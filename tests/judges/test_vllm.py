"""A judge behind a real vLLM server: the same verdicts as in this process, and a server that dies.

Needs the environment that ``examples/vllm/install.sh`` makes.
"""

import json
import os
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from groupwise.core import JudgeError
from groupwise.inference.local import LocalModel
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import LimitSettings, RetrySettings, ServerSettings
from groupwise.judges import (
    JudgeSettings,
    LogitJudge,
    NoVerdict,
    Question,
    ReplyCache,
    StopSettings,
    Verdict,
    judge_all,
    load_prompt,
    swap_pair,
)
from groupwise.models.policy import load_policy
from groupwise.models.tiny import write_tiny_policy

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("GROUPWISE_VLLM_PYTHON", ROOT / ".venv-vllm" / "bin" / "python"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.is_file(),
        reason=f"no vLLM at {PYTHON}: run examples/vllm/install.sh or set GROUPWISE_VLLM_PYTHON",
    ),
]

PAIRS = [
    Question({"question": question, "first": first, "second": second})
    for question, first, second in [
        ("Name a prime number above 10.", "13", "Twelve, because it is large."),
        ("Translate 'good morning' into French.", "Bonjour.", "Guten Morgen."),
        ("用一句话解释什么是光合作用。", "植物用光把二氧化碳和水变成糖。", "它是一种动物。"),
        ("List three colours.", "Red, green and blue are three colours.", "Red."),
        ("What is 2 + 2?", "4", "4 (four)"),
    ]
]
CHECKS = [
    Question({"question": "What is 3 * 4?", "reference": "12", "answer": answer})
    for answer in ("12", "twelve", "7", "13 或者 12")
]


class Server:
    """vLLM started by the project's script."""

    def __init__(self, model: Path, port: int, log: Path):
        self.model, self.port = model, port
        # A server that is asked for more log-probabilities than there are tokens dies of it.
        self.num_tokens = json.loads((model / "config.json").read_text())["vocab_size"]
        command = [ROOT / "examples/vllm/serve.sh", model, str(port)]
        with log.open("wb") as stream:
            self.script = subprocess.Popen(
                [*map(str, command), "--max-logprobs", str(self.num_tokens)],
                env={**os.environ, "VLLM_VENV": str(PYTHON.parent.parent)},
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
            )
        assert self.script.stdout is not None
        line = self.script.stdout.readline()
        assert line == f"ready: http://127.0.0.1:{port} model {model}\n", log.read_text()[-3000:]

    @property
    def pid(self) -> int:
        """Of the API server itself."""
        children = Path(f"/proc/{self.script.pid}/task/{self.script.pid}/children").read_text()
        commands = {int(p): Path(f"/proc/{p}/cmdline").read_bytes() for p in children.split()}
        [found] = [pid for pid, command in commands.items() if b"vllm\0serve" in command]
        return found

    def count_requests(self) -> int:
        """Requests that the server finished, as it counts them."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=30) as reply:
            text = reply.read().decode()
        counts = re.findall(r"^vllm:request_success_total\{.*\} ([\d.e+]+)$", text, re.MULTILINE)
        return int(sum(map(float, counts)))

    def stop(self) -> None:
        self.script.terminate()
        self.script.wait(timeout=60)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_tiny_policy("tiny-qwen2", tmp_path_factory.mktemp("vllm") / "model")


@pytest.fixture(scope="module")
def start(model, tmp_path_factory):
    """Start a server; all are stopped at the end."""
    started = []

    def start_one(port=None):
        if port is None:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
        log = tmp_path_factory.mktemp("log") / "vllm.log"
        started.append(Server(model, port, log))
        return started[-1]

    yield start_one
    for server in started:
        server.stop()


@pytest.fixture(scope="module")
def server(start):
    return start()


def connect(server, *, tokenizer=None, max_concurrency=8):
    settings = ServerSettings(
        url=f"http://127.0.0.1:{server.port}/v1",
        model=str(server.model),
        top_log_probs=server.num_tokens,
        limits=LimitSettings(max_concurrency=max_concurrency),
        retry=RetrySettings(max_attempts=2, base_delay_s=0.05),
    )
    return ServerModel(settings, tokenizer=tokenizer)


def ask_pairs(responder):
    judge = LogitJudge(
        responder, load_prompt("pair_choice"), labels=("first", "second"), swap_options=False
    )
    return judge_all(judge, [*PAIRS, *map(swap_pair, PAIRS)])


def ask_checks(responder):
    judge = LogitJudge(responder, load_prompt("correct_choice"), labels=("True", "False"))
    return judge_all(judge, CHECKS)


def list_numbers(verdicts):
    """Probabilities, and how far they move with the order of the options."""
    assert all(isinstance(verdict, Verdict) for verdict in verdicts), verdicts
    return [
        number
        for verdict in verdicts
        for number in (*verdict.probabilities.values(), verdict.position_bias or 0.0)
    ]


@pytest.mark.parametrize("ask", [ask_pairs, ask_checks])
@pytest.mark.parametrize("has_tokenizer", [False, True])
def test_a_served_judge_weighs_labels_as_one_in_this_process(
    server, model, tmp_path, ask, has_tokenizer
):
    policy = load_policy(model)
    here = list_numbers(ask(LocalModel(policy, name="tiny")))
    tokenizer = policy.tokenizer if has_tokenizer else None
    served = list_numbers(ask(connect(server, tokenizer=tokenizer)))
    assert served == pytest.approx(here, abs=1e-3)
    # Other weights are told apart, so the tolerance is narrow enough to mean something.
    other = load_policy(write_tiny_policy("tiny-qwen2", tmp_path / "other", seed=1))
    elsewhere = list_numbers(ask(LocalModel(other, name="other")))
    assert max(abs(a - b) for a, b in zip(served, elsewhere, strict=True)) > 0.02


def make_judge(server, path, *, max_no_verdict_rate):
    return LogitJudge(
        connect(server, max_concurrency=2),
        load_prompt("pair_choice"),
        labels=("first", "second"),
        swap_options=False,
        cache=ReplyCache(path),
        settings=JudgeSettings(
            retry=RetrySettings(max_attempts=2, base_delay_s=0.05),
            stop=StopSettings(max_no_verdict_rate=max_no_verdict_rate),
        ),
    )


def test_a_killed_server_gives_no_verdicts_and_a_restart_asks_only_what_is_open(start, tmp_path):
    questions = [
        Question({"question": f"Name number {n}.", "first": str(n), "second": "None."})
        for n in range(60)
    ]
    cache = tmp_path / "replies.sqlite"
    first = start()
    victim = first.pid

    def kill_at_20(num_done, _):
        if num_done == 20:
            os.kill(victim, signal.SIGKILL)

    patient = make_judge(first, cache, max_no_verdict_rate=1.0)
    before = judge_all(patient, questions, report_progress=kill_at_20)
    lost = [result for result in before if isinstance(result, NoVerdict)]
    assert 0 < len(lost) <= 40
    assert {result.cause for result in lost} == {"connection"}
    assert first.script.wait(timeout=60) == 1, "serve.sh says that its server ended"

    strict = make_judge(first, cache, max_no_verdict_rate=0.2)
    with pytest.raises(JudgeError, match=r"gave no verdict on .* because of connection"):
        judge_all(strict, questions)

    second = start(first.port)
    again = make_judge(second, cache, max_no_verdict_rate=0.2)
    after = judge_all(again, questions)
    assert all(isinstance(result, Verdict) for result in after)
    assert second.count_requests() == len(lost) == again.ledger.usage.num_calls
    for old, new in zip(before, after, strict=True):
        assert new.is_cached == isinstance(old, Verdict)
        if isinstance(old, Verdict):
            assert new.probabilities == old.probabilities
    judge_all(make_judge(second, cache, max_no_verdict_rate=0.2), questions)
    assert second.count_requests() == len(lost)
