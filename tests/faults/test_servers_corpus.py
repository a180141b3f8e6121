"""Servers that a config names: asked, or refused until the user has named the host."""

import pytest
from click.testing import CliRunner
from corpora import each_row

from groupwise.cli.main import app
from groupwise.core import ConfigError, dump_config, load_config
from groupwise.inference.opening import open_model
from groupwise.inference.settings import ModelSource, ServerSettings


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("JUDGE_API_KEY", "AWS_SECRET_ACCESS_KEY", "GROUPWISE_TOKEN"):
        monkeypatch.setenv(name, "k1")


def allow(*hosts):
    """Name hosts with a verb that has nothing to ask."""
    named = [word for host in hosts for word in ("--allow-judge", host)]
    return CliRunner().invoke(app, ["predict", "nowhere", "rows.jsonl", "--out", "a", *named])


@each_row("servers")
def test_which_server_is_asked(row):
    allow(*row["allowed"])
    server = {"url": row["url"], "model": "m", "api_key_variable": row["variable"]}

    def open_it():
        return open_model(load_config(ModelSource, {"server": server}))

    if row["expected"] == "asked":
        sent = {"Authorization": "Bearer k1"} if row["variable"] else {}
        assert open_it()._headers == sent
        return
    with pytest.raises(ConfigError) as refused:
        open_it()
    assert (row["variable"] or "--allow-judge") in str(refused.value)


def test_a_host_is_named_once_and_code_of_ones_own_names_it_itself():
    settings = {"server": {"url": "https://judge.example/v1", "model": "m"}}
    open_model(ModelSource(**settings))
    read = load_config(ModelSource, settings)
    with pytest.raises(ConfigError, match=r"--allow-judge judge\.example"):
        open_model(load_config(ModelSource, dump_config(read)))
    allow("judge.example")
    allow("judge.example", "other.example")
    open_model(read)
    assert isinstance(read.server, ServerSettings)


@pytest.mark.parametrize("host", ["", "https://judge.example", "judge.example/v1", "a b", "a:80"])
def test_what_is_no_host_is_told(host):
    found = allow(host)
    assert isinstance(found.exception, ConfigError)
    assert "--allow-judge" in str(found.exception)


def test_a_run_says_so_before_it_starts(tmp_path):
    judge = "gepa={model: {server: {url: 'https://judge.example/v1', model: m}}, policy: sft}"
    words = ["run", "workflows", "--set", judge, "--out", str(tmp_path / "run")]
    found = CliRunner().invoke(app, words)
    assert "--allow-judge judge.example" in str(found.exception)
    assert not (tmp_path / "run").exists()
