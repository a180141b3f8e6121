"""What sampling one round ahead does to a training, and what weighing its losses mends.

*Exact*: a policy that says one of few tokens, whose updates are known in closed form. The expected
gradient of a round that an older policy sampled, by correction, against that of the policy itself.
*Learned*: GRPO of a tiny text policy on a small task, on time and ahead, several seeds; what is
measured is the mean reward of samples for prompts that nobody trained on, and of all that was
sampled in training. No times are taken: without a server nothing is gained.

    python benchmarks/ahead.py --json benchmarks/results/ahead.json
"""

import argparse
import math
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from scipy import stats

from groupwise.core import (
    Example,
    Message,
    Score,
    describe_machine,
    make_example,
    read_jsonl,
    write_json,
)
from groupwise.inference import LocalEngine, Sampling
from groupwise.models import TrainableSettings, load_policy, silence_libraries, write_tiny_policy
from groupwise.rewards import RewardSet
from groupwise.training import GrpoSettings, Workspace, train_grpo

WORDS = ("yes", "no", "on", "off")
SEEDS = (1, 2, 3, 4, 5)
NUM_TOKENS = 2
NUM_ASKED = 8
RATES = (1e-3, 3e-3)
ON_TIME = "on time"
CORRECTIONS: Mapping[str, Mapping[str, Any] | None] = {
    ON_TIME: None,
    "ahead, not weighed": {"correction": None},
    "ahead, tokens cut at 2": {"correction": "token_truncate", "ratio_max": 2.0},
    "ahead, completions cut at 2": {"correction": "sequence_truncate", "ratio_max": 2.0},
}


def measure_bias(*, num_tokens: int = 8, num_policies: int = 200) -> dict[str, list[float]]:
    """Return by way how far expected gradients are from the policy's own, relative to them.

    A policy of ``num_tokens`` tokens, one of which is said; the one that sampled it is a step of
    the policy gradient behind. Rewards and the older policy are drawn anew ``num_policies`` times,
    for steps of three sizes. The expectation over what is said is a sum, so nothing is estimated.
    """
    random = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {}
    for step in (0.5, 2.0, 8.0):
        gaps: dict[str, list[float]] = {}
        for _ in range(num_policies):
            logits = torch.randn(num_tokens, generator=random, dtype=torch.float64)
            rewards = torch.rand(num_tokens, generator=random, dtype=torch.float64)
            before = logits.softmax(0)
            now = (logits + step * _find_gradient(before, before, rewards)).softmax(0)
            true = _find_gradient(now, now, rewards)
            weights = {
                "not weighed": torch.ones(num_tokens, dtype=torch.float64),
                "weighed, no limit": now / before,
                "weighed, cut at 2": (now / before).clamp(max=2),
            }
            for name, weight in weights.items():
                given = _find_gradient(now, before * weight, rewards)
                gaps.setdefault(name, []).append(float((given - true).norm() / true.norm()))
        for name, values in gaps.items():
            found.setdefault(name, []).append(math.fsum(values) / len(values))
    return found


def _find_gradient(policy: torch.Tensor, said: torch.Tensor, rewards: torch.Tensor) -> torch.Tensor:
    """Return Σ said(a) · A(a) · ∂log policy(a)/∂logits, with the policy's own mean as baseline."""
    weighted = said * (rewards - policy @ rewards)
    return weighted - policy * weighted.sum()


def make_examples(seed: int, split: str) -> list[Example]:
    """Return prompts whose answer is the word that they name twice."""
    random = torch.Generator().manual_seed(1000 * seed + (split == "test"))
    examples = []
    for number in range(64 if split == "train" else 48):
        twice = int(torch.randint(len(WORDS), (), generator=random))
        order = torch.randperm(len(WORDS) + 1, generator=random).tolist()
        words = [*WORDS, WORDS[twice]]
        text = " ".join(words[place] for place in order)
        message = Message("user", f"{text} {number % 7}")
        examples.append(
            make_example([message], cluster=f"{split}{number}", fields={"answer": WORDS[twice]})
        )
    return examples


