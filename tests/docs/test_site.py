"""The documentation site: pages, links, settings as the code has them, nothing from outside."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel

from assemble import ROOT, assemble, list_pages, relink
from groupwise.data.augmentation import PictureAugmentation
from groupwise.evaluation.predictions import find_measure
from groupwise.run.recipe import find_recipes
from groupwise.run.settings import EvaluationSettings
from groupwise.training.settings import GrpoSettings, TrainerSettings
from settings_page import describe_settings, describe_type, read_meanings

_FETCHED = re.compile(r"<(?:link|script|img|iframe)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]*)")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the assembled pages and the site's settings."""
    folder = tmp_path_factory.mktemp("site")
    assemble(folder / "build" / "docs")
    text = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    source = json.dumps(str(ROOT / "src"))
    (folder / "zensical.toml").write_text(text.replace('["src"]', f"[{source}]"), encoding="utf-8")
    return folder


def list_nav(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    inner = nav.values() if isinstance(nav, dict) else nav
    return [page for part in inner for page in list_nav(part)]


def test_the_navigation_has_every_page_once(project: Path):
    settings = tomllib.loads((project / "zensical.toml").read_text(encoding="utf-8"))
    listed = list_nav(settings["project"]["nav"])
    pages = {p.relative_to(project / "build/docs") for p in (project / "build/docs").rglob("*.md")}
    reached_by_index = {p for p in pages if p.match("decisions/[0-9]*.md")}
    assert len(listed) == len(set(listed))
    assert {Path(page) for page in listed} == pages - reached_by_index


def test_the_site_is_built_strictly_and_asks_nobody_for_anything(project: Path):
    command = [Path(sys.executable).parent / "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = project / "build" / "site"
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(list_pages())
    assert {p.name: found for p in pages if (found := _FETCHED.findall(p.read_text("utf-8")))} == {}
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"(?:@import|url\()\s*['\"]?https?:", styles) == []
    interface = (site / "api" / "run.html").read_text(encoding="utf-8")
    assert 'id="groupwise.run.task.Task.warmup"' in interface


def test_the_first_page_lists_all_systems() -> None:
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    for name in ("demo_selection", "group_qc", "on_task", "visual_reasoning", "workflows"):
        assert f"groupwise_recipes/{name}/README.md" in text, name


def test_links_lead_to_pages_or_name_what_is_no_page():
    home, other = ROOT / "docs" / "index.md", ROOT / "docs" / "rewards.md"
    readme = ROOT / "src" / "groupwise_recipes" / "on_task" / "README.md"
    pages = {home: "index.md", other: "rewards.md", readme: "recipes/on_task.md"}
    text = "[a](../src/groupwise_recipes/on_task/README.md#x) ![p](images/p.png) [M](../Makefile)"
    assert relink(text, home, pages) == (
        "[a](recipes/on_task.md#x) ![p](images/p.png) M (`Makefile`)"
    )
    assert relink("[r](../../../docs/rewards.md)", readme, pages) == "[r](../rewards.md)"
    with pytest.raises(FileNotFoundError, match=r"docs/index.md links to nowhere.md"):
        relink("[x](nowhere.md)", home, pages)


def list_fields(section: type[BaseModel]) -> list[str]:
    return list(section.model_fields)


def test_every_setting_stands_in_the_page():
    page = describe_settings()
    for name, recipe in find_recipes().items():
        config = recipe.load_config_type()
        own = page.split(f"## {name}\n")[1].split("\n## ")[0]
        for field in list_fields(config):
            assert field not in config.__annotations__ or f"`{field}`" in own
    for section in (GrpoSettings, TrainerSettings):
        shared = page.split(f"### {section.__name__}\n")[1].split("\n### ")[0]
        named = re.findall(r"^(?:\||-) `(\w+)`(?: \||: \[)", shared, re.MULTILINE)
        assert {*named} == {*section.__annotations__} - {"retired"}
    logged = next(line for line in shared.splitlines() if "| `log_every_steps` |" in line)
    assert "| harmless: " in logged
    shared = page.split("### GrpoSettings\n")[1].split("\n### ")[0]
    assert "Beside these: those of [TrainerSettings](#trainersettings)." in shared
    assert "- `speed`: [SpeedSettings](#speedsettings); what is computed once" in shared
    assert "| `beta` | number, ≥ 0 | `0.0` | weight of the KL penalty" in shared
    assert (
        "| `learning_rate` | number, > 0 | depends | peak of the schedule; not given: 1e-4"
        in shared
    )
    epochs = next(line for line in shared.splitlines() if line.startswith("| `epochs` |"))
    assert epochs.endswith("| budget |")


def test_links_within_the_page_of_settings_lead_somewhere():
    page = describe_settings()
    titles = re.findall(r"^##+ (.+)$", page, re.MULTILINE)
    anchors = [title.lower().replace(": ", "-").replace(" ", "-") for title in titles]
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= set(anchors)


def test_meanings_are_read_from_docstrings():
    assert (
        read_meanings(PictureAugmentation)["contrast"] == "factors are drawn from [1 - x, 1 + x]."
    )
    assert read_meanings(GrpoSettings)["save_every_steps"].startswith("a checkpoint each so many")
    assert set(read_meanings(EvaluationSettings)) == set(list_fields(EvaluationSettings))


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (int | None, "integer or null"),
        (tuple[str, ...], "list of text"),
        (dict[str, float], "mapping of number"),
        (Mapping[str, int], "mapping of integer"),
        (GrpoSettings | None, "[GrpoSettings](#grposettings) or null"),
        (Path, "path"),
    ],
)
def test_types_are_said_as_people_write_values(annotation: object, said: str):
    assert describe_type(annotation) == said


def test_measures_in_the_page_exist_with_their_direction():
    page = (ROOT / "docs" / "reading-a-report.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[^|]*) \| [^|]* \| (higher|lower) \|$", page, re.MULTILINE)
    assert len(rows) >= 10
    for names, better in rows:
        for name in re.findall(r"`([^`]+)`", names):
            measure = find_measure(name)
            assert measure is not None
            assert measure.is_higher_better == (better == "higher"), name


def test_alarms_are_listed_with_what_to_do(project: Path):
    page = (project / "build" / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    assert "| `kl_jump` | lower learning_rate or max_grad_norm, or raise beta |" in page
    assert "<!--" not in page
