"""The audit of rewards on the command line: its table, ``run``'s refusal, and ``--accept``."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
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


@dataclass
class Rewarded:
    """The rewarded recipe, installed beside the tiny one."""

    tiny: TinyRecipe

    @property
    def work(self) -> Path:
        return self.tiny.work

    @property
    def code(self) -> Path:
        return self.tiny.site / "rewarded_recipe.py"

    def list_done(self) -> list[str]:
        return self.tiny.list_done()

    def call(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.tiny.call(*arguments)


@pytest.fixture
def rewarded(tiny: TinyRecipe) -> Rewarded:
    shutil.copy(FIXTURE, tiny.site)
    (tiny.site / "rewarded").mkdir()
    (tiny.site / "rewarded" / "demo.yaml").write_text("seed: 0\n")
    entries = tiny.site / "tiny-0.1.dist-info" / "entry_points.txt"
    entries.write_text(entries.read_text() + "rewarded = rewarded_recipe:recipe\n")
    return Rewarded(tiny)


def accept(*names: str) -> list[str]:
    return [word for name in names for word in ("--accept", name)]


def read_notices(folder: Path) -> str:
    return (folder / "report.md").read_text(encoding="utf-8")


class TestAuditRewards:
    def test_sound_rewards_pass(self, rewarded, monkeypatch):
        monkeypatch.setenv("COLUMNS", "80")
        done = rewarded.call("audit", "rewards", "rewarded", "--out", "out")
        assert done.returncode == 0, done.stderr
        assert "reward/reference-below-maximum " in done.stdout
        assert "0 error(s), 0 warning(s)" in done.stdout
        assert rewarded.list_done() == ["prepare"]
        values = json.loads((rewarded.work / "out/audit_rewards/audit.json").read_text())
        assert values["findings"] == []
        assert all(row["is_passed"] for row in values["rows"])

    def test_a_config_file_finds_its_recipe(self, rewarded):
        (rewarded.work / "mine.yaml").write_text("broken: default\n")
        done = rewarded.call("audit", "rewards", "mine.yaml")
        assert (done.returncode, rewarded.list_done()) == (1, ["prepare"])
        assert (rewarded.work / "runs/rewarded-mine/audit_rewards/audit.json").is_file()

    def test_a_fault_exits_1_with_the_example_that_shows_it(self, rewarded):
        done = rewarded.call("audit", "rewards", "rewarded", *DEFAULT)
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

    def test_warnings_alone_are_told_and_pass(self, rewarded):
        done = rewarded.call("audit", "rewards", "rewarded", "--set", "broken=unscored")
        assert done.returncode == 0
        assert "0 error(s), 1 warning(s)" in done.stdout
        assert "warning reward/unscored-answers" in done.stdout

    def test_mending_the_reward_mends_the_audit(self, rewarded):
        assert rewarded.call("audit", "rewards", "rewarded", *DEFAULT).returncode == 1
        assert rewarded.call("audit", "rewards", "rewarded").returncode == 0

    def test_a_fault_in_the_code_is_looked_for_again(self, rewarded):
        """Only what passed (or was accepted) is reused."""
        code = rewarded.code
        text = code.read_text()
        code.write_text(text.replace('config.broken == "default"', "True"))
        assert rewarded.call("audit", "rewards", "rewarded").returncode == 1
        code.write_text(text)
        assert rewarded.call("audit", "rewards", "rewarded").returncode == 0

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
        done = rewarded.call("audit", "rewards", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert message in " ".join(done.stderr.split())
        assert "Traceback" not in done.stderr

    def test_an_old_audit_is_not_shown_for_a_new_mistake(self, rewarded):
        rewarded.call("audit", "rewards", "rewarded", *DEFAULT)
        code = rewarded.code
        code.write_text(
            code.read_text()
            .replace("    return RewardCase(", "    raise DataError('gone')\n")
            .replace("    Config,\n", "    Config,\n    DataError,\n", 1)
            .replace("        rewards=score,", "    dict(rewards=score,", 1)
        )
        done = rewarded.call("audit", "rewards", "rewarded", *DEFAULT)
        assert (done.returncode, done.stdout) == (2, "")
        assert "gone" in done.stderr


def test_a_real_process_exits_1_for_the_audit_and_the_run_behind_it_2(rewarded):
    rewarded.tiny.use_real_torch()
    done = rewarded.tiny.run("audit", "rewards", "rewarded", *DEFAULT)
    assert (done.returncode, "'' earns 1 on " in done.stdout) == (1, True)
    assert "Traceback" not in done.stderr
    done = rewarded.call("run", "rewarded", *DEFAULT)
    assert (done.returncode, "'' earns 1 on " in done.stderr) == (2, True)
    assert "Traceback" not in done.stderr
    assert rewarded.list_done() == ["prepare"]


class TestRun:
    def test_sound_rewards_are_audited_and_trained_on(self, rewarded):
        done = rewarded.call("run", "rewarded")
        assert done.returncode == 0, done.stderr
        assert "[2/4] audit_rewards: what the rewards pay for" in done.stderr
        assert rewarded.list_done() == ["prepare", "train", "report"]
        manifest = json.loads((rewarded.work / "runs/rewarded-demo/manifest.json").read_text())
        assert manifest["accepted_findings"] == []
        assert "Accepted" not in read_notices(rewarded.work / "runs/rewarded-demo")

    def test_a_fault_stops_the_run_before_training(self, rewarded):
        done = rewarded.call("run", "rewarded", *DEFAULT)
        assert done.returncode == 2
        assert rewarded.list_done() == ["prepare"]
        assert "error: the reward audit found 16 fault(s), so nothing is trained:" in done.stderr
        assert "  reward/pays-empty: an empty answer: must earn 0;" in done.stderr
        assert "    '' earns 1 on " in done.stderr
        assert done.stderr.endswith("go on all the same with --accept audit\n")
        assert "Traceback" not in done.stderr

    def test_what_is_accepted_is_recorded_and_told_first(self, rewarded):
        done = rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS))
        assert done.returncode == 0, done.stderr
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

    def test_accepting_some_of_the_faults_is_not_enough(self, rewarded):
        done = rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS[1:]))
        assert (done.returncode, rewarded.list_done()) == (2, ["prepare"])
        assert "found 1 fault(s)" in done.stderr
        assert done.stderr.splitlines()[-1].endswith("with --accept reward/pays-empty")

    def test_an_accepted_fault_is_refused_again_without_the_word(self, rewarded):
        assert rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS)).returncode == 0
        assert rewarded.call("run", "rewarded", *DEFAULT).returncode == 2

    def test_resume_keeps_what_was_accepted(self, rewarded):
        rewarded.call("run", "rewarded", *DEFAULT, *accept(*FAULTS), "--out", "out")
        (rewarded.work / "out/train/policy.txt").unlink()
        done = rewarded.call("run", "rewarded", "--resume", "--out", "out")
        assert done.returncode == 0, done.stderr
        manifest = json.loads((rewarded.work / "out/manifest.json").read_text())
        assert manifest["accepted_findings"] == sorted(FAULTS)
        mended = rewarded.call(
            "run", "rewarded", "--resume", "--out", "out", "--set", "broken=none"
        )
        assert mended.returncode == 0, mended.stderr
        assert "Accepted" not in read_notices(rewarded.work / "out")

    def test_a_refused_run_goes_on_with_resume_and_accept(self, rewarded):
        rewarded.call("run", "rewarded", *DEFAULT, "--out", "out")
        rewarded.list_done()
        done = rewarded.call("run", "rewarded", "--resume", "--out", "out", *accept(*FAULTS))
        assert (done.returncode, rewarded.list_done()) == (0, ["train", "report"])

    def test_all_that_was_shown_is_accepted_at_once(self, rewarded):
        first = rewarded.call("run", "rewarded", *DEFAULT, *accept("audit"))
        assert (first.returncode, rewarded.list_done()) == (2, [])
        assert "holds none; run it without first" in first.stderr
        rewarded.call("run", "rewarded", *DEFAULT)
        done = rewarded.call("run", "rewarded", *DEFAULT, *accept("audit"))
        assert done.returncode == 0, done.stderr
        notices = read_notices(rewarded.work / "runs" / "rewarded-demo")
        assert notices.count("Accepted with") == len(FAULTS) + 1  # and a warning

    def test_accepting_what_was_not_found_is_refused(self, rewarded):
        done = rewarded.call("run", "rewarded", *accept("reward/pays-empty"))
        assert (done.returncode, rewarded.list_done()) == (2, ["prepare"])
        assert "did not find: reward/pays-empty; got no faults in audit:" in done.stderr

    @pytest.mark.parametrize("more", [[], ["--dry-run"]])
    def test_accepting_what_there_is_not_is_refused_at_once(self, rewarded, more: list[str]):
        done = rewarded.call("run", "rewarded", *accept("reward/pays-emty"), *more)
        assert done.returncode == 2
        assert "there is no finding 'reward/pays-emty'; did you mean" in done.stderr
        assert list(rewarded.work.glob("runs")) == []

    def test_a_recipe_without_rewards_accepts_nothing(self, rewarded):
        done = rewarded.call("run", "tiny", *accept("reward/pays-empty"))
        assert done.returncode == 2
        assert "the recipe tiny has no rewards that are audited" in done.stderr

    def test_the_preview_has_the_step(self, rewarded):
        done = rewarded.call("run", "rewarded", "--dry-run")
        rows = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("│")]
        assert rows == ["prepare", "audit_rewards", "train", "report"]

    def test_a_reward_that_raises_is_a_fault_and_no_traceback(self, rewarded):
        done = rewarded.call("run", "rewarded", "--set", "broken=raises")
        assert done.returncode == 2
        assert "reward/raises" in done.stderr
        assert "ValueError: cannot read it" in done.stderr
        assert "Traceback" not in done.stderr
