import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.core import DataError, GroupwiseError, RunError
from groupwise.flow import Served, name_version, open_run, open_served, read_served, write_served

NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1).filter(
    lambda name: name not in (".", "..") and len(name.encode()) < 200
)
in_any_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@in_any_folder
@given(parts=st.lists(NAMES, min_size=1, max_size=4), policy=NAMES, version=NAMES, inside=...)
def test_what_was_written_is_read_again(tmp_path, parts, policy, version, inside: bool):
    folder = tmp_path / "loop"
    served = Served((folder if inside else tmp_path / "runs").joinpath(*parts), policy, version)
    write_served(folder, served)
    assert read_served(folder) == served


def test_a_run_inside_the_folder_moves_with_it_and_one_outside_stays(tmp_path):
    for name, run in (("a", tmp_path / "a" / "rounds" / "1"), ("b", tmp_path / "ab" / "1")):
        write_served(tmp_path / name, Served(run, "grpo", "v1"))
    (tmp_path / "a").rename(tmp_path / "c")
    assert read_served(tmp_path / "c").run == tmp_path / "c" / "rounds" / "1"
    assert read_served(tmp_path / "b").run == tmp_path / "ab" / "1"
    assert json.loads((tmp_path / "c" / "served.json").read_text())["run"] == "rounds/1"


def test_paths_may_be_relative_to_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_served(Path("loop"), Served(Path("loop/run"), "grpo", "v1"))
    assert read_served(Path("loop")) == read_served(tmp_path / "loop")
    write_served(Path("loop"), Served(Path("other/run"), "grpo", "v1"))
    assert read_served(Path("loop")).run == tmp_path / "other" / "run"
    with pytest.raises(RunError, match="leads upwards"):
        write_served(Path("loop"), Served(Path("loop/../run"), "grpo", "v1"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
GOOD = {"run": "run", "policy": "grpo", "version": "v1"}


@in_any_folder
@given(
    content=JSON.map(json.dumps)
    | st.text()
    | st.fixed_dictionaries(
        {"run": JSON, "policy": JSON}, optional={"version": JSON, "more": JSON}
    ).map(json.dumps)
)
def test_whatever_the_file_holds_is_a_served_run_or_one_sentence(tmp_path, content):
    (tmp_path / "served.json").write_text(content, "utf-8", "surrogatepass", newline="")
    said = ""
    try:
        assert read_served(tmp_path).policy
    except DataError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": "x"}, "does not say what is served"),
        ({"policy": ""}, "does not say what is served"),
        ({"version": 1}, "does not say what is served"),
        ({"run": "../run"}, "outside its folder"),
        ({"run": "run\0"}, "outside its folder"),
    ],
)
def test_a_damaged_file_is_told(tmp_path, change, words):
    (tmp_path / "served.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(DataError, match=words):
        read_served(tmp_path)


def test_a_file_that_is_missing_or_torn_is_told(tmp_path):
    with pytest.raises(DataError, match="cannot read"):
        read_served(tmp_path)
    (tmp_path / "served.json").write_text('{"run": "ru')
    with pytest.raises(DataError, match="is not JSON"):
        read_served(tmp_path)


def test_only_the_version_that_is_named_is_opened(tmp_path, finished):
    version = name_version(open_run(finished).open_predictor("grpo"))
    write_served(tmp_path, Served(finished, "grpo", version))
    served, predictor = open_served(tmp_path)
    assert (served.version, name_version(predictor)) == (version, version)
    write_served(tmp_path, Served(finished, "sft", version))
    with pytest.raises(RunError, match="does not have the version"):
        open_served(tmp_path)
    write_served(tmp_path, Served(finished, "nowhere", version))
    with pytest.raises(GroupwiseError, match="nowhere"):
        open_served(tmp_path)
