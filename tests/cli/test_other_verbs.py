"""``recipes``, ``doctor``, ``audit data``, ``--version`` and ``--help``."""

import re
import shutil
import subprocess
import sys

import pytest
import typer.main

from groupwise import __version__
from groupwise.cli.main import app
from groupwise.cli.verbs import find_verbs, read_summary


def test_recipes_are_listed_with_their_configs(tiny):
    done = tiny.call("recipes")
    assert done.returncode == 0
    assert "tiny: writes rows\n  configs: demo\n" in done.stdout
    assert "on_task: " in done.stdout


def test_version(tiny):
    assert tiny.call("--version").stdout == f"groupwise {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["--help"], marks=pytest.mark.slow),
        ["run", "--help"],
        pytest.param(["recipes"], marks=pytest.mark.slow),
        ["run", "tiny", "--dry-run"],
    ],
)
def test_quick_verbs_do_not_import_torch(tiny, arguments: list[str]):
    code = (
        "import sys\n"
        "from groupwise.cli.main import main\n"
        f"sys.argv = ['groupwise', *{arguments}]\n"
        "try:\n    main()\n"
        "except SystemExit as leaving:\n"
        "    sys.exit(leaving.code or ('torch' in sys.modules and 'torch was imported'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tiny.work,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("verb", "defaults"),
    [
        (["run"], ["demo, or the recipe's only one", "runs/<recipe>-<config name>"]),
        (["sweep"], ["runs/<recipe>-<config name>-sweep", "1"]),
        (["watch"], ["2 on a terminal, else 30", "the one that runs, or the last", "en"]),
        (["judge", "calibrate"], ["by its name", "runs/judge-<config or file name>", "3"]),
        (["compare"], ["runs/compare-<run>-<run>", "what heads the report"]),
        (["report"], ["the sweep's folder, or the file's name", "what heads the report"]),
        (["predict"], ["8"]),
        (["export-model"], ["the one its report is about"]),
    ],
)
def test_help_shows_what_is_taken_where_nothing_is_given(command_line, verb, defaults):
    shown = command_line(*verb, "--help").stdout
    missing = [
        text for text in defaults if not re.search(rf"\[default: \(?{re.escape(text)}", shown)
    ]
    assert missing == []


def list_commands(group: object) -> list[object]:
    """Return the commands of a group and of the groups in it."""
    inner = getattr(group, "commands", {}).values()
    return [group, *(command for one in inner for command in list_commands(one))]


def test_a_list_of_verbs_says_of_each_what_its_own_help_says():
    group = typer.main.get_command(app)
    places = find_verbs()
    assert set(group.commands) == set(places)
    for name, command in group.commands.items():
        assert read_summary(places[name]).split() == (command.help or "").split(), name


def test_the_list_of_verbs_imports_none_of_them():
    program = (
        "import sys\n"
        "from groupwise.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted(m for m in sys.modules if m.startswith('groupwise.')), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "export-model" in done.stdout
    loaded = done.stderr.strip().splitlines()[-1]
    assert loaded == "['groupwise.cli', 'groupwise.cli.main', 'groupwise.cli.verbs']"


def test_no_help_has_what_rich_takes_for_markup():
    texts = [
        text
        for command in list_commands(typer.main.get_command(app))
        for text in [command.help, *(getattr(one, "help", "") for one in command.params)]
    ]
    assert len(texts) > 50
    assert [text for text in texts if re.search(r"\[[a-z#/@]", text or "")] == []


def test_doctor_says_what_is_found(tiny):
    tiny.use_real_torch()
    done = tiny.run("doctor")
    assert done.returncode == 0
    levels = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines()}
    assert levels["torch"] == levels["groupwise"] == "fine"
    assert {"devices", "torchvision", "disk", "memory"} <= levels.keys()


def test_doctor_fails_when_something_is_broken(tiny):
    info = tiny.site / "torchvision-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torchvision\nVersion: 0.1\n")
    (tiny.site / "torchvision.py").write_text("raise RuntimeError('operator is missing')\n")
    tiny.use_real_torch()
    done = tiny.run("doctor")
    assert done.returncode == 1
    assert "0.1 cannot be imported (operator is missing) → pip uninstall torchvision" in done.stdout


class TestAuditData:
    def test_it_runs_up_to_the_audit_and_prints_it(self, tiny):
        done = tiny.call("audit", "data", "tiny")
        assert (done.returncode, done.stdout) == (0, "# Audit\n\n0 errors\n\n")
        assert tiny.list_done() == ["prepare", "audit"]
        assert tiny.call("run", "tiny").returncode == 0
        assert tiny.list_done() == ["write", "evaluate", "report"]

    def test_a_config_file_finds_its_recipe(self, tiny):
        shutil.copy(tiny.site / "configs" / "demo.yaml", tiny.work / "mine.yaml")
        done = tiny.call("audit", "data", "mine.yaml")
        assert done.returncode == 0, done.stderr
        assert (tiny.work / "runs/tiny-mine/audit/audit.json").is_file()

    def test_errors_of_the_audit_exit_1(self, tiny):
        done = tiny.call("audit", "data", "tiny", "--set", "audit_errors=2", "--out", "out")
        assert done.returncode == 1
        assert "2 errors" in done.stdout
        assert "Traceback" not in done.stderr

    def test_an_audit_that_stops_the_run_is_printed_too(self, tiny):
        settings = ("--set", "audit_errors=2", "--set", "audit_stops=true")
        done = tiny.call("audit", "data", "tiny", *settings)
        assert (done.returncode, "2 errors" in done.stdout) == (1, True)

    def test_an_error_before_the_audit_is_not_hidden_by_an_old_audit(self, tiny):
        tiny.call("audit", "data", "tiny", "--set", "audit_errors=2")
        tiny.source.write_text("")
        done = tiny.call("audit", "data", "tiny", "--set", "audit_errors=2")
        assert (done.returncode, done.stdout) == (2, "")
        assert "the source is empty" in done.stderr
