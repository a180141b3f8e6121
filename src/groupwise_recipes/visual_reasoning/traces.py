"""What the GRPO policy of a finished run answers to the warm-up's questions, to be taught."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from groupwise.core import (
    ConfigError,
    DataError,
    Example,
    derive_seed,
    read_jsonl,
    write_json,
    write_jsonl,
)
from groupwise.training import SftRow
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER

_NAME = "traces.jsonl"
_GRADES: Mapping[float | None, str] = {None: "invalid", 0.0: "wrong", 1.0: "correct"}


def find_traced(run: Path) -> Path:
    """Return the folder of the policy whose traces are taught.

    Raises:
        ConfigError: if the run has not finished GRPO.
    """
    if not (run / "grpo" / "step.json").is_file():
        raise ConfigError("sft.traces is no run with a finished GRPO", got=str(run))
    return run / "grpo" / "policy"


def sample_traces(run: Path, examples: Sequence[Example], folder: Path, *, seed: int) -> None:
    """Write one trace of each example, sampled as the run's GRPO samples, and how many are right.

    Args:
        run: a finished run.
        examples: what is asked; none of the test.
        folder: gets ``traces.jsonl``, and ``traces.json`` with the counts.
        seed: of the draws.
    """
    from groupwise.flow import open_policy, open_run
    from groupwise.inference import LocalEngine, Sampling

    config = open_run(run).config
    sampling = Sampling(
        temperature=config.grpo.temperature,
        max_new_tokens=config.grpo.max_new_tokens,
        seed=derive_seed(seed, "traces"),
    )
    policy = open_policy(config, find_traced(run))
    engine = LocalEngine(policy, batch_size=config.evaluation.batch_size)
    replies = engine.generate(examples, sampling=sampling)
    rows = [
        {
            "id": example.id,
            "text": reply.text,
            "is_finished": reply.finish_reason == "stop",
            "grade": _GRADES[QUESTION_PARSER.measure(example, reply.text)],
        }
        for example, [reply] in zip(examples, replies, strict=True)
    ]
    write_jsonl(folder / _NAME, rows)
    write_json(folder / "traces.json", Counter(row["grade"] for row in rows))


def teach_traces(examples: Sequence[Example], folder: Path, *, kept: str) -> list[SftRow]:
    """Return the traces in a folder as what is taught; where one was cut off, so is the lesson.

    Args:
        examples: that they answer.
        folder: where ``sample_traces`` wrote.
        kept: ``all`` of them, or the ``correct`` ones.

    Raises:
        DataError: if none is kept.
    """
    traces: dict[str, Any] = {row["id"]: row for row in read_jsonl(folder / _NAME)}
    found = [(example, traces[example.id]) for example in examples]
    rows = [
        SftRow(example, trace["text"], is_finished=trace["is_finished"])
        for example, trace in found
        if kept == "all" or trace["grade"] == "correct"
    ]
    if not rows:
        raise DataError(
            "no trace is correct",
            got=f"{len(found)} traces",
            fix="set sft.traces_kept: all, or sft.traces to a run that has learned something",
        )
    return rows
