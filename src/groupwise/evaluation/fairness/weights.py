"""Whether training moved the weights: tensor by tensor, up to the first one that differs."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from groupwise.core import EvaluationError

_ADAPTER = "adapter_model.safetensors"


def find_still_weights(before: Path, after: Path) -> str | None:
    """Return how nothing was trained between two policy folders, or None if something was.

    It is ``unmoved_adapter``: an adapter that is zero; or ``unmoved_weights``: all those of the
    folder before. Tensors are read one at a time; what cannot be compared (no weight files, other
    names) is not called still.

    Raises:
        EvaluationError: if a weight file is damaged.
    """
    adapter = after / _ADAPTER
    if adapter.is_file() and not (before / _ADAPTER).is_file():
        return "unmoved_adapter" if _is_zero(adapter) else None
    return "unmoved_weights" if are_same_weights(after, before) else None


def are_same_weights(one: Path, two: Path) -> bool | None:
    """Return whether two policy folders hold the same weights, None where one holds none.

    Raises:
        EvaluationError: if a weight file is damaged.
    """
    files = [*_list_files(one)], [*_list_files(two)]
    return _are_equal(*files) if all(files) else None


def _list_files(folder: Path) -> Iterator[Path]:
    adapter = folder / _ADAPTER
    yield from [adapter] if adapter.is_file() else sorted(folder.glob("*.safetensors"))


def _is_zero(adapter: Path) -> bool:
    """Whether every product of factors is zero: all B matrices (LoRA starts them at zero)."""
    with ExitStack() as stack:
        tensors = _open([adapter], stack)
        factors = [name for name in sorted(tensors) if "lora_B" in name]
        return bool(factors) and not any(
            bool(tensors[name].get_tensor(name).any()) for name in factors
        )


def _are_equal(one: list[Path], two: list[Path]) -> bool:
    with ExitStack() as stack:
        of_one, of_two = _open(one, stack), _open(two, stack)
        if set(of_one) != set(of_two):
            return False
        return all(
            _is_same(of_one[name].get_tensor(name), of_two[name].get_tensor(name))
            for name in sorted(of_one)
        )


def _is_same(a: Any, b: Any) -> bool:
    return bool(a.shape == b.shape and (a == b.to(a.dtype)).all())


def _open(files: list[Path], stack: ExitStack) -> dict[str, Any]:
    """Return the open file that holds each tensor, by the tensor's name."""
    import safetensors

    safe_open: Any = safetensors.safe_open  # pyright: ignore (untyped)
    found: dict[str, Any] = {}
    for path in files:
        try:
            opened: Any = stack.enter_context(safe_open(str(path), framework="pt"))
        except (OSError, safetensors.SafetensorError) as error:  # pyright: ignore
            raise EvaluationError(
                f"the weights {path} are damaged ({error})", fix="run the step that trains again"
            ) from error
        found |= dict.fromkeys(opened.keys(), opened)
    return found
