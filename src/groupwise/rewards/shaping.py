"""The reward of an answer that reads like language, whatever it says."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from groupwise.core import Completion, Example, RewardError, Score
from groupwise.rewards.reward import BatchReward, RewardKind

if TYPE_CHECKING:
    from groupwise.models.policy import Policy

_WIDTH = 2.0
_BATCH_SIZE = 32


class Fluency(BatchReward):
    """1 where a base model finds an answer as likely as most of its own, then falling to 0.

    Checkers see what they check and nothing else: "The river never and together." has the words it
    was asked for. So a base model reads the answer, and its mean log-probability of the tokens
    counts: those after the first, each given what stands before it. The prompt is not read along:
    given the prompt, what the base would have said itself is likely and any other good sentence is
    not, and words that the prompt asks for are likely in any order. For a mean log-probability m
    and a threshold t in nats::

        1                     if m >= t
        1 - (t - m) / 2       if t - 2 < m < t
        0                     if m <= t - 2

    More than the threshold earns nothing: what is most likely is what everybody says. An answer of
    less than two tokens earns 0. Without a base nothing can be computed, and the reward applies to
    no example.

    Args:
        base: what reads the answers; its weights must not be those that train.
        threshold: mean log-probability that earns 1, in nats; see ``find_threshold``.
    """

    name = "fluency"
    kind: RewardKind = "shaping"

    def __init__(self, base: "Policy | None" = None, *, threshold: float = 0.0) -> None:
        self.base = base
        self.threshold = threshold
        self._last: tuple[list[str], list[Score]] = ([], [])

    def applies_to(self, example: Example) -> bool:
        return self.base is not None

    def score_batch(
        self, examples: Sequence[Example], completions: Sequence[Completion]
    ) -> list[Score]:
        """Return the scores, computed in batches; the same texts again, at once."""
        if self.base is None:
            return [Score(None, "no base model is loaded")] * len(completions)
        texts = [completion.text for completion in completions]
        if texts != self._last[0]:  # rewards and measures that combine this one ask again
            scores: list[Score] = []
            for mean in average_log_probs(self.base, completions):
                if mean is None:
                    scores.append(Score(0.0, "less than two tokens"))
                    continue
                value = min(1.0, max(0.0, 1 - (self.threshold - mean) / _WIDTH))
                said = f"{mean:.2f} nats a token, {self.threshold:.2f} or more is fluent"
                scores.append(Score(value, said))
            self._last = texts, scores
        return list(self._last[1])


def average_log_probs(base: "Policy", completions: Sequence[Completion]) -> list[float | None]:
    """Return the mean log-probability of each answer's tokens after the first, in nats.

    None for an answer of less than two tokens. Space around an answer does not count.
    """
    import torch

    from groupwise.models.prompts import encode_words

    rows = [encode_words(base.tokenizer, completion.text.strip()) for completion in completions]
    means: list[float | None] = [None] * len(rows)
    # By length, so that little is padded.
    order = sorted((n for n, row in enumerate(rows) if len(row) > 1), key=lambda n: len(rows[n]))
    for start in range(0, len(order), _BATCH_SIZE):
        batch = order[start : start + _BATCH_SIZE]
        # Padding stands behind a row: what comes later changes nothing before.
        length = max(len(rows[n]) for n in batch)
        ids = torch.tensor([[*rows[n], *[0] * (length - len(rows[n]))] for n in batch])
        ids = ids.to(base.model.device)
        with torch.no_grad():
            logits = base.model(input_ids=ids).logits[:, :-1].float()
            taken = logits.gather(2, ids[:, 1:, None])[..., 0] - logits.logsumexp(-1)
        for n, values in zip(batch, taken, strict=True):
            means[n] = float(values[: len(rows[n]) - 1].mean())
    return means


def find_threshold(base: "Policy", answers: Sequence[Completion], *, percentile: float) -> float:
    """Return the mean log-probability that ``percentile`` % of the base's own answers are below.

    Raises:
        RewardError: if none of the answers has two tokens.
    """
    import numpy as np

    means = [mean for mean in average_log_probs(base, answers) if mean is not None]
    if not means:
        raise RewardError(
            "the base model's own answers are empty, so nothing says what is fluent",
            got=f"{len(answers)} answers",
            fix="choose another base, or leave fluency out",
        )
    return float(np.percentile(means, percentile))
