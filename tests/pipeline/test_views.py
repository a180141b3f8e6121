"""A view of a config: what is declared can be read, anything else raises at once."""

from typing import Annotated

import pytest

from groupwise.core import Config, Harmless, Place
from groupwise.pipeline.plans import collect_settings, view_config


class Inner(Config):
    depth: int = 3
    width: int = 4

    @property
    def area(self) -> int:
        return self.depth * self.width

    def grow(self, factor: int) -> int:
        return self.depth * factor


class Outer(Config):
    seed: int = 7
    inner: Inner = Inner()
    absent: Inner | None = None

    @property
    def deep(self) -> int:
        return self.inner.depth


def view(*reads: str, config: Config | None = None):
    return view_config(config or Outer(), reads, step="train")


def test_what_is_declared_is_the_configs_own() -> None:
    config = Outer()
    assert view("seed", "inner", config=config).inner is config.inner
    assert view("seed").seed == 7
    assert view("inner.depth").inner.depth == 3


@pytest.mark.parametrize(
    ("reads", "read", "path"),
    [
        (("inner",), lambda v: v.seed, "seed"),
        (("seed",), lambda v: v.inner, "inner"),
        (("inner.depth",), lambda v: v.inner.width, "inner.width"),
        (("inner.depth",), lambda v: v.inner.area, "inner.width"),
        (("inner.depth",), lambda v: v.inner.model_dump(), "inner.model_dump"),
        (("seed", "inner", "absent"), lambda v: v.model_copy(), "model_copy"),
        (("inner.width",), lambda v: v.deep, "inner.depth"),
    ],
)
def test_anything_else_raises_with_the_step_and_the_setting(reads, read, path) -> None:
    words = f"^step 'train' reads {path} but does not list it in reads$"
    with pytest.raises(ValueError, match=words):
        read(view(*reads))


def test_methods_and_properties_see_the_view() -> None:
    assert view("inner.depth").inner.grow(2) == 6
    assert view("inner.depth", "inner.width").inner.area == 12
    assert view("inner.depth").deep == 3


def test_a_section_that_is_not_there_is_none() -> None:
    assert view("absent.depth").absent is None
    assert view("absent").absent is None
    assert collect_settings(Outer(), ["absent.depth"]) == {"absent.depth": None}


def test_names_that_no_config_has_are_unknown_as_usual() -> None:
    assert not hasattr(view("seed"), "nothing")
    assert not hasattr(view("seed"), "__len__")
    assert callable(view("seed").__pretty__)  # rich looks for it on whatever is printed


@pytest.mark.parametrize("path", ["sed", "inner.dept", "seed.depth"])
def test_a_declaration_of_no_setting_is_a_bug_of_the_recipe(path: str) -> None:
    with pytest.raises(ValueError, match=f"declares to read {path}, which is no setting"):
        collect_settings(Outer(), [path])


class Server(Config):
    url: Annotated[str, Place("where", "何处")] = "http://one"
    model: str = "m"
    price: Annotated[float, Harmless("counted", "统计")] = 1.0


class Asking(Config):
    servers: dict[str, Server]
    server: Server | None = Server()


def test_where_a_server_is_reached_is_in_no_key_and_can_be_read() -> None:
    reads = ["servers", "server", "server.url"]
    held = {"model": "m", "price": 1.0}
    assert collect_settings(Asking(servers={"a": Server()}), reads) == {
        "servers": {"a": held},
        "server": held,
    }
    assert collect_settings(Asking(servers={}, server=None), reads)["server"] is None
    assert view("server", config=Asking(servers={})).server.url == "http://one"
