"""Judgements in a second at several concurrencies, with the cache off and on, and cached ones.

    python benchmarks/judge.py --json results.json
    python benchmarks/judge.py --url http://127.0.0.1:8000/v1 --model NAME --json results.json

Without a URL it starts ``judge_server.py``, which answers after a fixed delay: the numbers are then
those of the judge's own work. "Cache on" asks new questions and stores every reply.
"""

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from groupwise.core import describe_machine, write_json
from groupwise.inference.model import run_on_shared_loop
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import LimitSettings, ServerSettings
from groupwise.judges import (
    GenerativeJudge,
    Judge,
    JudgeSettings,
    LogitJudge,
    NoVerdict,
    Question,
    ReplyCache,
    judge_all,
    load_prompt,
)

CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_LOG_PROBS = ServerSettings.model_fields["top_log_probs"].default
_ANSWER = "The train needs two hours and twelve minutes, so it arrives at 14:12. "


def make_questions(name: str, count: int) -> list[Question]:
    """Return questions of about 150 words that are all different."""
    return [
        Question(
            {
                "question": f"{name} {number}: when does the train arrive?",
                "reference": "14:12",
                "answer": _ANSWER * 10,
            }
        )
        for number in range(count)
    ]


def make_judge(
    kind: str, engine: ServerModel, cache: ReplyCache | None, settings: JudgeSettings
) -> Judge:
    """Return a judge of the kind ``generative`` or ``logit``."""
    if kind == "generative":
        prompt = load_prompt("correct")
        return GenerativeJudge(engine, prompt, settings=settings, cache=cache)
    prompt, labels = load_prompt("correct_choice"), ("True", "False")
    return LogitJudge(engine, prompt, labels=labels, settings=settings, cache=cache)


def measure(judge: Judge, questions: list[Question]) -> dict[str, Any]:
    """Judge all questions at once and return the rate and what failed."""
    start = time.perf_counter()
    results = judge_all(judge, questions)
    wall_s = time.perf_counter() - start
    failed = sum(isinstance(result, NoVerdict) for result in results)
    return {
        "num_questions": len(questions),
        "num_calls": sum(result.usage.num_calls for result in results),
        "num_no_verdicts": failed,
        "wall_s": round(wall_s, 4),
        "judgements_per_s": round(len(questions) / wall_s, 1),
        "ms_per_judgement": round(1000 * wall_s / len(questions), 3),
    }


def run(arguments: argparse.Namespace, url: str, folder: Path) -> list[dict[str, Any]]:
    """Measure every kind and concurrency; each row is one measurement."""
    rows: list[dict[str, Any]] = []
    for kind in arguments.kinds:
        for concurrency in arguments.concurrencies:
            settings = ServerSettings(
                url=url,
                model=arguments.model,
                top_log_probs=arguments.top_log_probs or DEFAULT_LOG_PROBS,
                limits=LimitSettings(max_concurrency=concurrency),
            )
            engine = ServerModel(settings)
            cache = ReplyCache(folder / f"{kind}-{concurrency}.sqlite")
            about = {"kind": kind, "concurrency": concurrency}
            for state, kept in (("off", None), ("on, new", cache)):
                judge = make_judge(kind, engine, kept, JudgeSettings())
                count = min(arguments.num_questions, 50 * concurrency)
                questions = make_questions(f"{kind} {concurrency}", count)
                rows.append(about | {"cache": state} | measure(judge, questions))
            run_on_shared_loop(engine.close())
            rows.append(about | {"cache": "on, repeated"} | repeat(judge, questions))
    return rows


def repeat(judge: Judge, questions: list[Question]) -> dict[str, Any]:
    """Judge 1 000 questions again that are all in the cache."""
    row = measure(judge, [questions[number % len(questions)] for number in range(1000)])
    if row["num_calls"]:
        raise SystemExit(f"{row['num_calls']} repeated questions were asked again")
    return row


@contextlib.contextmanager
def find_server(url: str | None, delay_ms: float) -> Iterator[str]:
    """Give the URL, of a server of our own if none is given."""
    if url is not None:
        yield url
        return
    script = Path(__file__).with_name("judge_server.py")
    command = [sys.executable, str(script), "--delay-ms", str(delay_ms)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
        server.terminate()


def main() -> None:
    """Measure, print a table, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--url", help="of a server, up to and with /v1")
    parser.add_argument("--model", default="tiny")
    parser.add_argument(
        "--top-log-probs",
        type=int,
        help="asked for by the logit judge; an untrained model needs its whole vocabulary",
    )
    parser.add_argument("--delay-ms", type=float, default=20.0, help="of the server of our own")
    parser.add_argument("--num-questions", type=int, default=1000)
    parser.add_argument("--concurrencies", type=int, nargs="+", default=CONCURRENCIES)
    parser.add_argument("--kinds", nargs="+", default=["generative", "logit"])
    arguments = parser.parse_args()
    with (
        find_server(arguments.url, arguments.delay_ms) as url,
        tempfile.TemporaryDirectory() as folder,
    ):
        rows = run(arguments, url, Path(folder))
    for row in rows:
        print(json.dumps(row))
    if arguments.json:
        server = "given" if arguments.url else f"own, {arguments.delay_ms:g} ms a reply"
        write_json(arguments.json, {"server": server, "rows": rows, **describe_machine()})


if __name__ == "__main__":
    main()
