"""After each sync: vLLM's log-probabilities of what it sampled are about the policy's own.

They never quite are: vLLM has other kernels, and often another precision. Weights that did not
arrive, arrived in part, or of a stale prefix cache are farther off, once training has moved them by
more than that; so are a server of another model and one that leaves the temperature out.
"""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from accelerate.utils import gather_object

from groupwise.core import TrainingError
from groupwise.training.fast.guard import pick_rows
from groupwise.training.on_policy import PICTURE_NAMES
from groupwise.training.settings import VllmSettings

_MAX_ROWS = 4


def check_sampler(trainer: Any, batch: Mapping[str, Any], settings: VllmSettings | None) -> None:
    """See that a round was sampled from the policy.

    Old log-probabilities are used where the round has them, of all rows; otherwise a few rows go
    through a plain pass. Every process takes part.

    Args:
        trainer: a FastGRPOTrainer.
        batch: its newest round.
        settings: with the limit; None: it does not sample with vLLM.

    Raises:
        TrainingError: if the mean difference of a token is beyond the limit, or is no number.
    """
    if settings is None or settings.max_logprob_gap is None:
        return
    gaps = [gap for part in gather_object([_measure(trainer, batch)]) for gap in part]
    if not gaps:
        warnings.warn("what vLLM sampled could not be scored: weights are unchecked", stacklevel=2)
        return
    # Behind top_p vLLM's probabilities are of the kept tokens alone.
    limit = settings.max_logprob_gap - math.log(trainer.top_p)
    mean = math.fsum(gaps) / len(gaps)
    if not mean <= limit:
        raise TrainingError(
            "vLLM did not sample from the policy: its weights are not those of training",
            got=f"log-probabilities of {len(gaps)} tokens that differ by {mean:.2g} on average",
            expected=f"at most {limit:.2g}",
            fix="see that the server serves the model that GRPO starts from, as grpo.vllm "
            "describes; if the model is one whose kernels differ so much (experts, "
            "quantisation), raise grpo.vllm.max_logprob_gap",
        )


@torch.no_grad()
def _measure(trainer: Any, batch: Mapping[str, Any]) -> list[float]:
    """Return how far the log-probabilities of this process's tokens are apart."""
    mask = batch["completion_mask"].bool()
    sampled, own = batch["sampling_per_token_logps"], batch.get("old_per_token_logps")
    if own is None:
        found = _score_few(trainer, batch)
        if found is None:
            return []
        rows, own = found
        sampled, mask = sampled[rows], mask[rows]
        return _list_gaps(own, sampled[mask])
    return _list_gaps(own[mask], sampled[mask])


def _list_gaps(own: torch.Tensor, sampled: torch.Tensor) -> list[float]:
    # What vLLM could not score has no number there.
    return (own - sampled).abs()[~sampled.isnan()].tolist()


def _score_few(trainer: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Return some rows, and the log-probabilities of their tokens by a plain pass."""
    ids, mask = (
        torch.cat([batch[f"prompt_{kind}"], batch[f"completion_{kind}"]], dim=1)
        for kind in ("ids", "mask")
    )
    named = {name: batch.get(name) for name in PICTURE_NAMES}
    scored = trainer._collect_rows(ids, mask, batch["completion_ids"].shape[1], named)
    if scored is None:
        return None
    rows = pick_rows(scored, _MAX_ROWS)
    return rows, trainer._score_plainly(trainer.model, scored.take(rows))
