"""The audit of rewards on the command line: its table, ``run``'s refusal, and ``--accept``."""

import json
import re
import shutil
from pathlib import Path

import pytest
from tiny_site import TinyRecipe

FIXTURE = Path(__file__).parents[1] / "fixtures" / "rewarded_recipe.py"
DEFAULT = ("--set", "broken=default")
FAULTS = [
    "reward/pays-empty",
    "reward/pays-white-space",
    "reward/pays-garbage",
    "reward/pays-negation",
    "reward/pays-echo",
    "reward/pays-empty-format",
    "reward/pays-broken-answer",
    "reward/pays-long-output",
    "reward/pays-wrong-format",
    "reward/pays-near-words",
    "reward/pays-several-answers",
    "reward/pays-mention",
    "reward/pays-injection",
    "reward/pays-label-stuffing",
    "reward/pays-label-list",
    "reward/laxer-than-metric",
]


@pytest.fixture
def rewarded(tiny: TinyRecipe) -> TinyRecipe:
    """The same with the rewarded recipe beside the tiny one."""
    shutil.copy(FIXTURE, tiny.site)
    (tiny.site / "rewarded").mkdir()
    (tiny.site / "rewarded" / "demo.yaml").write_text("seed: 0\n")
    entries = tiny.site / "tiny-0.1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "rewarded = rewarded_recipe:recipe\n")
    return tiny


def accept(*names: str) -> list[str]:
    return [word for name in names for word in ("--accept", name)]


def read_notices(folder: Path) -> str:
    return (folder / "report.md").read_text(encoding="utf-8")


