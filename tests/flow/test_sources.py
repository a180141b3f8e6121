"""What ``serve`` answers with: one run for good, or what a loop folder names."""

import pytest

from groupwise.core import ConfigError, DataError, RunError, ServingError
from groupwise.flow import Served, find_source, name_version, open_run, write_served


@pytest.fixture(scope="module")
def versions(finished):
    run = open_run(finished)
    return {name: name_version(run.open_predictor(name)) for name in ("grpo", "prompt")}


def test_a_loop_folder_serves_what_it_names_whenever_it_is_asked(finished, tmp_path, versions):
    for name, version in versions.items():
        write_served(tmp_path, Served(finished, name, version))
        source = find_source(tmp_path, None)
        opened = source.open()
        assert opened.version == version == source.find_version() == name_version(opened.predictor)
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    assert source.open().version == source.find_version() == versions["grpo"]
    write_served(tmp_path, Served(finished, "prompt", versions["grpo"]))
    with pytest.raises(RunError, match=r"does not have the version that .*served\.json names"):
        source.open()
    (tmp_path / "served.json").write_text("{}")
    with pytest.raises(DataError, match="does not say what is served"):
        source.find_version()


def test_a_run_stays_the_same_and_says_what_to_do(finished, versions):
    source = find_source(finished, "prompt")
    assert source.open().version == versions["prompt"]
    with pytest.raises(ServingError, match="alone; serve a loop folder"):
        source.find_version()


def test_a_loop_folder_itself_says_which_policy(finished, tmp_path, versions):
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    with pytest.raises(ConfigError, match="itself says which policy"):
        find_source(tmp_path, "prompt")


def test_the_command_refuses_another_version_than_is_named(
    finished, tmp_path, versions, command_line
):
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    done = command_line("serve", tmp_path, "--dry-run")
    assert (done.returncode, "ready: nothing was served" in done.stdout) == (0, True)
    write_served(tmp_path, Served(finished, "grpo", versions["prompt"]))
    done = command_line("serve", tmp_path, "--dry-run")
    assert done.returncode == 2
    assert "does not have the version" in done.stderr
    judge = tmp_path / "judge.yaml"
    judge.write_text("model: /nowhere\n")
    write_served(tmp_path, Served(finished, "grpo", versions["grpo"]))
    done = command_line("serve", tmp_path, "--dry-run", "--set", f"screens.judge={judge}")
    assert (done.returncode, "has no screens to label" in done.stderr) == (2, True)
