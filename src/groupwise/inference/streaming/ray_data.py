"""Many workers over Ray Data: each loads the policy once and answers its share."""

import os
import pickle
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

from pydantic import Field

from groupwise.core import Config, GroupwiseError, ModelError
from groupwise.inference.engine import Sampling
from groupwise.inference.local import LocalEngine
from groupwise.inference.streaming.local import LocalBackend
from groupwise.inference.streaming.settings import StreamSettings
from groupwise.inference.streaming.work import Outcome, WorkItem
from groupwise.models import load_policy


class RaySettings(Config):
    """Workers and what they load. The model and the pictures lie where every worker finds them.

    Attributes:
        model: a model or adapter folder, or a hub id.
        dtype: of its weights.
        address: of a running cluster (``auto``: the one of this machine); None: one is started
            in this machine, unless this process is in one already.
        num_workers: processes with a policy each.
        num_cpus, num_gpus: of each worker.
        slice_size: items that are handed to Ray at once; the policy is loaded for every slice.
    """

    model: str = Field(min_length=1)
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    address: str | None = None
    num_workers: int = Field(default=2, ge=1)
    num_cpus: float = Field(default=1.0, gt=0)
    num_gpus: float = Field(default=0.0, ge=0)
    slice_size: int = Field(default=20_000, ge=1)


class RayBackend:
    """Answers with workers of a Ray cluster; each of them forms batches as ``LocalBackend`` does.

    Args:
        settings: workers and policy.

    Raises:
        ModelError: if Ray is not installed.
    """

    def __init__(self, settings: RaySettings) -> None:
        self.settings = settings
        self._ray = _import_ray()

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome as workers finish them.

        Raises:
            ModelError: if a worker cannot load the policy, or it takes no pictures.
        """
        if not self._ray.is_initialized():
            self._ray.init(address=self.settings.address, log_to_driver=False)
        while waiting := list(islice(items, self.settings.slice_size)):
            yield from self._answer(waiting, sampling, settings)

    def _answer(
        self, items: Sequence[WorkItem], sampling: Sampling, settings: StreamSettings
    ) -> Iterator[tuple[int, Outcome]]:
        share = -(-len(items) // self.settings.num_workers)
        block = max(settings.batch_size, min(settings.window, share))
        rows = [{"number": i.number, "example": pickle.dumps(i.example)} for i in items]
        blocks = -(-len(rows) // block)
        answered = self._ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
            PolicyWorker,
            fn_constructor_args=(self.settings.model, self.settings.dtype, sampling, settings),
            batch_size=block,
            compute=self._ray.data.ActorPoolStrategy(size=self.settings.num_workers),
            num_cpus=self.settings.num_cpus,
            num_gpus=self.settings.num_gpus,
        )
        for row in answered.iter_rows():
            outcome: Outcome | str = pickle.loads(row["outcome"])
            if isinstance(outcome, str):
                raise ModelError(f"a worker cannot answer: {outcome}")
            yield int(row["number"]), outcome


class PolicyWorker:
    """A worker's policy; called with rows, it yields their outcomes.

    What a user can mend is yielded as its sentence: Ray would try it again and bury it.
    """

    def __init__(
        self, model: str, dtype: str, sampling: Sampling, settings: StreamSettings
    ) -> None:
        self._sampling = sampling
        self._settings = settings
        self._backend: LocalBackend | str
        try:
            self._backend = LocalBackend(LocalEngine(load_policy(model, dtype=dtype)))
        except GroupwiseError as error:
            self._backend = str(error)

    def __call__(self, rows: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
        """Yield one row for each row, as they are finished."""
        examples = zip(rows["number"], rows["example"], strict=True)
        items = (WorkItem(int(number), pickle.loads(example)) for number, example in examples)
        try:
            for number, outcome in self._answer(items):
                yield {"number": [number], "outcome": [pickle.dumps(outcome)]}
        except GroupwiseError as error:
            yield {"number": [-1], "outcome": [pickle.dumps(str(error))]}

    def _answer(self, items: Iterator[WorkItem]) -> Iterator[tuple[int, Outcome]]:
        if isinstance(self._backend, str):
            raise ModelError(self._backend)
        return self._backend.stream(items, sampling=self._sampling, settings=self._settings)


def _import_ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports]
        import ray.data  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ModelError(
            f"many workers need Ray ({error})", fix="pip install 'groupwise[ray]'"
        ) from error
    return ray