class TestAuditRewards:
    def test_sound_rewards_pass(self, rewarded, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        done = rewarded.call.succeed("audit", "--only", "rewards", "rewarded", "--out", "out")
        assert "reward/reference-below-maximum " in done.stdout
        assert "0 error(s), 0 warning(s)" in done.stdout
        assert rewarded.list_done() == ["prepare"]
        values = json.loads((rewarded.work / "out/audit_rewards/audit.json").read_text())
        assert values["findings"] == []
        assert all(row["is_passed"] for row in values["rows"])

    def test_a_config_file_finds_its_recipe(self, rewarded):
        (rewarded.work / "mine.yaml").write_text("broken: default\n")
        done = rewarded.call("audit", "--only", "rewards", "mine.yaml")
        assert (done.returncode, rewarded.list_done()) == (1, ["prepare"])
        assert (rewarded.work / "runs/rewarded-mine/audit_rewards/audit.json").is_file()

    def test_a_fault_exits_1_with_the_example_that_shows_it_until_it_is_mended(self, rewarded):
        done = rewarded.call("audit", "--only", "rewards", "rewarded", *DEFAULT)
        assert done.returncode == 1, done.stderr
        assert "error reward/pays-empty: an empty answer: must earn 0;" in done.stdout
        assert "  '' earns 1 on " in done.stdout
        assert "Traceback" not in done.stderr
        assert rewarded.list_done() == ["prepare"]
        values = json.loads(
            (rewarded.work / "runs/rewarded-demo/audit_rewards/audit.json").read_text()
        )
        errors = [f["name"] for f in values["findings"] if f["level"] == "error"]
        assert errors == FAULTS
        rewarded.call.succeed("audit", "--only", "rewards", "rewarded")

    def test_warnings_alone_are_told_and_pass(self, rewarded):
        done = rewarded.call.succeed(
            "audit", "--only", "rewards", "rewarded", "--set", "broken=unscored"
        )
        assert "0 error(s), 1 warning(s)" in done.stdout
        assert "warning reward/unscored-answers" in done.stdout

    def test_a_fault_in_the_code_is_looked_for_again(self, rewarded):
        """Only what passed (or was accepted) is reused."""
        code = rewarded.site / "rewarded_recipe.py"
        text = code.read_text()
        code.write_text(text.replace('config.broken == "default"', "True"))
        assert rewarded.call("audit", "--only", "rewards", "rewarded").returncode == 1
        code.write_text(text)
        assert rewarded.call("audit", "--only", "rewards", "rewarded").returncode == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["rewardedd"], "did you mean 'rewarded'?"),
            (["tiny"], "the recipe tiny has no rewards that can be audited"),
            (["rewarded", "--config", "dmeo"], "did you mean 'demo'?"),
            (["gone.yaml"], "there is no config file 'gone.yaml'"),
            (["../site/rewarded/demo.yaml", "--config", "demo"], "two configs are given"),
            (["../site/configs/demo.yaml", "--set", "x=1"], "fits 0 recipes; name the recipe"),
            (["rewarded", "--set", "num_examples=0"], "without examples"),
            ([], "Missing argument"),
        ],
    )
    def test_mistakes_exit_2(self, rewarded, arguments: list[str], message: str):
        done = rewarded.call("audit", "--only", "rewards", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr

    def test_an_old_audit_is_not_shown_for_a_new_mistake(self, rewarded):
        rewarded.call("audit", "--only", "rewards", "rewarded", *DEFAULT)
        code = rewarded.site / "rewarded_recipe.py"
        code.write_text(
            code.read_text()
            .replace("    return RewardCase(", "    raise DataError('gone')\n")
            .replace("    Config,\n", "    Config,\n    DataError,\n", 1)
            .replace("        rewards=score,", "    dict(rewards=score,", 1)
        )
        done = rewarded.call("audit", "--only", "rewards", "rewarded", *DEFAULT)
        assert (done.returncode, done.stdout) == (2, "")
        assert "gone" in done.stderr


def test_a_real_process_exits_1_for_the_audit_and_the_run_behind_it_2(rewarded):
    rewarded.use_real_torch()
    done = rewarded.run("audit", "--only", "rewards", "rewarded", *DEFAULT)
    assert (done.returncode, "'' earns 1 on " in done.stdout) == (1, True)
    assert "Traceback" not in done.stderr
    assert "'' earns 1 on " in rewarded.call.refuse("run", "rewarded", *DEFAULT)
    assert rewarded.list_done() == ["prepare"]


class TestRun:
    def test_sound_rewards_are_audited_and_trained_on(self, rewarded):
        shown = rewarded.call.succeed("run", "rewarded", "--dry-run").stdout
        rows = [line.split()[1] for line in shown.splitlines() if line.startswith("│")]
        assert rows == ["prepare", "audit_rewards", "train", "report"]
        done = rewarded.call.succeed("run", "rewarded")
        assert "[2/4] audit_rewards: what the rewards pay for" in done.stderr
        assert rewarded.list_done() == ["prepare", "train", "report"]
        manifest = json.loads((rewarded.work / "runs/rewarded-demo/manifest.json").read_text())
        assert manifest["accepted_findings"] == []
        assert "Accepted" not in read_notices(rewarded.work / "runs/rewarded-demo")

    def test_a_fault_stops_the_run_before_training_unless_all_are_accepted(self, rewarded):
        said = rewarded.call.refuse("run", "rewarded", *DEFAULT)
        assert rewarded.list_done() == ["prepare"]
        assert "error: the reward audit found 16 fault(s), so nothing is trained:" in said
        assert "  reward/pays-empty: an empty answer: must earn 0;" in said
        assert "    '' earns 1 on " in said
        assert said.splitlines()[-1].count("--accept reward/") == 16
        said = rewarded.call.refuse("run", "rewarded", *DEFAULT, *accept(*FAULTS[1:]))
        assert rewarded.list_done() == []
        assert "found 1 fault(s)" in said
        assert said.splitlines()[-1].endswith("with --accept reward/pays-empty")

    def test_what_is_accepted_is_recorded_and_told_first_and_refused_without_the_word(
        self, rewarded
    ):
        rewarded.call.succeed("run", "rewarded", *DEFAULT, *accept(*FAULTS))
        assert rewarded.list_done() == ["prepare", "train", "report"]
        folder = rewarded.work / "runs/rewarded-demo"
        manifest = json.loads((folder / "manifest.json").read_text())
        assert manifest["accepted_findings"] == sorted(FAULTS)
        for name in ("report.md", "report.html"):
            text = (folder / name).read_text(encoding="utf-8")
            told = text.index("Accepted with --accept reward/pays-empty: an empty answer")
            absent = re.search("Not there: .*metrics.json", text)
            assert absent
            assert told < absent.start()
        again = rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS))
        assert (again.returncode, again.stderr.count("reused")) == (0, 4)
        rewarded.call.refuse("run", "rewarded", *DEFAULT)

    def test_resume_keeps_what_was_accepted(self, rewarded):
        rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS), "--out", "out")
        (rewarded.work / "out/train/policy.txt").unlink()
        rewarded.call.succeed("run", "rewarded", "--resume", "--out", "out")
        manifest = json.loads((rewarded.work / "out/manifest.json").read_text())
        assert manifest["accepted_findings"] == sorted(FAULTS)
        rewarded.call.succeed("run", "rewarded", "--resume", "--out", "out", "--set", "broken=none")
        assert "Accepted" not in read_notices(rewarded.work / "out")

    def test_a_refused_run_goes_on_with_resume_and_accept(self, rewarded):
        rewarded.call("run", "rewarded", *DEFAULT, "--out", "out")
        rewarded.list_done()
        done = rewarded.call("run", "rewarded", "--resume", "--out", "out", *accept(*FAULTS))
        assert (done.returncode, rewarded.list_done()) == (0, ["train", "report"])

    @pytest.mark.parametrize("more", [[], ["--dry-run"]])
    def test_accepting_what_there_is_not_is_refused_at_once(self, rewarded, more: list[str]):
        said = rewarded.call.refuse("run", "rewarded", *accept("reward/pays-emty"), *more)
        assert "there is no finding 'reward/pays-emty'; did you mean" in said
        assert list(rewarded.work.glob("runs")) == []

    def test_a_reward_that_raises_is_a_fault_and_no_traceback(self, rewarded):
        said = rewarded.call.refuse("run", "rewarded", "--set", "broken=raises")
        assert "reward/raises" in said
        assert "ValueError: cannot read it" in said
