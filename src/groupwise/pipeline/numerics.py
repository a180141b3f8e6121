"""A tiny training that is always the same: its weights tell two machines apart."""

from collections.abc import Iterator
from pathlib import Path

from groupwise.core import (
    Completion,
    Example,
    Message,
    Score,
    digest_bytes,
    make_example,
    one_thread,
)
from groupwise.models import Policy, TrainableSettings, load_policy, write_tiny_policy
from groupwise.rewards import RewardSet
from groupwise.training import (
    GrpoSettings,
    SftRow,
    SftSettings,
    Workspace,
    train_grpo,
    train_sft,
)

_WHOLE = TrainableSettings(method="full")
_SFT = SftSettings(batch_size=4, epochs=4, learning_rate=1e-3, trainable=_WHOLE)
_GRPO = GrpoSettings(
    prompts_per_step=4,
    group_size=4,
    max_new_tokens=8,
    temperature=2.0,
    learning_rate=1e-3,
    warmup_share=0.0,
    beta=0.0,
    trainable=_WHOLE,
)


class _Scatter:
    """A reward that no training can make constant."""

    name = "scatter"

    def __call__(self, example: Example, completion: Completion) -> Score:
        return Score((sum(completion.token_ids) % 7) / 6, invalid=False)


def train_fixed(folder: Path) -> Iterator[tuple[str, str]]:
    """Train with one thread; yield the digest of all weights at the start and after each part.

    Args:
        folder: an empty one for what the training writes.
    """
    with one_thread():
        policy = load_policy(write_tiny_policy("tiny-qwen2", folder / "base", seed=0))
        yield "start", digest_policy(policy)
        examples = [
            make_example([Message("user", [f"{number} + 1?"])], cluster="1", label=str(number + 1))
            for number in range(8)
        ]
        rows = [SftRow(one, str(one.label)) for one in examples]
        policy = train_sft(policy, lambda _: rows, _SFT, workspace=Workspace(folder / "sft", 0))
        yield "SFT", digest_policy(policy)
        rewards = RewardSet({"scatter": (_Scatter(), 1.0)})
        workspace = Workspace(folder / "grpo", 0)
        policy = train_grpo(policy, examples, rewards, _GRPO, workspace=workspace)
        yield "GRPO", digest_policy(policy)


def digest_policy(policy: Policy) -> str:
    """Return the digest of every bit of a policy's weights, by name."""
    weights = sorted(policy.model.state_dict().items())
    parts = (name.encode() + value.cpu().numpy().tobytes() for name, value in weights)
    return digest_bytes(b"".join(parts))
