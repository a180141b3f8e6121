"""Our SFTTrainer: TRL's, with rows as they are scheduled and token rates in its metrics."""

import time
from pathlib import Path
from typing import Any

from groupwise.training.checkpoints import load_weights


def make_sft_trainer(**named: Any) -> Any:
    """Return an SFTTrainer; ``named`` are SFTTrainer's own arguments."""
    from transformers import PrinterCallback
    from trl.trainer.sft_trainer import SFTTrainer

    class _Trainer(SFTTrainer):
        """SFTTrainer that takes rows as they are scheduled and writes no model card."""

        num_new_tokens = 0
        counted_from = 0.0

        def training_step(self, model: Any, inputs: Any, *rest: Any, **named: Any) -> Any:
            self.counted_from = self.counted_from or time.perf_counter()
            self.num_new_tokens += int(inputs["attention_mask"].sum())
            return super().training_step(model, inputs, *rest, **named)

        def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
            if "loss" in logs:
                now = time.perf_counter()
                logs["tokens_per_s"] = self.num_new_tokens / (now - self.counted_from)
                self.num_new_tokens, self.counted_from = 0, now
            super().log(logs, start_time)

        def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
            load_weights(self.model, Path(checkpoint))

        def _set_signature_columns_if_needed(self) -> None:
            self._signature_columns = ["place"]

        def create_model_card(self, *_: Any, **__: Any) -> None:
            pass

    trainer = _Trainer(**named)
    trainer.remove_callback(PrinterCallback)
    return trainer
