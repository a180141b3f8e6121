"""Weights that FSDP2 spreads over processes, on the CPU, too, gathered for a while."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.state import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from groupwise.core import TrainingError
from groupwise.models.quantization import find_quantization
from groupwise.training.checkpoints import load_weights
from groupwise.training.processes import is_first_process, spreads_weights

_MARK = "_is_fsdp_managed_module"


def is_spread(model: Any) -> bool:
    return isinstance(model, FSDPModule)


class ShardedTraining:
    """Lets a trainer of Transformers spread weights over processes, on the CPU, too."""

    accelerator: Any
    args: Any
    is_fsdp_enabled: bool
    model: Any

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Let a warm-up that is a share, which Transformers rounds up, end before the last step."""
        num_rising = self.args.get_warmup_steps(num_training_steps)
        if self.args.warmup_steps < 1:
            self.args.warmup_steps = min(num_rising, num_training_steps - 1)
        elif self.args.lr_scheduler_type != "constant" and num_rising >= num_training_steps:
            raise TrainingError(
                "the learning rate would never reach its peak",
                got=f"a warm-up of {num_rising} steps in a training of {num_training_steps}",
                fix="lower warmup_steps, or train for more steps",
            )
        return cast("Any", super()).create_scheduler(num_training_steps, optimizer)

    def create_accelerator_and_postprocess(self) -> None:
        """Make the accelerator; where FSDP was asked for in vain, say that it is there."""
        cast("Any", super()).create_accelerator_and_postprocess()
        state = self.accelerator.state
        given = self.args.fsdp_plugin_args if self.args.fsdp else None
        if given is None or state.distributed_type != DistributedType.MULTI_CPU:
            return
        state.distributed_type = DistributedType.FSDP
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP
        state.fsdp_plugin = FullyShardedDataParallelPlugin(**given)
        self.is_fsdp_enabled = True

    def _load_from_checkpoint(self, checkpoint: str, model: Any = None) -> None:
        if not is_spread(self.model):
            load_weights(self.model, Path(checkpoint))

    def create_model_card(self, *_: Any, **__: Any) -> None:
        pass

    def train(self, resume_from_checkpoint: Any = None, **named: Any) -> Any:
        if resume_from_checkpoint and self.is_fsdp_enabled:
            self._load_from_checkpoint(resume_from_checkpoint)
        return cast("Any", super()).train(resume_from_checkpoint=resume_from_checkpoint, **named)


def refuse_quantized(trainer: Any) -> None:
    if trainer.is_fsdp_enabled and find_quantization(trainer.model) is not None:
        raise TrainingError(
            "weights in 4 bits are not spread over processes",
            got="FSDP",
            fix="leave it out, and each process holds all of them; or set model.quantization null",
        )


class WholeModel:
    """A model in the form before its weights are spread, for those that it ends with."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._form: Any = None
        if spreads_weights() and is_first_process():
            empty = {id(p): nn.Parameter(p.to("meta"), p.requires_grad) for p in model.parameters()}
            self._form = copy.deepcopy(model, {**empty})

    def fill(self, trainer: Any) -> Any:
        """Return the trained model, in the first process whole; every one must take part."""
        if not is_spread(trainer.model):
            return self._model
        weights = trainer.accelerator.get_state_dict(trainer.model)
        if self._form is None:
            return trainer.model
        own = self._form.state_dict()
        self._form.load_state_dict({name: weights[name] for name in own}, assign=True)
        self._form.tie_weights()
        return self._form


def join(parameter: Any) -> torch.Tensor:
    """Return the whole of a parameter of which processes hold parts; every one must take part."""
    value = parameter.detach()
    return value.full_tensor() if isinstance(value, DTensor) else value


@contextmanager
def gather_weights(model: Any) -> Iterator[None]:
    """Within this context each process holds all weights, and its passes need no other process.

    Every process must enter and leave it. Nothing may be trained there.
    """
    if not is_spread(model):
        yield
        return
    root: Any = model
    root._get_fsdp_state()._lazy_init()  # or the part that comes first would think it is the root
    parts: list[Any] = [part for part in model.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.unshard()
    groups = [group for part in parts for group in part._get_fsdp_state()._fsdp_param_groups]
    # What ``set_reshard_after_forward`` sets; it cannot be asked for what it was.
    kept = [group.post_forward_mesh_info for group in groups]
    for group in groups:
        group.post_forward_mesh_info = None
    # By this mark of ``fully_shard`` ``generate`` would go on until all processes have done so.
    marked = [part for part in model.modules() if getattr(part, _MARK, False)]
    try:
        for part in marked:
            setattr(part, _MARK, False)
        yield
    finally:
        for part in marked:
            setattr(part, _MARK, True)
        for group, mesh in zip(groups, kept, strict=True):
            group.post_forward_mesh_info = mesh
        # It would gather, in the next backward pass, along the order of these passes, too, which
        # is another one in each process.
        root.reset_iter_state()


def gather_head(model: Any) -> None:
    """Gather a model's output head, which TRL reads without calling, until the backward pass."""
    if is_spread(model):
        root: Any = model
        root._get_fsdp_state()._lazy_init()
        head = root.get_output_embeddings()
        if isinstance(head, FSDPModule):
            head.unshard()
