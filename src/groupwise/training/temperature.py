"""The temperature of a round, where it rises: of its sampling and of all its log-probabilities."""

from collections.abc import Iterator
from types import CellType
from typing import Any

from groupwise.core import TrainingError
from groupwise.training.objectives import go_linearly
from groupwise.training.settings import GrpoSettings


def find_temperature(settings: GrpoSettings, *, step: int) -> float:
    """Return the temperature of what is sampled before update ``step``, the first of which is 0."""
    rising = settings.temperature_warmup
    if rising is None:
        return settings.temperature
    return go_linearly(rising.start, settings.temperature, done=min(1.0, step / rising.steps))


def set_temperature(trainer: Any, value: float) -> None:
    """Make a GRPOTrainer sample and score at another temperature.

    Raises:
        TrainingError: if the trainer keeps it in a place that is not known here.
    """
    if value == trainer.temperature:
        return
    trainer.temperature = value
    for sampler in ("generation_config", "vllm_generation"):
        if hasattr(trainer, sampler):
            getattr(trainer, sampler).temperature = value
    for model in (trainer.model, trainer.ref_model):
        if model is not None:
            _find_cell(trainer.accelerator.unwrap_model(model)).cell_contents = value


def _find_cell(model: Any) -> CellType:
    """Return where TRL's fused head (``add_fused_lm_head``) keeps the temperature it was made with.

    The head is a closure, which other libraries may have wrapped.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    for function in _unwrap(base.forward):
        names = function.__code__.co_freevars
        if function.__name__ == "_fused_forward" or "temperature" in names:
            return function.__closure__[names.index("temperature")]
    raise TrainingError(
        "this version of TRL does not let the temperature change while it trains",
        fix="leave grpo.temperature_warmup out, or install the pinned version of TRL",
    )


def _unwrap(function: Any) -> Iterator[Any]:
    """Return a function and those that it closes over, the outermost first."""
    plain = getattr(function, "__func__", function)
    if not hasattr(plain, "__code__"):
        return
    yield plain
    for cell in plain.__closure__ or ():
        if callable(cell.cell_contents):
            yield from _unwrap(cell.cell_contents)
