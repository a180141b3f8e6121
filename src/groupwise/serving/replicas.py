"""Replicas of a predictor on a Ray cluster, behind the one server that has the guards.

Ray Serve starts them, starts them again when one is lost, and gives questions to the one that is
free; its own HTTP server stays off.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, TypeVar

from groupwise.core import Example, GroupwiseError, count_devices, list_nodes, share_cpus
from groupwise.serving.predictor import Answer, Request, try_each
from groupwise.serving.source import Opened, Source

Q = TypeVar("Q")
A = TypeVar("A")

FindSource = Callable[[], Source]
"""Returns what a replica answers with; it is called in the replica, and can be pickled."""


class Replica:
    """A predictor in a process of its own.

    Args:
        find_source: of what answers.
    """

    def __init__(self, find_source: FindSource) -> None:
        self._opened = find_source().open()

    def describe(self) -> tuple[str, tuple[str, ...], Mapping[str, Any]]:
        """Return the version, its labels, and what its answers depend on."""
        predictor = self._opened.predictor
        return self._opened.version, predictor.labels, predictor.describe()

    def make_question(self, request: Request, folder: Path) -> Example | GroupwiseError:
        """Return what the policy is asked, or why nothing can be."""
        try:
            return self._opened.predictor.make_question(request, folder)
        except GroupwiseError as error:
            return error

    def answer(self, questions: Sequence[Example]) -> tuple[str, list[Answer | Exception]]:
        """Return the version that answers, and what becomes of each question."""
        return self._opened.version, try_each(self._opened.predictor.answer, questions)


class ReplicatedPredictor:
    """Hands each replica its part of a batch; answers are those of one version, or errors.

    Args:
        handle: of the deployment.
        num_replicas: of it.
    """

    def __init__(self, handle: Any, num_replicas: int) -> None:
        self._handle = handle
        self._num_replicas = num_replicas
        self.version, self.labels, self._description = handle.describe.remote().result()

    def describe(self) -> Mapping[str, Any]:
        """Return what the replicas say of themselves."""
        return self._description

    def make_question(self, request: Request, folder: Path) -> Example:
        """Let a replica make the question, which finds ``folder`` under the same path."""
        found = self._handle.make_question.remote(request, folder.resolve()).result()
        if isinstance(found, GroupwiseError):
            raise found
        return found

    def answer(self, questions: Sequence[Example]) -> list[Answer]:
        """Return the answers of the replicas, in the order of the questions."""
        return self._deal(self._handle.answer, questions)

    def _deal(self, ask: Any, questions: Sequence[Q]) -> list[Any]:
        size = -(-len(questions) // self._num_replicas)
        parts = [questions[n : n + size] for n in range(0, len(questions), size)]
        found = [waiting.result() for waiting in [ask.remote(part) for part in parts]]
        # One that was started again has opened what is to be served by then.
        others = {version for version, _ in found} - {self.version}
        if others:
            raise RuntimeError(f"a replica answers as {min(others)}, not {self.version}: reload")
        results = list(chain.from_iterable(part for _, part in found))
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results


class ReplicatedSource:
    """Opens a version as replicas on a cluster that this process has joined.

    Args:
        ray: the module.
        find_source: of what answers.
        num_replicas: on one GPU each if the cluster has any, else on their share of its CPUs.
    """

    def __init__(self, ray: Any, find_source: FindSource, num_replicas: int) -> None:
        self._find_source = find_source
        self._source = find_source()
        self._num_replicas = num_replicas
        self._serve = ray.serve
        self._numbers = count()
        nodes = list_nodes(ray)
        has_gpus = count_devices(nodes)[0] == "GPU"
        # Not whole CPUs: a version is opened beside the one that it follows.
        self._each = (
            {"num_gpus": 1} if has_gpus else {"num_cpus": share_cpus(nodes, num_replicas) / 2}
        )
        quiet = {"log_level": "ERROR"}
        self._serve.start(proxy_location="Disabled", logging_config=quiet)

    def open(self) -> Opened:
        """Start replicas of the version that is to be served now."""
        deployment = self._serve.deployment(
            Replica,
            num_replicas=self._num_replicas,
            max_ongoing_requests=1,
            ray_actor_options=self._each,
        )
        name = f"version-{next(self._numbers)}"
        handle = self._serve.run(deployment.bind(self._find_source), name=name, route_prefix=None)
        predictor = ReplicatedPredictor(handle, self._num_replicas)
        return Opened(predictor, predictor.version, lambda: self._serve.delete(name))

    def find_version(self) -> str:
        """Return the name of the version that is to be served now."""
        return self._source.find_version()
