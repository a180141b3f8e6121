import pytest
from faulty_server import FaultyServer


@pytest.fixture
def server():
    server = FaultyServer()
    yield server
    server.close()
