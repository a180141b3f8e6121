"""Configs that include files: what counts, and what is refused with its file and line."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from groupwise.core import Config, ConfigError, dump_config, load_config, read_config


class Judge(Config):
    model: str = "none"
    size: int = Field(default=1, ge=1)


class Job(Config):
    name: str
    judge: Judge = Judge()
    steps: int = 1


def write(folder: Path, **files: str) -> Path:
    """Write files by name, with ``__`` for a folder; return the one called job."""
    for name, text in files.items():
        path = folder / f"{name.replace('__', '/')}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "job.yaml"


def test_what_is_included_is_joined_and_the_own_values_count(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [base.yaml, parts/judge.yaml]\njudge: {size: 3}\n",
        base="name: a\nsteps: 5\njudge: {model: small, size: 1}\n",
        parts__judge="judge: {model: large, size: 2}\n",
    )
    loaded = load_config(Job, job, overrides=["steps=7"])
    assert loaded == Job(name="a", judge=Judge(model="large", size=3), steps=7)
    assert "include" not in dump_config(loaded)


def test_included_files_include_others_from_their_own_folder(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [parts/one.yaml]",
        parts__one="include: [two.yaml]\nsteps: 1",
        parts__two="name: deep\nsteps: 2",
    )
    assert load_config(Job, job) == Job(name="deep", steps=1)


def test_files_include_one_another_to_a_depth(tmp_path: Path) -> None:
    chain = {f"f{n}": f"include: [f{n + 1}.yaml]" for n in range(9)}
    job = write(tmp_path, job="include: [f1.yaml]", f9="name: end", **chain)
    with pytest.raises(
        ConfigError, match=r"f8\.yaml line 1: more than 8 files include one another"
    ):
        load_config(Job, job)
    job.write_text("include: [f2.yaml]")
    assert load_config(Job, job).name == "end"


def test_a_problem_names_the_file_that_it_is_in(tmp_path: Path) -> None:
    job = write(
        tmp_path,
        job="include: [parts/judge.yaml]\nsteps: many\n",
        parts__judge="judge: {size: 0, sise: 2}\n",
    )
    with pytest.raises(ConfigError) as caught:
        load_config(Job, job)
    lines = str(caught.value).splitlines()[1:]
    assert [line.partition(": ")[0].strip() for line in lines] == [
        str(job),
        str(tmp_path / "parts/judge.yaml"),
        str(tmp_path / "parts/judge.yaml"),
        str(job),
    ]


KEYS = st.sampled_from(["a", "b", "c"])
SECTIONS: st.SearchStrategy[Any] = st.recursive(
    st.integers(0, 9) | st.lists(st.integers(0, 9), max_size=2) | st.none(),
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)
FILES = st.lists(st.dictionaries(KEYS, SECTIONS, max_size=3), min_size=1, max_size=4)


def find_last(files: list[dict[str, Any]], path: tuple[str, ...]) -> Any:
    """Return what the last file says that has something at a path or above it."""
    for values in reversed(files):
        found: Any = values
        for key in path:
            if not isinstance(found, dict):
                return found
            if key not in found:
                break
            found = found[key]
        else:
            return found
    raise AssertionError(path)


def list_leaves(values: Any, above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    if not isinstance(values, dict) or not values:
        return [above]
    return [leaf for key, inner in values.items() for leaf in list_leaves(inner, (*above, key))]


@given(files=FILES)
def test_of_several_values_the_last_counts(files, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("files")
    for number, values in enumerate(files[:-1]):
        (folder / f"{number}.yaml").write_text(yaml.safe_dump(values))
    names = [f"{number}.yaml" for number in range(len(files) - 1)]
    (folder / "job.yaml").write_text(yaml.safe_dump({"include": names, **files[-1]}))
    joined = read_config(folder / "job.yaml")
    assert joined.keys() == set().union(*files)
    for leaf in list_leaves(joined) if joined else ():
        assert find_last(files, leaf) == find_last([joined], leaf)
