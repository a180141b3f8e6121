"""Many workers over Ray Data: each loads the policy once and answers its share."""

import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from groupwise.core import ConfigError, Example, GroupwiseError, ModelError
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.settings import LOOK_AHEAD, RaySettings, Sampling, StreamSettings
from groupwise.inference.stream import Outcome
from groupwise.models.policy import Policy, load_policy
from groupwise.models.settings import Quantization

_SLICE = 20_000
"""Examples handed to Ray at once, which holds them; the policy is loaded for every slice."""


class RayStream:
    """Answers with workers of a Ray cluster; each of them forms batches as ``LocalStream`` does.

    Models and pictures lie where every worker finds them, under the same names.

    Args:
        settings: how many workers, and where.
        model, dtype, max_pixels, quantization: as of ``load_policy``; each worker loads it.

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
        self, examples: Iterator[Example], *, sampling: Sampling, settings: StreamSettings
    ) -> Generator[tuple[int, Outcome]]:
        """Yield each example's number and outcome as workers finish them.

        Raises:
            ModelError: if a worker cannot load the policy, or it takes no pictures.
        """
        ray, own, size = self._ray, self.settings, settings.batch_size
        if not ray.is_initialized():
            ray.init(address=own.address, log_to_driver=False)
        ray.data.DataContext.get_current().enable_progress_bars = False
        numbered = enumerate(examples)
        while waiting := list(islice(numbered, _SLICE)):
            share = -(-len(waiting) // own.num_workers)
            block = max(size, min(size * LOOK_AHEAD, share))
            rows = [{"number": number, "example": pickle.dumps(one)} for number, one in waiting]
            answered = ray.data.from_items(
                rows, override_num_blocks=-(-len(rows) // block)
            ).map_batches(
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
        self._problem = ""
        try:
            self._stream = LocalStream(LocalModel(load()))
        except GroupwiseError as error:
            self._problem = str(error)

    def __call__(self, rows: Mapping[str, Any]) -> Iterator[dict[str, list[Any]]]:
        """Yield one row for each row, as they are finished."""
        try:
            if self._problem:
                raise ModelError(self._problem)
            for place, outcome in self._stream.stream(
                map(pickle.loads, rows["example"]), **self._named
            ):
                number = int(rows["number"][place])
                yield {"number": [number], "outcome": [pickle.dumps(outcome)]}
        except GroupwiseError as error:
            yield {"number": [-1], "outcome": [pickle.dumps(str(error))]}
