"""What a short prompt saves: a trained policy's own prompt against long instructions, in pairs.

    python benchmarks/short_prompt.py RUN --pairs 100 --json results.json

RUN is a finished run of on_task. The same weights are asked about the same pictures of the test
split, one by one, with the run's prompt and with the instructions of ``long_prompt.txt`` before it,
each first in turn. The long one writes no more tokens than the short one did, so that only reading
differs. Again with the pictures enlarged, which adds tokens to both.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from groupwise.core import (
    Example,
    Message,
    describe_machine,
    open_picture,
    read_picture,
    write_json,
)
from groupwise.data.examples import read_examples
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.policy import load_policy
from groupwise.models.prompts import make_token_counter
from groupwise.run.predict import open_run

INSTRUCTIONS = Path(__file__).with_name("long_prompt.txt").read_text(encoding="utf-8")
SIDES = {"as in the run": None, "enlarged": (1280, 960)}
MAX_PIXELS = 2_000_000


def main() -> None:
    """Time the pairs and print what came of it."""
    options = parse_options()
    run = open_run(options.run.absolute())
    examples = read_examples(run.folder / run.task.data_stage / "test.jsonl")[: options.pairs]
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            time_pictures(run, enlarge(examples, size, Path(folder)), options.policy) | {"of": name}
            for name, size in SIDES.items()
        ]
    report = {"base": run.config.model.base, "rows": rows}
    print(json.dumps(report, indent=2))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})


def parse_options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--policy", default="grpo")
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def enlarge(
    examples: Sequence[Example], size: tuple[int, int] | None, folder: Path
) -> list[Example]:
    """Return the examples with pictures of that size, or as they are."""
    if size is None:
        return list(examples)
    found: list[Example] = []
    for number, example in enumerate(examples):
        path = folder / f"{number}.png"
        open_picture(example.pictures[0].path).resize(size).save(path)
        parts = [one if isinstance(one, str) else read_picture(path) for one in list_parts(example)]
        found.append(replace(example, prompt=(Message("user", tuple(parts)),)))
    return found


def list_parts(example: Example) -> list[Any]:
    """Return the parts of the one turn."""
    (turn,) = example.prompt
    return list(turn.parts)


def instruct(example: Example) -> Example:
    """Return an example with the long instructions before its question."""
    parts = [INSTRUCTIONS + one if isinstance(one, str) else one for one in list_parts(example)]
    return replace(example, prompt=(Message("user", tuple(parts)),))


def time_pictures(run: Any, examples: Sequence[Example], policy: str) -> dict[str, Any]:
    """Return tokens, seconds and ratios of the pairs."""
    opened = load_policy(run.find_policy(policy), dtype="float32", max_pixels=MAX_PIXELS)
    engine, limit = LocalModel(opened, batch_size=1), run.config.grpo.max_new_tokens
    count = make_token_counter(opened.processor, has_vision=True)

    def ask(example: Example, num_tokens: int) -> tuple[float, int]:
        start = time.perf_counter()
        [[found]] = engine.generate([example], sampling=Sampling(max_new_tokens=num_tokens))
        return time.perf_counter() - start, len(found.token_ids)

    pairs = [(one, instruct(one)) for one in examples]
    for example in pairs[0]:
        ask(example, limit)
    seconds: list[tuple[float, float]] = []
    for number, (short, long) in enumerate(pairs):
        num_tokens = ask(short, limit)[1]
        if number % 2:
            long_s, short_s = ask(long, num_tokens)[0], ask(short, num_tokens)[0]
        else:
            short_s, long_s = ask(short, num_tokens)[0], ask(long, num_tokens)[0]
        seconds.append((short_s, long_s))
    ratios = [short_s / long_s for short_s, long_s in seconds]
    low, median, high = np.percentile(ratios, [25, 50, 75])
    num_short, num_long = map(count, pairs[0])
    words = "".join(one for one in list_parts(examples[0]) if isinstance(one, str))
    num_words = count(replace(examples[0], prompt=(Message("user", words),)))
    return {
        "pairs": len(pairs),
        "picture_tokens": num_short - num_words,
        "short_tokens": num_short,
        "long_tokens": num_long,
        "short_s": round(float(np.median([one for one, _ in seconds])), 4),
        "long_s": round(float(np.median([two for _, two in seconds])), 4),
        "ratio": round(float(median), 3),
        "ratio_low": round(float(low), 3),
        "ratio_high": round(float(high), 3),
    }


if __name__ == "__main__":
    main()
