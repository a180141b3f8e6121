"""A GRPO trainer, stock or Groupwise's, that a benchmark steps by hand."""

import tempfile
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from grpo_floor import wait_for
from grpo_models import Shape, score_completions
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

from groupwise.training.fast.trainer import FastGRPOTrainer
from groupwise.training.settings import SpeedSettings


@dataclass
class Steps:
    """What was measured of one trainer's steps.

    Attributes:
        total_s: of each step: sampling, reference, policy pass, backward, optimizer.
        sampling_s: sampling and the reference's pass alone.
    """

    total_s: list[float] = field(default_factory=list)
    sampling_s: list[float] = field(default_factory=list)


class Runner:
    """One trainer on its own policy; keeps what its steps cost.

    Args:
        shape: of the job.
        policy: a PEFT model and its processor.
        rows: prompts for all steps.
        speed: of Groupwise's trainer; None: the stock trainer.
        device: of the model.
    """

    def __init__(
        self,
        shape: Shape,
        policy: tuple[Any, Any],
        rows: Any,
        *,
        speed: SpeedSettings | None,
        device: torch.device,
    ) -> None:
        self.shape = shape
        model, processor = policy
        extra = {} if speed is None else {"speed": speed}
        self.trainer: Any = (GRPOTrainer if speed is None else FastGRPOTrainer)(
            model=model,
            reward_funcs=[score_completions],
            args=make_arguments(shape, model, device),
            train_dataset=rows,
            processing_class=processor,
            **extra,
        )
        self.device = device
        self.trainer.create_optimizer()
        self.trainer.current_gradient_accumulation_steps = 1
        self.trainer.model.train()
        self.batches = iter(self.trainer.get_train_dataloader())
        self.steps = Steps()
        self.rollout: dict[str, Any] = {}
        self._time_sampling()

    def _time_sampling(self) -> None:
        sample = self.trainer._generate_and_score_completions

        def timed(rows: Any) -> Any:
            started = time.perf_counter()
            self.rollout = sample(rows)
            wait_for(self.device)
            self.steps.sampling_s.append(time.perf_counter() - started)
            return self.rollout

        self.trainer._generate_and_score_completions = timed

    def step(self, seed: int) -> None:
        """Do one step; its gradient stays until the next.

        After the first step, which is compared with TRL's, Groupwise samples by the rows' seeds.
        """
        trainer, rows = self.trainer, next(self.batches)
        if seed and isinstance(trainer, FastGRPOTrainer):
            size = trainer.num_generations
            rows = [{**row, "sampling_seed": n // size} for n, row in enumerate(rows)]
        torch.manual_seed(seed)
        wait_for(self.device)
        started = time.perf_counter()
        trainer.optimizer.zero_grad()
        trainer.training_step(trainer.model, rows, None)
        trainer.optimizer.step()
        wait_for(self.device)
        self.steps.total_s.append(time.perf_counter() - started)

    def forget_round(self) -> None:
        """Let go of what the last step sampled."""
        self.rollout = {}
        self.trainer._buffered_inputs = None
        self.trainer._round = None

    def read_gradient(self) -> torch.Tensor:
        """Return the gradient of all that trains as one vector."""
        found = [p.grad.flatten() for p in self.trainer.model.parameters() if p.grad is not None]
        return torch.cat(found)

    def list_noise(self) -> dict[str, float]:
        """Return what its comparisons with plain passes measured; empty for the stock trainer."""
        guard = getattr(self.trainer, "_guard", None)
        if guard is None or not guard.comparisons:
            return {}
        worst = max(guard.comparisons, key=lambda one: one.difference / one.tolerance)
        return {
            "shared_diff": worst.difference,
            "plain_diff": worst.noise,
            "tolerance": worst.tolerance,
        }

    def has_fallen_back(self) -> bool:
        """Whether prompts are not shared any more."""
        return not getattr(self.trainer, "_shares", True)


def _find_picture_tokens(model: Any) -> list[int]:
    """Return tokens that stand for pictures: a random policy may say them where there is none."""
    found = [getattr(model.config, name, None) for name in ("image_token_id", "video_token_id")]
    return [token for token in found if token is not None]


def make_arguments(shape: Shape, model: Any, device: torch.device, **changes: Any) -> GRPOConfig:
    """Return the arguments of a trainer for one process; ``changes`` are GRPOConfig's own."""
    banned = _find_picture_tokens(model) or None
    fixed: dict[str, Any] = {
        "output_dir": tempfile.mkdtemp(),
        "per_device_train_batch_size": shape.num_prompts * shape.group_size,
        "num_generations": shape.group_size,
        "max_completion_length": shape.num_tokens,
        "generation_kwargs": {"min_new_tokens": shape.num_tokens, "suppress_tokens": banned},
        "beta": shape.beta,
        "activation_checkpointing": False,
        "learning_rate": 1e-5,
        "bf16": model.dtype == torch.bfloat16,
        "use_cpu": device.type == "cpu",
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "seed": 0,
    }
    return GRPOConfig(**(fixed | changes))
