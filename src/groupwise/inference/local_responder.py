"""Single requests to the in-process engine: what waits at the same time goes in one batch."""

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from groupwise.core import Completion, Example, digest_json
from groupwise.inference.chat import read_picture_bytes
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.responder import LabelShares, Reply, Usage
from groupwise.inference.shared_loop import on_shared_loop

# Who wrote a model, and where it was read from.
_ORIGIN = ("_name_or_path", "transformers_version")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A request in the queue; requests of the same kind can go in one batch."""

    example: Example
    kind: Sampling | tuple[str, ...]
    result: asyncio.Future[Any]


class LocalResponder:
    """Answers single requests with a policy in this process, in a thread of its own.

    Args:
        engine: what answers; its policy must not change while this is in use.
        model: name of the model in versions and reports.
        revision: of its weights; None: the digest of the weights, computed now.
        max_pixels: of a picture, as its policy was loaded; None: as its processor says.
    """

    def __init__(
        self,
        engine: LocalEngine,
        *,
        model: str,
        revision: str | None = None,
        max_pixels: int | None = None,
    ) -> None:
        self.engine = engine
        self._identity = {"model": model, "revision": revision or digest_weights(engine)}
        if max_pixels is not None:  # left out otherwise: what was kept before is found
            self._identity["max_pixels"] = str(max_pixels)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="local-model")
        self._queue: list[_Waiting] = []
        self._worker: asyncio.Task[None] | None = None

    @property
    def identity(self) -> Mapping[str, str | None]:
        """Model, revision and pixels."""
        return dict(self._identity)

    @on_shared_loop
    async def respond(self, example: Example, *, sampling: Sampling) -> Reply:
        """Return one reply."""
        completion: Completion = await self._wait(example, sampling)
        usage = Usage(1, completion_tokens=len(completion.token_ids))
        return Reply(completion.text, completion.finish_reason, usage=usage)

    @on_shared_loop
    async def weigh_labels(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        """Return the shares of the labels."""
        shares: dict[str, float] = await self._wait(example, tuple(labels))
        return LabelShares(shares)

    async def _wait(self, example: Example, kind: Sampling | tuple[str, ...]) -> Any:
        result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(example, kind, result))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.ensure_future(self._work())
        return await result

    async def _work(self) -> None:
        """Answer batch after batch until nothing waits; others may join while one is computed."""
        while self._queue:
            await asyncio.sleep(0)
            kind = self._queue[0].kind
            batch = [w for w in self._queue if w.kind == kind][: self.engine.batch_size]
            taken = {id(waiting) for waiting in batch}
            self._queue = [w for w in self._queue if id(w) not in taken]
            await self._answer(batch, kind)

    async def _answer(self, batch: list[_Waiting], kind: Sampling | tuple[str, ...]) -> None:
        open_batch = [waiting for waiting in batch if not waiting.result.done()]
        examples = [waiting.example for waiting in open_batch]
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._compute, examples, kind)
        except Exception as error:  # noqa: BLE001 (it belongs to those who wait)
            _settle(open_batch, error=error)
            return
        _settle(open_batch, results)

    def _compute(self, examples: list[Example], kind: Sampling | tuple[str, ...]) -> list[Any]:
        for picture in {p.path: p for example in examples for p in example.pictures}.values():
            read_picture_bytes(picture)
        if isinstance(kind, Sampling):
            drawn = self.engine.generate(examples, sampling=kind)
            return [completions[0] for completions in drawn]
        return self.engine.label_probabilities(examples, labels=kind)


def digest_weights(engine: LocalEngine) -> str:
    """Return a digest of the weights of the engine's policy and of its model's configuration."""
    import torch

    config = json.loads(engine.policy.model.config.to_json_string())
    settings = {name: value for name, value in config.items() if name not in _ORIGIN}
    total = hashlib.sha256(digest_json(settings).encode())
    for name, tensor in sorted(engine.policy.model.state_dict().items()):
        flat = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(flat.numpy())
    return total.hexdigest()[:32]


def _settle(
    batch: list[_Waiting],
    results: Sequence[Any] | None = None,
    *,
    error: Exception | None = None,
) -> None:
    for number, waiting in enumerate(batch):
        if waiting.result.done():
            continue
        if error is not None:
            waiting.result.set_exception(error)
        elif results is not None:
            waiting.result.set_result(results[number])
