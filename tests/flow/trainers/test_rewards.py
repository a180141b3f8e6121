"""The plug-in files pay what the run's own rewards pay, for any answer."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from runpy import run_path
from types import ModuleType
from typing import Any

import pytest
from faulty_server import FaultyServer
from handed_over import open_own_rewards, read_asked
from hypothesis import given
from hypothesis import strategies as st
from small_task import PARSER, SmallTask

from groupwise.core import Completion, ConfigError, Example, RewardError
from groupwise.flow import export_for_trainer, open_rewards, open_run
from groupwise.rewards import RewardSet, SoftOverlong
from groupwise.rewards.adapters import VerlScore, make_swift_orm

ANSWERS = st.one_of(
    st.sampled_from(["on-task", "off-task", "not on-task", "on-task off-task", ""]),
    st.builds("{}{}".format, st.text(max_size=12), st.sampled_from(["on-task", " off-task"])),
    st.builds("Screen: {}. Task: {}. on-task".format, st.text(max_size=9), st.text(max_size=9)),
    st.text(max_size=30),
)


class Handed:
    """The folders of both trainers, and the rewards that the run itself would have."""

    def __init__(self, run: Path, folder: Path) -> None:
        for name in ("verl", "swift"):
            export_for_trainer(open_run(run), folder / name, name)
        self.folder = folder
        self.own: RewardSet = open_own_rewards(run, folder / "own")
        self.asked: list[Example] = read_asked(run)
        self.compute: Callable[..., Any] = run_path(str(folder / "verl" / "plugin.py"))[
            "compute_score"
        ]
        self.orm: Any = load_orm(folder / "swift" / "plugin.py")

    def ask_verl(self, example: Example, text: str) -> dict[str, float]:
        extra = {"split": "train", "index": 0, "example_id": example.id}
        return self.compute("groupwise/on_task", text, example.label, extra_info=extra)


def load_orm(plugin: Path) -> Any:
    """Return swift's reward from a plug-in file, with no more of swift than its registry."""
    package, registry = ModuleType("swift"), ModuleType("swift.rewards")
    registry.orms = {}  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "swift", package)
        patch.setitem(sys.modules, "swift.rewards", registry)
        run_path(str(plugin))
    return registry.orms["groupwise"](args=object())


@pytest.fixture(scope="session")
def handed(judged_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Handed:
    return Handed(judged_run, tmp_path_factory.mktemp("handed"))


@given(data=st.data(), text=ANSWERS)
def test_both_plugins_pay_what_the_run_pays(handed: Handed, data: st.DataObject, text: str) -> None:
    example = data.draw(st.sampled_from(handed.asked))
    wanted = handed.own.score(example, Completion(text))
    got = handed.ask_verl(example, text)
    assert (got["score"], got["invalid"]) == (wanted.value, float(wanted.invalid))
    parts = {name: got[f"reward/{name}"] for name in wanted.breakdown}
    assert {n: None if v != v else v for n, v in parts.items()} == dict(wanted.breakdown)
    columns = {"solution": [example.label], "example_id": [example.id]}
    assert handed.orm([text], **columns) == [wanted.value]


def test_the_judge_is_asked_in_both_orders_and_once(
    handed: Handed, judge_server: FaultyServer
) -> None:
    example = handed.asked[0]
    handed.ask_verl(example, "on-task")
    before = len(judge_server.asked)
    for text in ("on-task", "off-task", "Screen: a. Task: b. on-task"):
        handed.ask_verl(example, text)
    assert len(judge_server.asked) == before
    assert (handed.folder / "verl" / "judge" / "judge.sqlite").is_file()
    task = str(example.fields["task"])
    asked = [json.dumps(one, ensure_ascii=False) for one in judge_server.asked]
    orders = {"A: the screen is on-task" in one for one in asked if task in one}
    assert orders == {True, False}


def test_a_persons_label_overrides_the_judge(handed: Handed) -> None:
    corrected = [one for one in handed.asked if "human_label" in one.fields]
    others = [one for one in handed.asked if "human_label" not in one.fields]
    assert corrected
    assert others
    for example in corrected:
        wrong = next(w for w in ("on-task", "off-task") if w != example.label)
        got = handed.ask_verl(example, str(example.label))
        assert got["score"] == 1.0
        assert got["reward/judge"] != got["reward/judge"]  # dropped, whatever it said
        assert handed.ask_verl(example, wrong)["reward/human"] == 0.0


def test_a_row_that_is_no_example_of_the_run_is_refused(handed: Handed) -> None:
    example = handed.asked[0]
    with pytest.raises(RewardError, match="no example_id"):
        handed.compute("groupwise/on_task", "on-task", "on-task", extra_info={"index": 0})
    with pytest.raises(RewardError, match="no example_id"):
        handed.orm(["on-task"], solution=["on-task"])
    other = "off-task" if example.label == "on-task" else "on-task"
    with pytest.raises(RewardError, match="another reference answer"):
        handed.compute("x", "on-task", other, extra_info={"example_id": example.id})


def test_the_folder_may_be_moved(judged_run: Path, handed: Handed, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(handed.folder / "verl", moved)
    rewards, examples = open_rewards(moved)
    example = handed.asked[0]
    assert all(picture.path.is_file() for picture in examples[example.id].pictures)
    wanted = handed.own.score(example, Completion("on-task"))
    assert rewards.score(examples[example.id], Completion("on-task")) == wanted


def test_settings_with_relative_paths_are_read_from_where_it_was_exported(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Path] = []
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    export_for_trainer(open_run(finished), tmp_path / "out" / "verl", "verl")
    monkeypatch.chdir(tmp_path)
    whole = SmallTask.rewards

    def look(self: SmallTask, config: Any, judge: Any = None) -> RewardSet:
        seen.append(Path.cwd())
        return whole(self, config, judge)

    monkeypatch.setattr(SmallTask, "rewards", look)
    open_rewards(tmp_path / "out" / "verl")
    assert seen == [work]
    assert Path.cwd() == tmp_path
    work.rmdir()
    open_rewards(tmp_path / "out" / "verl")
    assert seen[1:] == [tmp_path]


def test_texts_alone_are_scored_as_well(finished: Path, tmp_path: Path) -> None:
    export_for_trainer(open_run(finished), tmp_path / "out", "verl")
    compute = run_path(str(tmp_path / "out" / "plugin.py"))["compute_score"]
    for example in read_asked(finished):
        for text in (*PARSER.labels, "?"):
            got = compute("x", text, example.label, extra_info={"example_id": example.id})
            assert got["score"] == float(text == example.label)


def test_rewards_that_need_what_is_not_there_are_refused(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = open_run(finished)
    monkeypatch.setattr(SmallTask, "explain_bound_rewards", lambda *_: "they know this run")
    with pytest.raises(ConfigError, match="cannot be built again elsewhere: they know this run"):
        export_for_trainer(run, tmp_path / "out", "verl")
    assert not (tmp_path / "out").exists()


def test_a_reward_that_counts_tokens_is_none_for_verl() -> None:
    rewards = RewardSet({"length": (SoftOverlong(max_tokens=8, cache_tokens=4), 1)})
    with pytest.raises(RewardError, match=r"'length' counts tokens, and verl gives texts alone"):
        VerlScore(rewards)
    assert make_swift_orm(rewards)()(["x"], response_token_ids=[[1] * 8]) == [0.0]
