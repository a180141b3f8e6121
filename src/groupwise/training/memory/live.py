"""Bytes of the tensors that something holds, now and at most."""

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter


class LiveBytes(TorchDispatchMode):
    """Counts the storages of all tensors that operations return, for as long as they are held.

    Each is counted once, however many tensors look at it. Buffers that a kernel has to itself
    while it runs are not seen.

    Attributes:
        now: bytes that are held.
        peak: the most that were held at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._sizes: dict[int, int] = {}

    def hold(self, tensors: Iterable[torch.Tensor]) -> int:
        """Count tensors that are there already; return their bytes."""
        before = self.now
        for tensor in tensors:
            self._count(tensor)
        return self.now - before

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call an operation and count what it returns."""
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented  # it calls others on its parts
        output = self.call(func, args, kwargs or {})
        for value in tree_iter(output):
            if isinstance(value, torch.Tensor):
                self._count(value)
        return output

    def call(self, func: Any, args: Any, kwargs: Mapping[str, Any]) -> Any:
        """Return what the operation returns."""
        return func(*args, **kwargs)

    def recount(self, storage: torch.UntypedStorage) -> None:
        """Count a storage as large as it is now: it was resized."""
        key = storage._cdata
        if key in self._sizes:
            self._add(storage.nbytes() - self._sizes[key])
            self._sizes[key] = storage.nbytes()

    def _count(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._sizes:
            self._sizes[key] = storage.nbytes()
            self._add(storage.nbytes())
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self._sizes.pop(key)

    def _add(self, size: int) -> None:
        self.now += size
        self.peak = max(self.peak, self.now)
