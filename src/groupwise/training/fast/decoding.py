"""Decoding on a GPU as one recorded pass, so that a token does not wait for the host.

A pass over one token is thousands of small kernels, and launching them one by one takes longer than
running them. A CUDA graph launches all of them at once, over tensors that stay where they are.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, wraps
from typing import Any
from weakref import WeakSet

import torch
from torch.utils import _pytree as pytree
from transformers.cache_utils import Cache, StaticLayer

_log = logging.getLogger(__name__)

MIN_TOKENS = 8
"""Fewer new tokens take longer to record than to decode."""

Recorder = Callable[[Callable[[], Any]], tuple[Any, Callable[[], None]]]
"""Given a pass, returns what it returned and what does the same again into the same tensors."""

# Beside the first replay, the one that is compared with a launched pass: positions have moved on.
_COMPARED_AGAIN = 16
# Of logits, relative: the same kernels run on the same numbers, perhaps with other workspaces.
_MAX_DIFFERENCE, _MAX_DIFFERENCE_HALF = 1e-5, 0.01
# Models whose passes cannot be recorded, or came out differently.
_refused = WeakSet[Any]()
_PLAIN_ATTENTION = frozenset(("sdpa", "eager"))


def record_on_gpu(run: Callable[[], Any]) -> tuple[Any, Callable[[], None]]:
    """Record a pass as a CUDA graph; nothing is computed before it is replayed.

    Raises:
        RuntimeError: if a kernel needs an answer of the host.
    """
    device = torch.cuda.current_device()
    stream, first = _open_place(device)
    graph, current = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        try:
            output = _record(graph, run, pool=first.pool())
        except BaseException:
            _leave(graph, device, pool=first.pool())
            raise
    current.wait_stream(stream)
    return output, graph.replay


def _record(graph: Any, run: Callable[[], Any], **named: Any) -> Any:
    # Other threads may go on using the GPU.
    graph.capture_begin(capture_error_mode="thread_local", **named)
    output = run()
    graph.capture_end()
    return output


def _leave(graph: Any, device: int, pool: Any) -> None:
    """End a recording that failed, with what PyTorch then leaves undone.

    The device's generator would take the next draw for a recorded one, and the allocator every
    tensor on that stream for the graph's.
    """
    with suppress(RuntimeError):
        graph.capture_end()
    with suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
    generator = torch.cuda.default_generators[device]
    generator.graphsafe_set_state(generator.clone_state())
    _open_place.cache_clear()


@cache
def _open_place(device: int) -> tuple[torch.cuda.Stream, Any]:
    """Return where all graphs of a device are recorded, and one that holds memory for all.

    Graphs have the same memory one after the other; it is there as long as one of them is.
    """
    with torch.cuda.device(device):
        stream, first = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            _record(first, lambda: torch.ones(1, device="cuda"))
        return stream, first


def can_record(model: Any, max_new_tokens: int | None) -> bool:
    """Whether passes over one token of ``model``, with or without an adapter, may be recorded."""
    devices = {parameter.device for parameter in model.parameters()}
    return (
        _find_inner(model) not in _refused
        and {device.type for device in devices} == {"cuda"}
        and len(devices) == 1
        and (max_new_tokens or 0) >= MIN_TOKENS
        and model.config.get_text_config()._attn_implementation in _PLAIN_ATTENTION
        and not torch.is_autocast_enabled("cuda")
        and not (torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1)
    )


def fill_static_layer(keys: torch.Tensor, values: torch.Tensor, *, room: int) -> StaticLayer:
    """Return a block's layer that holds these tokens and has room for so many more.

    Keys and values have the shape [rows, heads, tokens, size]; their sizes may differ.
    """
    length = keys.shape[2]
    layer = StaticLayer(max_cache_len=length + room)
    layer.lazy_initialization(keys, values)
    held: Any = layer
    held.keys[:, :, :length], held.values[:, :, :length] = keys, values
    layer.cumulative_length.fill_(length)
    return layer


@contextmanager
def recorded_decoding(
    model: Any, *, collected: list[torch.Tensor] | None = None, record: Recorder = record_on_gpu
) -> Iterator[None]:
    """Record the passes that ``model.generate`` makes over one token a row, where its cache allows.

    The first pass is launched as ever, the second recorded, and what follows is replayed. Replays
    are compared with launched passes; where one differs by more than rounding, or a pass cannot be
    recorded, a warning says so, and this model's tokens are launched one by one from then on.
    ``collected`` is a list that hooks in the model append to; it is continued as they would.
    """
    inner = _find_inner(model)
    if inner in _refused:
        yield
        return
    forward, own = inner.forward, vars(inner).get("forward")
    passes = _RecordedPasses(forward, [] if collected is None else collected, record)

    @wraps(forward)
    def run(*args: Any, **given: Any) -> Any:
        ids, cache = given.get("input_ids"), given.get("past_key_values")
        # Such a cache's tensors stay in their places, and nothing else is left behind.
        is_static = isinstance(cache, Cache) and all(
            type(one) is StaticLayer for one in cache.layers
        )
        is_step = not args and ids is not None and ids.shape[1] == 1 and is_static
        return passes.run(given) if is_step else forward(*args, **given)

    inner.forward = run
    try:
        yield
    finally:
        if own is None:
            del inner.forward
        else:
            inner.forward = own
        if passes.is_refused:
            _refused.add(inner)


def _find_inner(model: Any) -> Any:
    """Return the model whose ``forward`` is called by ``generate``."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


