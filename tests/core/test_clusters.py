"""What is asked of a Ray cluster, and how its absence is told; no cluster is needed here."""

import importlib.util
import socket
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import (
    ConfigError,
    clusters,
    count_devices,
    import_ray,
    join_cluster,
    share_cpus,
)
from groupwise.core.clusters import names_cluster

HAS_RAY = importlib.util.find_spec("ray") is not None


@given(st.lists(st.integers(0, 64), min_size=1, max_size=6), st.integers(1, 64))
def test_processes_have_as_many_cpus_each_as_fit_on_their_machines(cpus, num_processes):
    share = share_cpus([{"CPU": float(n)} for n in cpus], num_processes)
    assert share == 1 or sum(n // share for n in cpus) >= num_processes
    assert sum(n // (share + 1) for n in cpus) < num_processes


def test_work_is_placed_on_gpus_and_on_cpus_only_where_there_are_none():
    assert count_devices([{"CPU": 8.0}, {"CPU": 4.0, "GPU": 2.0}]) == ("GPU", 2)
    assert count_devices([{"CPU": 8.0}, {"CPU": 4.0, "memory": 1e9}]) == ("CPU", 12)


def test_a_cluster_is_named_by_its_address_or_by_the_environment(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert [names_cluster(one) for one in (None, "local", "auto")] == [False, False, True]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    assert [names_cluster(one) for one in (None, "local", "auto")] == [True, False, True]


@pytest.mark.parametrize(
    ("address", "variable", "expected"),
    [
        (None, None, "local"),
        ("local", "head:6379", "local"),
        ("auto", None, "auto"),
        (None, "auto", None),
    ],
)
def test_a_cluster_that_was_not_named_is_not_joined(monkeypatch, address, variable, expected):
    """Ray takes the one that was last started on this machine where it is given no address."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if variable is not None:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    asked = []
    fake = SimpleNamespace(
        is_initialized=lambda: False,
        init=lambda *, address, **_: asked.append(address),
        shutdown=lambda: None,
    )
    monkeypatch.setattr(clusters, "import_ray", lambda: fake)
    with join_cluster(address):
        assert asked == [expected]


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_one_sentence_says_what_to_install():
    with pytest.raises(ConfigError, match=r"this needs Ray .*pip install 'groupwise\[ray\]'"):
        import_ray("train.torch")


@pytest.mark.skipif(not HAS_RAY, reason="ray is not installed: pip install 'groupwise[ray]'")
def test_an_address_where_nobody_listens_is_refused_at_once():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match=f"no Ray cluster answers at {address}"):
            join_cluster(address).__enter__()
