"""The stage ``prepare``: problems into splits, and what the warm-up teaches about them."""

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from groupwise.core import (
    DataError,
    Example,
    Finding,
    Message,
    derive_seed,
    dump_config,
    load_config,
    make_example,
    read_json,
    write_json,
    write_jsonl,
)
from groupwise.data.columns import fill_template
from groupwise.data.examples import DropLog, read_examples, write_examples
from groupwise.training.settings import SftRow
from groupwise_recipes.workflows.config import WorkflowsConfig
from groupwise_recipes.workflows.forms import draw_form
from groupwise_recipes.workflows.operators import OPERATORS, describe_operators
from groupwise_recipes.workflows.problem_loading import read_problems
from groupwise_recipes.workflows.problem_sets import Problem
from groupwise_recipes.workflows.programs import describe_rules
from groupwise_recipes.workflows.wording import word_as_stub

SPLITS = ("train", "validation", "test")
PROBLEMS = "problems.jsonl"
"""All problems of a run; a stub reads its answers there."""
MIX_REPORT = "mix.json"
_UNTOLD = Finding(
    "warning", "mix_without_report", "Nothing says how the mix was made: it has no mix.json.", 1
)


def prepare_problems(config: WorkflowsConfig, folder: Path) -> None:
    """Write the examples of each split, those of the warm-up, and all problems."""
    examples, drops = choose_examples(config)
    for name, rows in examples.items():
        write_examples(folder / f"{name}.jsonl", rows)
    known = [one.fields["problem"] for rows in examples.values() for one in rows]
    write_jsonl(folder / PROBLEMS, known)
    num_rows = len(known) + drops.total
    write_json(folder / "source.json", {"num_rows": num_rows, "drops": drops.to_json()})


def choose_examples(config: WorkflowsConfig) -> tuple[dict[str, list[Example]], DropLog]:
    """Return the examples by split, and the problems that no split takes."""
    drops = DropLog()
    examples = {
        name: [ask_about_problem(config, one) for one in _take(config, name, rows, drops)]
        for name, rows in load_splits(config).items()
    }
    if config.sft is not None:
        warmup, train = _split_off(examples["train"], config)
        examples |= {"warmup": [_word(config, one) for one in warmup], "train": train}
    _refuse_missing_types(examples)
    return examples, drops


def _word(config: WorkflowsConfig, example: Example) -> Example:
    """Return a question of the warm-up, some of those about code with a signature in it."""
    drawn = random.Random(derive_seed(config.seed, "stub", example.id)).random()
    if example.fields["problem_type"] != "code" or drawn >= config.data.stub_share:
        return example
    return ask_about_problem(config, word_as_stub(load_config(Problem, example.fields["problem"])))


def _refuse_missing_types(examples: Mapping[str, Sequence[Example]]) -> None:
    """Refuse splits in which a type that trains is not there."""
    types = {
        name: {str(one.fields["problem_type"]) for one in rows} for name, rows in examples.items()
    }
    trained = set.union(set(), *(types.get(name, set()) for name in ("train", "warmup")))
    for name, found in types.items():
        missing = sorted(trained - found)
        if missing or not found:
            raise DataError(
                f"the split {name} has no problem of type {', '.join(missing) or 'any'}",
                got=", ".join(sorted(found)) or "none",
                fix="mix more problems of it; clusters (subjects, articles) are never divided",
            )


def load_splits(config: WorkflowsConfig) -> Mapping[str, Sequence[Problem]]:
    """Return the problems by split: of the mix, or generated."""
    mix = config.data.mix
    if mix is None:
        return _generate(config)
    return {name: read_problems(mix / f"{name}.jsonl") for name in SPLITS}


def ask_about_problem(
    config: WorkflowsConfig, problem: Problem, *, prompt: str | None = None
) -> Example:
    """Return what a policy is asked about a problem; ``prompt`` stands for that of the config."""
    places = {
        "problem": problem.problem,
        "operators": describe_operators(OPERATORS),
        "rules": describe_rules(assign_first=config.assign_first, language=config.language),
        "entry_point": problem.entry_point or "none",
    }
    text = fill_template(prompt or config.prompt, places, file="the prompt")
    return make_example(
        [Message("user", text)],
        label=problem.ground_truth,
        cluster=problem.cluster,
        fields={
            "problem": dump_config(problem),
            "problem_type": problem.problem_type,
            "source": problem.source,
        },
    )


def make_warmup_rows(examples: Sequence[Example], *, seed: int) -> Callable[[int], list[SftRow]]:
    """Return new programs for each problem in every epoch, drawn without a look at it."""

    def draw(epoch: int) -> list[SftRow]:
        return [
            SftRow(example, _draw(example, derive_seed(seed, "form", epoch, 0, example.id)))
            for example in examples
        ]

    return draw


def read_warmup(folder: Path) -> list[Example]:
    """Return the problems of the warm-up."""
    return read_examples(folder / "warmup.jsonl")


def _draw(example: Example, seed: int) -> str:
    # A reading lesson: a comment says of which type the problem is. A model that is built here has
    # never read, and without it what it writes does not depend on the problem.
    return draw_form(random.Random(seed), kind=str(example.fields["problem_type"]))


def find_in_mix(config: WorkflowsConfig) -> list[Finding]:
    """Return what a reader has to know of the mix."""
    if config.data.mix is None:
        return []
    path = config.data.mix / MIX_REPORT
    if not path.exists():
        return [_UNTOLD]
    return [Finding(**one) for one in read_json(path, dict)["findings"]]


def _generate(config: WorkflowsConfig) -> Mapping[str, Sequence[Problem]]:
    from groupwise_drawn.problems import draw_problems

    counts = config.data.count_generated()
    return {
        split: [Problem(**one) for one in draw_problems(count, seed=config.seed, split=split)]
        for split, count in counts.items()
    }


def _take(
    config: WorkflowsConfig, split: str, problems: Sequence[Problem], drops: DropLog
) -> list[Problem]:
    """Return the first so many problems of each type, the types in turn; log the others."""
    limit: int | None = getattr(config.data, f"max_{split}")
    by_type: dict[str, list[Problem]] = {}
    for one in problems:
        by_type.setdefault(one.problem_type, []).append(one)
    kept = [rows[:limit] for rows in by_type.values()]
    for one in (one for rows in by_type.values() for one in rows[len(rows[:limit]) :]):
        drops.add(f"more than data.max_{split} of its type", one.id)
    longest = max(map(len, kept), default=0)
    return [rows[n] for n in range(longest) for rows in kept if n < len(rows)]


def _split_off(
    examples: Sequence[Example], config: WorkflowsConfig
) -> tuple[list[Example], list[Example]]:
    """Return the problems of the warm-up and those of GRPO, each type in proportion.

    A cluster is on one side.
    """

    def place(example: Example) -> float:
        return derive_seed(config.seed, "warmup", example.cluster) / 2**31

    def kind(example: Example) -> str:
        return str(example.fields["problem_type"])

    warmup: set[str] = set()
    for _, rows in groupby(sorted(examples, key=kind), kind):
        ordered = sorted(rows, key=lambda one: (place(one), one.cluster))
        cut = ordered[: round(len(ordered) * config.data.warmup_share)]
        warmup |= {one.cluster for one in cut}
    return (
        [one for one in examples if one.cluster in warmup],
        [one for one in examples if one.cluster not in warmup],
    )


def describe_sources(examples: Mapping[str, Sequence[Example]]) -> dict[str, dict[str, int]]:
    """Return how many problems of each set are in each split."""
    return {
        split: dict(Counter(str(one.fields["source"]) for one in rows))
        for split, rows in examples.items()
    }
