"""What examples/deploy/ says is there, can be read, and switches releases."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from groupwise.core import write_text
from groupwise.serving import ServeSettings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "examples" / "deploy"
ROLLBACK = DEPLOY / "rollback.sh"


def call(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


@pytest.fixture
def releases(tmp_path: Path) -> Path:
    for name in ("july", "august"):
        write_text(tmp_path / name / "manifest.json", "{}")
    (tmp_path / "half").mkdir()
    return tmp_path


def show(root: Path) -> tuple[str, str]:
    links = (root / "current", root / "previous")
    return tuple(str(link.readlink()) if link.is_symlink() else "" for link in links)  # type: ignore[return-value]


def test_a_release_is_made_current_and_taken_back(releases: Path) -> None:
    assert call(ROLLBACK, releases, "july").returncode == 0
    assert show(releases) == ("july", "")
    done = call(ROLLBACK, releases, "august")
    assert done.stdout.startswith("current: august (before: july)")
    assert show(releases) == ("august", "july")
    assert (releases / "current" / "manifest.json").is_file()
    for expected in (("july", "august"), ("august", "july")):
        assert call(ROLLBACK, releases).returncode == 0
        assert show(releases) == expected
    assert call(ROLLBACK, releases, "august").returncode == 0
    assert show(releases) == ("august", "july")
    assert not [path.name for path in releases.iterdir() if path.name.startswith(".")]


def test_what_cannot_be_switched_to_changes_nothing(releases: Path) -> None:
    first = call(ROLLBACK, releases)
    assert (first.returncode, first.stderr) == (2, f"{releases} has no previous release\n")
    call(ROLLBACK, releases, "july")
    for name in ("half", "nowhere"):
        done = call(ROLLBACK, releases, name)
        assert (done.returncode, done.stderr) == (2, f"{releases}/{name} is no run\n")
    assert show(releases) == ("july", "")
    assert call(ROLLBACK).returncode == 2


def test_every_path_that_the_image_copies_is_there() -> None:
    text = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = [word for line in re.findall(r"^COPY (.*)$", text, re.M) for word in line.split()[:-1]]
    assert "src" in copied
    assert [path for path in copied if not (ROOT / path).exists()] == []


def test_services_have_the_files_and_settings_that_they_name() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    build = services["groupwise"]["build"]
    assert (DEPLOY / build["context"]).resolve() == ROOT
    assert (ROOT / build["dockerfile"]).is_file()
    mounted = [volume.partition(":")[0] for volume in services["proxy"]["volumes"]]
    assert [path for path in mounted if path[0] == "." and not (DEPLOY / path).is_file()] == []
    caddy = (DEPLOY / "Caddyfile").read_text(encoding="utf-8")
    named = set(re.findall(r"reverse_proxy (\w+):8000", caddy))
    assert named == {"groupwise", "vllm"} <= set(services)
    assert caddy.count("{") == caddy.count("}")
    (kept_s,) = re.findall(r"keepalive (\d+)s", caddy)
    assert int(kept_s) < ServeSettings().head_timeout_s
    texts = [path.read_text(encoding="utf-8") for path in DEPLOY.iterdir()]
    keys = {key for text in texts for key in re.findall(r"--set\W+(\w+)=", text)}
    assert keys == {"host", "port"} <= set(ServeSettings.model_fields)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "groupwise.service").read_text(encoding="utf-8")
    unit = tmp_path / "groupwise.service"
    write_text(unit, text.replace("/opt/groupwise/bin/groupwise", shutil.which("true") or ""))
    done = call("systemd-analyze", "verify", "--man=no", unit)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_server_that_is_not_there_is_not_healthy() -> None:
    assert call(DEPLOY / "health.sh", "http://127.0.0.1:9").returncode not in (0, 2)
    assert call("sh", "-n", DEPLOY / "health.sh").returncode == 0
