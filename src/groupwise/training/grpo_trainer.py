"""Our GRPOTrainer: the fast one, with the on-policy check and token rates in its metrics."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from groupwise.core import Example, write_json
from groupwise.models import Policy, list_trainable, restore_trainable
from groupwise.training.checkpoints import load_weights
from groupwise.training.on_policy import check_on_policy
from groupwise.training.settings import GrpoSettings
from groupwise.training.vllm_arguments import name_missing_server


def make_grpo_trainer(
    policy: Policy, examples: Sequence[Example], *, settings: GrpoSettings, **named: Any
) -> Any:
    """Return a FastGRPOTrainer for ``policy``; ``named`` are GRPOTrainer's own arguments.

    Its first batch goes through the on-policy check, which writes ``on_policy.json``.
    Only what trains in ``policy`` now will train: switching to the reference adapter and back
    would let other weights train, too.
    """
    from transformers import PrinterCallback

    from groupwise.training.fast.trainer import FastGRPOTrainer

    trainable = list_trainable(policy.model)

    class _Trainer(FastGRPOTrainer):
        """Checks its first batch and writes no model card."""

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            started = time.perf_counter()
            batch = super()._generate_and_score_completions(inputs)
            duration_s = time.perf_counter() - started
            restore_trainable(policy.model, trainable)
            num_tokens = int(batch["completion_mask"].sum())
            self._metrics["train"]["tokens_per_s"].append(num_tokens / duration_s)
            if self.state.global_step == 0 and self._step == 0:
                rows = [examples[row["place"]] for row in inputs]
                result = check_on_policy(self, policy, rows, batch)
                write_json(Path(str(self.args.output_dir)) / "on_policy.json", vars(result))
            return batch

        def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
            load_weights(policy.model, Path(checkpoint))

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

    with name_missing_server(settings.vllm):
        trainer = _Trainer(speed=settings.speed, **named)
    trainer.remove_callback(PrinterCallback)
    restore_trainable(policy.model, trainable)
    return trainer
