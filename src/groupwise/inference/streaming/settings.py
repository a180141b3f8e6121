"""How a stream of groups is worked on."""

from typing import Annotated, Literal

from pydantic import Field

from groupwise.core import Config, Place


class StreamSettings(Config):
    """Settings of batch inference; memory is bounded by all but ``order``.

    Attributes:
        batch_size: items that a model in this process answers at once, from any groups.
        order: ``given`` yields groups as they came; ``finished`` as soon as each is complete.
        look_ahead: so many batches are formed at once, out of items sorted by their length.
        num_prefetch: batches whose pictures are made ready while the model answers another.
        num_threads: that read, decode and scale pictures.
        max_pixels: larger pictures are scaled down to so many; None: as the processor does.
    """

    batch_size: int = Field(default=16, ge=1)
    order: Literal["given", "finished"] = "given"
    look_ahead: int = Field(default=4, ge=1)
    num_prefetch: int = Field(default=1, ge=0)
    num_threads: int = Field(default=4, ge=1)
    max_pixels: int | None = Field(default=786_432, ge=28 * 28)

    @property
    def window(self) -> int:
        """Items that are looked at at once."""
        return self.batch_size * self.look_ahead


class RaySettings(Config):
    """Workers of a cluster, each with a policy of its own.

    Attributes:
        address: of a running cluster (``auto``: the one of this machine); None: one is started
            in this machine, unless this process is in one already.
        num_workers: processes with a policy each.
        num_cpus, num_gpus: of each worker.
        slice_size: items that are handed to Ray at once; the policy is loaded for every slice.
    """

    address: Annotated[str | None, Place("where a cluster is reached", "集群地址")] = None
    num_workers: int = Field(default=2, ge=1)
    num_cpus: float = Field(default=1.0, gt=0)
    num_gpus: float = Field(default=0.0, ge=0)
    slice_size: int = Field(default=20_000, ge=1)
