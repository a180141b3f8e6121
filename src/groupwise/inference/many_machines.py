"""Many workers over Ray Data: each loads the policy once and answers its share."""

import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, GroupwiseError, ModelError
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.model import Sampling
from groupwise.inference.stream import LOOK_AHEAD, Outcome, RaySettings, StreamSettings, WorkItem
from groupwise.models.policy import Policy, load_policy
from groupwise.models.settings import Quantization

_SLICE = 20_000
"""Items handed to Ray at once, which holds them; the policy is loaded for every slice."""


class RayStream:
    """Answers with workers of a Ray cluster; each of them forms batches as ``LocalStream`` does.

    Models and pictures lie where every worker finds them, under the same names.

    Args:
        settings: how many workers, and where.
        model: a model or adapter folder, or a hub id; each worker loads it.
        dtype: of its weights.
        max_pixels: of a picture, as the processor takes it; None: as the model's own says.

    Raises:
        ConfigError: if Ray is not installed.
    """

    def __init__(
        self,
        settings: RaySettings,
        model: str | Path,
        *,
        dtype: str = "auto",
        max_pixels: int | None = None,
        quantization: Quantization | None = None,
    ) -> None:
        self.settings = settings
        name = str(Path(model).resolve()) if Path(model).is_dir() else str(model)
        self._load = partial(
            load_policy, name, dtype=dtype, max_pixels=max_pixels, quantization=quantization
        )
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports nothing home
        try:
            self._ray: Any = import_module("ray")
            import_module("ray.data")
        except ImportError as error:
            raise ConfigError(
                f"this needs Ray ({error})", fix="pip install 'groupwise[ray]'"
            ) from error

    def stream(
        self, items: Iterator[WorkItem], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each item's number and outcome as workers finish them.

        Raises:
            ModelError: if a worker cannot load the policy, or it takes no pictures.
        """
        ray, own, size = self._ray, self.settings, settings.batch_size
        if not ray.is_initialized():
            ray.init(address=own.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        while waiting := list(islice(items, _SLICE)):
            share = -(-len(waiting) // own.num_workers)
            block = max(size, min(size * LOOK_AHEAD, share))
            rows = [{"number": i.number, "example": pickle.dumps(i.example)} for i in waiting]
            blocks = -(-len(rows) // block)
            answered = ray.data.from_items(rows, override_num_blocks=blocks).map_batches(
                PolicyWorker,
                fn_constructor_args=(self._load, sampling, settings),
                batch_size=block,
                compute=ray.data.ActorPoolStrategy(size=own.num_workers),
                num_cpus=1,
                num_gpus=own.num_gpus,
            )
            for row in answered.iter_rows():
                outcome: Outcome | str = pickle.loads(row["outcome"])
                if isinstance(outcome, str):
                    raise ModelError(f"a worker cannot answer: {outcome}")
                yield int(row["number"]), outcome


class PolicyWorker:
    """A worker's policy; called with rows, it yields their outcomes.

    What a user can fix is yielded as its sentence: Ray would try it again and bury it.
    """

    def __init__(
        self, load: Callable[[], Policy], sampling: Sampling, settings: StreamSettings
    ) -> None:
        self._named: dict[str, Any] = {"sampling": sampling, "settings": settings}
        self._stream: LocalStream | None = None
        self._problem = ""
        try:
            self._stream = LocalStream(LocalModel(load()))
        except GroupwiseError as error:
            self._problem = str(error)

    def __call__(self, rows: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
        """Yield one row for each row, as they are finished."""
        examples = zip(rows["number"], rows["example"], strict=True)
        items = (WorkItem(int(number), pickle.loads(example)) for number, example in examples)
        try:
            if self._stream is None:
                raise ModelError(self._problem)
            for number, outcome in self._stream.stream(items, **self._named):
                yield {"number": [number], "outcome": [pickle.dumps(outcome)]}
        except GroupwiseError as error:
            yield {"number": [-1], "outcome": [pickle.dumps(str(error))]}
