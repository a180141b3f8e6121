"""Stage B's rows, the warm-up's replies made by rule, and which photos are taught."""

from collections import Counter
from pathlib import Path

import pytest
from group_words import PARSER, QUESTIONS, VERDICTS, WORDS, make_question
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import Completion, derive_seed
from groupwise.models import TrainableSettings
from groupwise.training import SftRow
from groupwise_recipes.group_qc.config import TeachSettings
from groupwise_recipes.group_qc.missions import load_missions
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.rewards import GroupRewards, make_rewards
from groupwise_recipes.group_qc.stage_b import (
    choose_few,
    make_group_rows,
    write_row,
    write_target,
)
from groupwise_recipes.group_qc.teach import draw_photos

EARTH = "BBU接地线检查"
ROOT = Path("photos")


def make_group(label: str | None = "fail", name: str = "g") -> PhotoGroup:
    return PhotoGroup(f"{EARTH}/x/{name}", name, EARTH, label, (ROOT / f"{name}.jpg",))


def test_rows_of_groups_with_summaries() -> None:
    groups = [make_group("fail", "a"), make_group("pass", "b"), make_group("pass", "c")]
    summaries = {
        groups[0].key: {"图片_1": "接地线/未安装×1"},
        groups[1].key: {"图片_1": "接地线×1"},
    }
    rows = make_group_rows(groups, summaries, QUESTIONS, root=ROOT)
    assert [(row.cluster, row.label) for row in rows] == [("a", "不通过"), ("b", "通过")]
    assert rows[0].fields["images"] == ["a.jpg"]
    written = write_row(rows[0])
    assert set(written) == {
        "group_id",
        "task_type",
        "group_label",
        "stage_a_summaries",
        "messages",
    }
    assert [message["role"] for message in written["messages"]] == ["system", "user"]


@pytest.mark.parametrize(
    ("label", "summary", "reason"),
    [
        ("通过", "接地线/黄绿色/连接牢固×1", "要点均已确认"),
        ("不通过", "机柜/白色×1，接地线/黄绿色/一端未连接×1", "接地线：一端未连接"),
        ("不通过", "未见接地线×1，机柜/白色×1", "未见接地线"),
        ("不通过", "无关图片", "没有相关图片，要点无法确认"),
        ("不通过", "机柜/白色×1", "有要点无法确认"),
        ("不通过", "合格证×1/缺失", "合格证：缺失"),
        ("不通过", "线缆/不影响通过×1", "有要点无法确认"),
    ],
)
def test_reasons_by_rule(label: str, summary: str, reason: str) -> None:
    example = make_question(EARTH, ["x"], {"图片_1": summary}, group="g", label=label)
    reply = PARSER.judge(write_target(example, PARSER))
    assert (reply.verdict, reply.reason, reply.problem) == (label, reason, "")


PIECES = ["接地线", "合格证", "未", "不", "影响", "通过", "无法", "缺", "符合", "/", "×2", "，"]


@given(
    st.lists(st.lists(st.sampled_from(PIECES), min_size=1).map("".join), min_size=1, max_size=4),
    st.sampled_from(VERDICTS),
)
def test_what_is_taught_is_consistent(lines: list[str], label: str) -> None:
    summaries = {f"图片_{number}": line for number, line in enumerate(lines, start=1)}
    example = make_question(EARTH, ["接地线连接"], summaries, group="g", label=label)
    taught = Completion(write_target(example, PARSER))
    assert (
        make_rewards(GroupRewards(), PARSER).rewards["consistency"](example, taught).value == 1.0
    ), taught.text


def test_few_groups_have_every_verdict_and_mission() -> None:
    examples = [
        make_question(mission, ["x"], {"图片_1": str(n)}, group=str(n), label=VERDICTS[n % 2])
        for n in range(40)
        for mission in (EARTH, "挡风板安装检查")
    ]
    few = choose_few(examples, 8, WORDS, seed=0)
    kinds = [(example.fields["task_type"], example.label) for example in few]
    assert len(few) == 8
    assert all(kinds.count(kind) == 2 for kind in set(kinds))
    assert few == choose_few(examples, 8, WORDS, seed=0)
    assert few != choose_few(examples, 8, WORDS, seed=1)
    assert len(choose_few(examples, None, WORDS, seed=0)) == len(examples)


def test_few_groups_fail_for_what_is_seen_and_for_what_is_not() -> None:
    examples = [
        make_question(EARTH, ["x"], {"图片_1": text}, group=f"{text} {n}", label="不通过")
        for text, num_groups in (("接地线/未安装×1", 30), ("机柜/白色×1", 2))
        for n in range(num_groups)
    ]
    few = choose_few(examples, 4, WORDS, seed=0)
    assert sum(example.cluster.startswith("机柜") for example in few) == 2


@pytest.mark.parametrize("seed", range(5))
def test_few_groups_show_every_kind_in_any_order_of_the_data(seed: int) -> None:
    missions = load_missions().names[:4]
    kinds = {
        "pass": ("通过", "机柜/白色×1"),
        "seen": ("不通过", "接地线/未安装×1"),
        "unseen": ("不通过", "机柜/白色×1"),
    }
    examples = [
        make_question(mission, ["x"], {"图片_1": text}, group=f"{kind} {n}", label=label)
        for kind, (label, text) in kinds.items()
        for mission in missions
        for n in range(4)
    ]
    examples.sort(key=lambda example: derive_seed(seed, "order", example.id))
    few = choose_few(examples, 8, WORDS, seed=seed)
    by_kind = Counter(example.cluster.split()[0] for example in few)
    assert by_kind == {"pass": 4, "seen": 2, "unseen": 2}
    for kind, num_groups in by_kind.items():
        own = [e.fields["task_type"] for e in few if e.cluster.startswith(f"{kind} ")]
        assert len(set(own)) == num_groups


def test_balance_draws_rare_descriptions_more_often() -> None:
    example = make_question(EARTH, ["x"], {"图片_1": "x"}, group="g", label="通过")
    rows = [SftRow(example, "often")] * 90 + [SftRow(example, "rare")] * 10
    settings = load_demo_teaching()

    def count(balance: float) -> int:
        teach = settings.model_copy(update={"balance": balance, "photos_per_epoch": 1000})
        return sum(row.target == "rare" for row in draw_photos(rows, teach, seed=0))

    assert count(0.0) == 10  # every photo once: there are only 100
    assert 200 < count(0.5) < 300  # 10 to 30
    assert 450 < count(1.0) < 550


def load_demo_teaching() -> TeachSettings:
    return TeachSettings(trainable=TrainableSettings(method="full"))
