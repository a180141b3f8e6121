import math
from collections.abc import Callable, Iterator

import pytest
from faulty_server import MODEL, Fault, FaultyServer, say

from groupwise.inference.model import run_on_shared_loop
from groupwise.inference.server import ServerModel
from groupwise.inference.settings import LimitSettings, RetrySettings, ServerSettings
from groupwise.judges import JudgeSettings, StopSettings


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    """A server whose replies are good verdicts unless its script says otherwise."""
    tokens = {"A": math.log(0.7), "B": math.log(0.3)}
    server = FaultyServer(lambda _: Fault(say("True"), tokens=tokens))
    yield server
    server.close()


@pytest.fixture
def engine(server: FaultyServer) -> Iterator[ServerModel]:
    """An engine that asks one question at a time, so that the server's script has an order."""
    settings = ServerSettings(
        url=server.url,
        model=MODEL,
        revision="r1",
        timeout_s=2.0,
        prompt_price=1e6,
        limits=LimitSettings(max_concurrency=1),
    )
    engine = ServerModel(settings)
    yield engine
    run_on_shared_loop(engine.close())


@pytest.fixture
def quick() -> Callable[..., JudgeSettings]:
    """Make settings with tiny delays; the stop settings may be changed."""

    def make(max_attempts: int = 3, **stop: float) -> JudgeSettings:
        retry = RetrySettings(max_attempts=max_attempts, base_delay_s=0.001)
        return JudgeSettings(retry=retry, stop=StopSettings(**stop))

    return make
