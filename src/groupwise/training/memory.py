"""A training that runs out of memory says which settings to change."""

from collections.abc import Iterator
from contextlib import contextmanager

from groupwise.core import TrainingError
from groupwise.inference.streaming.memory import is_out_of_memory
from groupwise.training.settings import GrpoSettings, SftSettings, TrainerSettings

_SMALLER = {
    GrpoSettings: ("prompts_per_step", "steps_per_generation", "group_size", "max_new_tokens"),
    SftSettings: ("batch_size",),
}


@contextmanager
def name_memory_settings(settings: TrainerSettings) -> Iterator[None]:
    """Within this context an allocation that fails, on any device, is a TrainingError.

    Raises:
        TrainingError: that names the settings which decide how much memory a step takes.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).partition("\n")[0]
        raise TrainingError(
            "a training step ran out of memory",
            got=first_line or type(error).__name__,
            fix=f"{_describe_ways(settings)}; "
            "then run again with --resume: finished steps are kept",
        ) from error


def _describe_ways(settings: TrainerSettings) -> str:
    """Return what to change, each setting with its present value."""
    names = next(names for kind, names in _SMALLER.items() if isinstance(settings, kind))
    values = {name: getattr(settings, name) for name in names}
    given = [f"{name} ({value})" for name, value in values.items() if value is not None]
    ways = [f"lower {', '.join(given)}"]
    ways.append(f"raise gradient_accumulation ({settings.gradient_accumulation}) to make up for it")
    if not settings.gradient_checkpointing:
        ways.append("set gradient_checkpointing (false) to true")
    trainable = settings.trainable
    if trainable.method == "full":
        ways.append("set trainable.method (full) to lora")
    else:
        ways.append(f"lower trainable.lora.last_blocks ({trainable.lora.last_blocks or 'all'})")
    return "; ".join([*ways, "load the model with model.dtype: bfloat16"])