def reward(example: Example, completion: Any) -> Score:
    """Pay for the word, and half of that for any of the words."""
    said = completion.text.strip()
    return Score(1.0 if said == example.fields["answer"] else 0.5 * (said in WORDS))


def learn(
    ahead: Mapping[str, Any] | None, *, rate: float, seed: int, folder: Path
) -> dict[str, Any]:
    """Train, and return what was logged of the ratio and the expected reward on other prompts."""
    texts = [one.prompt[0].text for one in make_examples(seed, "train")]
    base = write_tiny_policy("tiny-qwen2", folder / "base", seed=seed, texts=[*texts, *WORDS])
    policy = load_policy(base)
    settings = GrpoSettings.model_validate(
        {
            "epochs": 4,
            "prompts_per_step": 8,
            "steps_per_generation": 4,
            "group_size": 8,
            "max_new_tokens": NUM_TOKENS,
            "learning_rate": rate,
            "warmup_share": 0,
            "entropy_bonus": 0,
            "trainable": TrainableSettings(method="full"),
            "ahead": ahead,
        }
    )
    rewards = RewardSet({"word": (reward, 1.0)})
    workspace = Workspace(folder / "work", seed)
    train_grpo(policy, make_examples(seed, "train"), rewards, settings, workspace=workspace)
    rows = read_jsonl(workspace.metrics)
    told = {
        name: max(row[name] for row in rows if name in row)
        for name in ("ahead/ratio_max", "ahead/kl")
        if any(name in row for row in rows)
    }
    told["mean_reward"] = math.fsum(row["reward"] for row in rows if "reward" in row)
    told["mean_reward"] /= sum("reward" in row for row in rows)
    return {**told, "reward": _measure(policy, make_examples(seed, "test"))}


def _measure(policy: Any, examples: list[Example]) -> float:
    """Return the mean reward of what the policy says, sampled as in training."""
    policy.model.eval()
    sampling = Sampling(temperature=1.0, max_new_tokens=NUM_TOKENS, seed=0)
    said = LocalEngine(policy).generate(examples, sampling=sampling, num_completions=NUM_ASKED)
    paid = [
        reward(example, one).value
        for example, row in zip(examples, said, strict=True)
        for one in row
    ]
    return math.fsum(value or 0.0 for value in paid) / len(paid)


def compare(learned: Mapping[str, Any]) -> dict[str, Any]:
    """Return by rate and way how much less it learned than on time: mean, 95 % limits of t."""
    found: dict[str, Any] = {}
    for rate, ways in learned.items():
        for way, rows in ways.items():
            for name in ("reward", "mean_reward") if way != ON_TIME else ():
                pairs = zip(rows, ways[ON_TIME], strict=True)
                gaps = [row[name] - other[name] for row, other in pairs]
                mean, error = statistics.fmean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5
                reach = float(stats.t.ppf(0.975, len(gaps) - 1)) * error
                values = [mean, mean - reach, mean + reach]
                found.setdefault(rate, {}).setdefault(way, {})[name] = values
    return found


def main() -> None:
    """Measure and write; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, Any] = {"machine": describe_machine(), "exact": measure_bias(), "learned": {}}
    print(found["exact"], flush=True)
    for rate in RATES:
        for name, ahead in CORRECTIONS.items():
            rows = found["learned"].setdefault(f"{rate:g}", {})[name] = []
            for seed in SEEDS:
                with tempfile.TemporaryDirectory() as folder, silence_libraries():
                    rows.append(learn(ahead, rate=rate, seed=seed, folder=Path(folder)))
                print(rate, name, seed, rows[-1], flush=True)
                write_json(options.json, found)
    write_json(options.json, found | {"compared": compare(found["learned"])})


if __name__ == "__main__":
    main()