class _RecordedPasses:
    """Passes over one token a row: launched, recorded, then replayed."""

    def __init__(
        self, forward: Callable[..., Any], collected: list[torch.Tensor], record: Recorder
    ) -> None:
        self._forward, self._collected, self._record = forward, collected, record
        self._num_passes = 0
        self.is_refused = False
        self._has_ended = False
        self._replay: Callable[[], None] | None = None
        self._given: dict[str, Any] = {}
        self._output: Any = None
        self._tapped: list[torch.Tensor] = []

    def run(self, given: Mapping[str, Any]) -> Any:
        """Return the model's output for its arguments; tensors in it are used before the next."""
        self._num_passes += 1
        if self._has_ended or self._num_passes == 1:
            return self._forward(**given)
        if self._replay is None:
            return self._start(given)
        if not self._take(given):
            self._end("its inputs have other shapes than before")
            return self._forward(**given)
        if self._num_passes - 1 != _COMPARED_AGAIN:
            return self._replay_once()
        return self._compare(self._try_launch())

    def _start(self, given: Mapping[str, Any]) -> Any:
        """Launch a pass, record it, replay it, and compare."""
        self._given = {
            name: one
            if isinstance(one, Cache)
            else pytree.tree_map_only(torch.Tensor, torch.clone, one)
            for name, one in given.items()
        }
        launched, kept = self._try_launch(), len(self._collected)
        try:
            self._output, self._replay = self._record(lambda: self._forward(**self._given))
        except RuntimeError as fault:
            del self._collected[kept:]
            self.is_refused = True
            self._end(str(fault).splitlines()[0])
            return self._forward(**self._given)
        self._tapped = self._collected[kept:]
        del self._collected[kept:]
        return self._compare(launched)

    def _replay_once(self) -> Any:
        assert self._replay is not None
        self._replay()
        self._collected += [states.clone() for states in self._tapped]
        return self._output

    def _compare(self, launched: torch.Tensor) -> Any:
        kept = len(self._collected)
        output = self._replay_once()
        if _is_close(output.logits, launched):
            return output
        self.is_refused = True
        self._end("a replayed pass differs from a launched one")
        _step_back(self._given["past_key_values"])
        del self._collected[kept:]
        return self._forward(**self._given)

    def _try_launch(self) -> torch.Tensor:
        """Return a launched pass's logits, and leave everything as it was."""
        kept = len(self._collected)
        logits = self._forward(**self._given).logits.clone()
        _step_back(self._given["past_key_values"])
        del self._collected[kept:]
        return logits

    def _take(self, given: Mapping[str, Any]) -> bool:
        """Copy arguments to where the recorded pass reads them; False: they do not fit."""
        if given["past_key_values"] is not self._given["past_key_values"]:
            return False
        (old, old_form), (new, new_form) = (
            pytree.tree_flatten({k: v for k, v in one.items() if k != "past_key_values"})
            for one in (self._given, given)
        )
        if old_form != new_form or not all(map(_fits, old, new)):
            return False
        for place, value in zip(old, new, strict=True):
            if isinstance(place, torch.Tensor):
                place.copy_(value)
        return True

    def _end(self, fault: str) -> None:
        _log.warning("decoding is not recorded, tokens are launched one by one: %s", fault)
        self._has_ended, self._replay, self._output, self._tapped = True, None, None, []


def _fits(old: Any, new: Any) -> bool:
    if isinstance(old, torch.Tensor):
        return isinstance(new, torch.Tensor) and old.shape == new.shape and old.dtype == new.dtype
    return old == new


def _step_back(cache: Any) -> None:
    """Forget the last token: the next pass writes over it."""
    for layer in cache.layers:
        layer.cumulative_length.sub_(1)


def _is_close(given: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether rounding explains the difference of logits; NaN is close to nothing."""
    limit = _MAX_DIFFERENCE if expected.dtype == torch.float32 else _MAX_DIFFERENCE_HALF
    return float((given.double() - expected).norm() / expected.double().norm()) <= limit
