"""What the GRPO policy of a finished run answers to the warm-up's questions, to be taught.

A trace is a field of the example that it answers, so that what is taught is known by its content
wherever the run lies.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from groupwise.core import ConfigError, DataError, Example, derive_seed, write_json
from groupwise.data.examples import write_examples
from groupwise.training.settings import SftRow
from groupwise_recipes.visual_reasoning.answers import QUESTION_PARSER
from groupwise_recipes.visual_reasoning.teaching import read_warmup

_FIELD = "trace"
_GRADES: Mapping[float | None, str] = {None: "invalid", 0.0: "wrong", 1.0: "correct"}


def find_traced(run: Path) -> Path:
    """Return the folder of the policy whose traces are taught."""
    if not (run / "grpo" / "step.json").is_file():
        raise ConfigError("sft.traces is no run with a finished GRPO", got=str(run))
    return run / "grpo" / "policy"


def sample_traces(run: Path, folder: Path, *, seed: int) -> None:
    """Give each example of a warm-up one trace, sampled as the run's GRPO samples."""
    from groupwise.inference.local import LocalModel
    from groupwise.inference.model import Sampling
    from groupwise.run.asking import open_policy
    from groupwise.run.predict import open_run

    config = open_run(run).config
    sampling = Sampling(
        temperature=config.grpo.temperature,
        max_new_tokens=config.grpo.max_new_tokens,
        seed=derive_seed(seed, "traces"),
    )
    policy = open_policy(config, find_traced(run))
    engine = LocalModel(policy, batch_size=config.evaluation.batch_size)
    examples = read_warmup(folder)
    replies = engine.generate(examples, sampling=sampling)
    traced = [
        add_trace(example, reply.text, is_finished=reply.finish_reason == "stop")
        for example, [reply] in zip(examples, replies, strict=True)
    ]
    write_examples(folder / "warmup.jsonl", traced)
    write_json(folder / "traces.json", Counter(one.fields[_FIELD]["grade"] for one in traced))


def add_trace(example: Example, text: str, *, is_finished: bool) -> Example:
    """Return an example with a trace that answers it, and how right that is."""
    grade = _GRADES[QUESTION_PARSER.measure(example, text)]
    trace = {"text": text, "is_finished": is_finished, "grade": grade}
    return replace(example, fields={**example.fields, _FIELD: trace})


def teach_traces(examples: Sequence[Example], *, kept: str) -> list[SftRow]:
    """Return traces as what is taught; where one was cut off, so is the lesson."""
    found = [(example, example.fields[_FIELD]) for example in examples]
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
