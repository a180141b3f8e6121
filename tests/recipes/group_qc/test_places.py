"""Stage A where a config puts it: behind a server, or on workers."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from faulty_server import MODEL, Fault, FaultyServer

from groupwise.core import ConfigError, load_config, read_jsonl
from groupwise.pipeline import find_config, find_recipe
from groupwise_recipes.group_qc.config import GroupQcConfig

NUM_GROUPS = 40
DRAWN = {"num_groups": NUM_GROUPS, "width": 112, "height": 84}
STREAM = {"batch_size": 4, "look_ahead": 1, "num_threads": 1}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    server = FaultyServer(lambda _: Fault(content='{"图片_1": "机柜/正装×1"}'))
    yield server
    server.close()


def load(*overrides: str) -> GroupQcConfig:
    return load_config(
        GroupQcConfig, find_config(find_recipe("group_qc"), "demo"), overrides=overrides
    )


def describe(call: CommandLine, base: Path, server: dict[str, Any]) -> Any:
    """Run Stage A alone over drawn groups, with a published model that is served."""
    quick = {"retry": {"max_attempts": 2, "base_delay_s": 0.001}, "limits": {"max_concurrency": 4}}
    settings = {
        "model.base": base,
        "teach": "null",
        "data.drawn": json.dumps(DRAWN),
        "data.teach_share": 0,
        "summaries.stream": json.dumps(STREAM),
        "summaries.server": json.dumps({**quick, **server}),
    }
    words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    return call(
        "run", "group_qc", *words, "--config", "demo", "--out", "run", "--until", "summarize"
    )


def read_described(folder: str) -> list[dict[str, Any]]:
    paths = Path("run").glob(f"{folder}/*_stage_a.jsonl")
    return [row for path in paths for row in read_jsonl(path)]


def count_photos(rows: list[dict[str, Any]]) -> int:
    return sum(len(row["images"]) for row in rows)


@pytest.mark.slow
def test_every_photo_is_described_by_the_server(
    command_line: CommandLine, vision_folder: Path, server: FaultyServer
) -> None:
    done = describe(command_line, vision_folder, {"url": server.url, "model": MODEL})
    assert done.returncode == 0, done.stderr
    rows = read_described("summarize")
    assert len(rows) == NUM_GROUPS
    said = {text for row in rows for text in row["per_image"].values()}
    assert said == {"机柜/正装×1"}
    assert len(server.asked) == count_photos(rows)
    assert "photo groups finished (0 of them before), 0 failed" in done.stderr


@pytest.mark.slow
def test_a_setting_that_is_changed_and_changed_back_costs_nothing(
    command_line: CommandLine, vision_folder: Path, server: FaultyServer
) -> None:
    served = {"url": server.url, "model": MODEL}
    assert describe(command_line, vision_folder, served).returncode == 0
    num_photos = len(server.asked)
    assert describe(command_line, vision_folder, {**served, "revision": "2"}).returncode == 0
    assert len(server.asked) == 2 * num_photos
    done = describe(command_line, vision_folder, served)
    assert "summarize run" in done.stderr
    assert len(server.asked) == 2 * num_photos
    assert len(read_described("summarize")) == NUM_GROUPS


@pytest.mark.slow
def test_a_server_that_goes_stops_the_run_and_another_one_goes_on(
    command_line: CommandLine, vision_folder: Path, server: FaultyServer
) -> None:
    served = {"url": server.url, "model": MODEL}
    lock = threading.Lock()
    left = iter(range(60))

    def answer(_: Any) -> Fault:
        with lock:
            return Fault(content="机柜/正装×1") if next(left, None) is not None else Fault(cut=True)

    server.answer = answer
    stopped = describe(command_line, vision_folder, served)
    assert stopped.returncode == 2
    assert "the server answers nothing: 16 items in a row failed" in stopped.stderr
    kept = read_described("stage_a/*")
    assert 0 < len(kept) < NUM_GROUPS
    another = FaultyServer(lambda _: Fault(content="机柜/正装×1"))
    done = describe(command_line, vision_folder, {**served, "url": another.url})
    another.close()
    assert done.returncode == 0, done.stderr
    rows = read_described("summarize")
    assert len(rows) == NUM_GROUPS
    assert all({key: row[key] for key in rows[0]} in rows for row in kept)
    assert len(another.asked) == count_photos(rows) - count_photos(kept)


@pytest.mark.slow
def test_a_wrong_name_of_the_model_stops_the_run_at_once(
    command_line: CommandLine, vision_folder: Path, server: FaultyServer
) -> None:
    done = describe(command_line, vision_folder, {"url": server.url, "model": "other"})
    assert done.returncode == 2
    assert "`other` does not exist" in done.stderr
    assert len(server.asked) < 40


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("summaries.server={url: http://a/v1, model: b}",), "no server has what is taught"),
        (
            (
                "model.base=a/b",
                "teach=null",
                "summaries.server={url: http://a/v1, model: b}",
                "summaries.ray={}",
            ),
            "set one of them",
        ),
    ],
)
def test_places_that_cannot_be_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*overrides)


def test_where_it_runs_does_not_change_what_summaries_depend_on() -> None:
    base = ("model.base=a/b", "teach=null")
    here, workers = load(*base), load(*base, "summaries.ray={num_workers: 3}")
    assert workers.summaries.describe() == here.summaries.describe()
    assert set(here.summaries.describe()) == {"sampling", "stream"}
    server = "summaries.server={url: http://%s/v1, model: %s}"
    one, moved, other = (
        load(*base, server % place).summaries.describe()
        for place in (("a", "m"), ("b", "m"), ("a", "n"))
    )
    assert one == moved != here.summaries.describe()
    assert other != one
