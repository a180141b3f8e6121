"""Programs refused with and without the rule "assign every variable first" in the prompt.

    python benchmarks/refusals.py --json results.json

For each seed a policy with random weights is taught forms of programs, a share of which has
mistakes, from prompts that have the rules for programs, with that rule and without it. Then
programs are sampled for problems of the test split, at temperature 1, and checked. The same seeds,
problems and forms in both arms. There is no GRPO, and nothing is executed.

A policy that has read nothing but this cannot know what a rule says: what it writes is what it was
taught, and the expectation is no difference. A large model is not measured here.
"""

import argparse
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.core import derive_seed, describe_machine, load_config, write_json
from groupwise.data.examples import read_examples
from groupwise.inference.local import LocalModel
from groupwise.inference.model import Sampling
from groupwise.models.policy import load_policy
from groupwise.run.recipe import Recipe, find_recipe
from groupwise.run.running import plan_steps
from groupwise.run.steps import run_steps
from groupwise_recipes.workflows.operators import OPERATORS, signatures
from groupwise_recipes.workflows.programs import check_program

SETTINGS = (
    'prompt="Rules:\\n{{ rules }}\\n\\nProblem:\\n{{ problem }}"',
    "data.budget.max_prompt_tokens=1024",
    "data.num_generated=600",
    "data.max_test=10",
    "sft.batch_size=8",
)
ARMS = {"with": True, "without": False}
RULED = "unassigned"
"""The reason of a refusal that the rule is about."""


def teach(recipe: Recipe[Any], run: Path, *, seed: int, arm: str, epochs: int) -> Path:
    """Teach a policy forms of programs; return the run folder."""
    changes = (*SETTINGS, f"seed={seed}", f"sft.epochs={epochs}", f"assign_first={ARMS[arm]}")
    config = load_config(
        recipe.load_config_type(), recipe.config_folder / "demo.yaml", overrides=changes
    )
    run.mkdir()
    steps = {one.name: one for one in plan_steps(recipe, config, run)}
    run_steps([steps["prepare"], steps["sft"]], run)
    return run


def sample(run: Path, *, seed: int, num_samples: int) -> list[str]:
    """Return programs that the policy writes for problems of the test split."""
    policy = load_policy(run / "sft" / "policy", dtype="float32")
    sampling = Sampling(temperature=1.0, max_new_tokens=120, seed=derive_seed(seed, "refusals"))
    found = LocalModel(policy, batch_size=4).generate(
        read_examples(run / "prepare" / "test.jsonl"),
        sampling=sampling,
        num_completions=num_samples,
    )
    return [one.text for texts in found for one in texts]


def count_refusals(programs: Sequence[str]) -> Counter[str]:
    """Return how many programs are refused, by reason."""
    known = signatures(OPERATORS)
    found = (check_program(one, known).refusal for one in programs)
    return Counter(one.reason for one in found if one is not None)


def compare(rows: Sequence[dict[str, Any]], name: str) -> dict[str, float]:
    """Return the mean over seeds of the difference of a share, without less with; 95 % by t."""
    from scipy.stats import t

    shares = {(row["seed"], row["arm"]): row[name] / row["num_programs"] for row in rows}
    seeds = sorted({row["seed"] for row in rows})
    gaps = [shares[seed, "without"] - shares[seed, "with"] for seed in seeds]
    mean = statistics.mean(gaps)
    half = float(t.ppf(0.975, len(gaps) - 1)) * statistics.stdev(gaps) / len(gaps) ** 0.5
    return {"estimate": mean, "low": mean - half, "high": mean + half}


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--num-samples", type=int, default=16, help="of each problem")
    given = parser.parse_args()
    recipe = find_recipe("workflows")
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(given.seeds):
            for arm in ARMS:
                run = Path(folder) / f"{seed}-{arm}"
                teach(recipe, run, seed=seed, arm=arm, epochs=given.epochs)
                programs = sample(run, seed=seed, num_samples=given.num_samples)
                reasons = count_refusals(programs)
                rows.append(
                    {
                        "seed": seed,
                        "arm": arm,
                        "num_programs": len(programs),
                        "refused": reasons.total(),
                        "ruled": reasons[RULED],
                        "reasons": dict(reasons.most_common()),
                    }
                )
                print(rows[-1], flush=True)
    found = {name: compare(rows, name) for name in ("refused", "ruled")}
    print(found)
    if given.json:
        settings = {**vars(given), "json": given.json.name, "settings": list(SETTINGS)}
        write_json(
            given.json, {"rows": rows, "without less with": found, **settings, **describe_machine()}
        )


if __name__ == "__main__":
    main()
