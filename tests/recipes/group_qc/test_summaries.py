"""Replies about one photo as models give them, and the record of a group."""

import json
import unicodedata
from datetime import datetime
from pathlib import Path

import pytest
from group_words import WORDS as CHINESE
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise_recipes.group_qc.photos import PhotoGroup
from groupwise_recipes.group_qc.records import (
    RECORD_KEYS,
    check_record,
    get_record_key,
    make_record,
)
from groupwise_recipes.group_qc.summaries import Problem, clean_summary, number_summaries

LINE = "BBU设备/正装/安装牢固×1，机柜/白色×1"


@pytest.mark.parametrize(
    "reply",
    [
        LINE,
        f"  {LINE}\n\n",
        f"\u3000{LINE}\u200b\ufeff",
        f'"{LINE}"',
        f"“{LINE}”",
        f"图片_1: {LINE}",
        f"图片_1：{LINE}",
        f"图片1：{LINE}",
        f"```\n{LINE}\n```",
        f"```text\n{LINE}\n```",
        f'{{"图片_1": "{LINE}"}}',
        f'\n{{ "图片_1" : "  {LINE}\\n" }} \n',
        f'{{"图片_1": "图片_1：{LINE}"}}',
        f'```json\n{{"图片_1": "{LINE}"}}\n```',
        f'```json {{"图片_1": "{LINE}"}}```',
        f'```JSON\r\n{{\n  "图片_1": "{LINE}"\n}}\r\n```',
        f'```json\n{{"图片_1": "{LINE}"}}',
        f'{{"图片_1"："{LINE}"}}',
        f"｛“图片_1”：“{LINE}”｝",
        f"{{'图片_1': '{LINE}'}}",
        f'{{"图片_1": "{LINE}",}}',
        f'{{"图片＿１": "{LINE}"}}',
        f'{{"图片1": "{LINE}"}}',
    ],
)
def test_one_summary_in_many_forms(reply: str):
    assert clean_summary(reply, CHINESE) == LINE


@pytest.mark.parametrize(
    ("reply", "cause"),
    [
        ("", "empty summary"),
        (" \n\t\u3000", "empty summary"),
        ("\u200b\ufeff", "empty summary"),
        ("。", "empty summary"),
        ("``````", "empty summary"),
        ("```json\n```", "empty summary"),
        ('""', "empty summary"),
        ("{}", "empty summary"),
        ('{"图片_1": ""}', "empty summary"),
        ('{"图片_1": " \\n　"}', "empty summary"),
        ('{"图片_1": "——，。"}', "empty summary"),
        ('{"图片_1": "\\u200b"}', "empty summary"),
        ("｛“图片_1”：“”｝", "empty summary"),
        ("图片_1：", "empty summary"),
        ('{"图片_2": "机柜×1"}', "wrong key"),
        ('{"图片_0": "机柜×1"}', "wrong key"),
        ('{"图片_11": "机柜×1"}', "wrong key"),
        ('{"照片": "机柜×1"}', "wrong key"),
        ('{"": "机柜×1"}', "wrong key"),
        ("图片_2：机柜×1", "wrong key"),
        ("图片2: 机柜×1", "wrong key"),
        ('{"图片_1": "机柜×1", "图片_2": "机柜×1"}', "several photos"),
        ('{"图片_1": "机柜×1", "图片_1": "无关图片"}', "several photos"),
        ('{"图片_1": "机柜×1", "备注": "清晰"}', "several photos"),
        ("图片_1：机柜×1\n图片_2：机柜×1", "several photos"),
        ('{"图片_1": "机柜×1\\n图片_2: 机柜×1"}', "several photos"),
        ('{"图片_1": "机柜×1', "broken JSON"),
        ('{"图片_1": "机柜×1"', "broken JSON"),
        ('{"图片_1": 机柜×1}', "broken JSON"),
        ('{"图片_1": "机柜×1"} 以上', "broken JSON"),
        ("｛“图片_1”：“机柜×1”，“图片_2”：“机柜×1”｝", "broken JSON"),
        ("{" * 100_000, "broken JSON"),
        ('{"图片_1":' * 5_000, "broken JSON"),
        ('{"图片_1": null}', "not a text"),
        ('{"图片_1": 1}', "not a text"),
        ('{"图片_1": ["机柜×1"]}', "not a text"),
        ('{"图片_1": {"图片_1": "机柜×1"}}', "not a text"),
        ('结果：{"图片_1": "机柜×1"}', "text around the answer"),
        ('```json\n{"图片_1": "机柜×1"}\n```\n以上', "text around the answer"),
        ('{"图片_1": "{\\"图片_1\\": \\"机柜×1\\"}"}', "text around the answer"),
    ],
)
def test_what_is_no_summary_says_why(reply: str, cause: str):
    problem = clean_summary(reply, CHINESE)
    assert isinstance(problem, Problem)
    assert problem.cause == cause


@pytest.mark.parametrize(
    "reply", ["无关图片", " 无关图片。", '{"图片_1": "无关图片"}', "```\n无关图片！\n```"]
)
def test_an_irrelevant_photo_has_one_spelling(reply: str):
    assert clean_summary(reply, CHINESE) == "无关图片"


def test_lines_become_one_line():
    found = clean_summary("机柜/白色×1，\n\n  线缆束×2", CHINESE)
    assert found == "机柜/白色×1， 线缆束×2"


WORDS = st.text("机柜线缆白色未正装×/，、（）A1 ", min_size=1, max_size=30).map(str.strip)
SPACE = st.text(" \n\t\u3000\r", max_size=3)


@given(words=WORDS, data=st.data())
def test_every_wrapping_gives_the_words_back(words: str, data: st.DataObject):
    def space() -> str:
        return data.draw(SPACE)

    def wrap_json(text: str) -> str:
        key = data.draw(st.sampled_from(["图片_1", "图片1", "图片＿1"]))
        ascii_only = data.draw(st.booleans())
        inside = json.dumps({key: space() + text + space()}, ensure_ascii=ascii_only)
        return inside.replace("{", "{" + space()).replace("}", space() + "}")

    def wrap_loose(text: str) -> str:
        left, right = data.draw(st.sampled_from(["“”", "‘’", "＂＂", "「」"]))
        colon = data.draw(st.sampled_from("：:"))
        return f"｛{left}图片_1{right}{colon}{space()}{left}{text}{right}｝"

    def wrap_lead(text: str) -> str:
        return f"图片_1{data.draw(st.sampled_from('：:'))}{space()}{text}"

    forms = [str, wrap_json, wrap_loose, wrap_lead]
    text = space() + data.draw(st.sampled_from(forms))(words) + space()
    if data.draw(st.booleans()):
        text = f"```json\n{text}\n```"
    has_words = any(character.isalnum() for character in words)
    found = clean_summary(text, CHINESE)
    if has_words:
        assert found == " ".join(words.split())
    else:
        assert isinstance(found, Problem)
        assert found.cause == "empty summary"


@given(st.text() | st.text('{}"图片_12：:,，“”`\\n 机柜×', max_size=40))
def test_any_reply_is_a_clean_line_or_a_problem(reply: str):
    found = clean_summary(reply, CHINESE)
    if isinstance(found, Problem):
        assert found.cause
        return
    line = found
    assert line.split("\n") == [line] == line.splitlines()
    assert line == " ".join(line.split())
    assert any(character.isalnum() or unicodedata.numeric(character, 0) for character in line)
    assert json.loads(json.dumps(line).encode()) == line
    line.encode()
    assert clean_summary(line, CHINESE) == found


@given(
    numbers=st.lists(st.integers(0, 300), min_size=1, max_size=4),
    line=st.sampled_from(["机柜×1", "无关图片"]),
)
def test_only_the_number_one_alone_is_taken(numbers: list[int], line: str):
    body = ", ".join(f'"图片_{number}": "{line}"' for number in numbers)
    found = clean_summary(f"{{{body}}}", CHINESE)
    assert isinstance(found, str) == (numbers == [1])


@given(st.integers(1, 200))
def test_summaries_are_numbered_in_order(num_photos: int):
    texts = [f"机柜×{place}" for place in range(num_photos)]
    numbered = number_summaries(texts, CHINESE)
    assert list(numbered) == [f"图片_{i}" for i in range(1, num_photos + 1)]
    assert list(numbered.values()) == texts


def make_group(root: Path, num_photos: int, *, label: str | None = "fail") -> PhotoGroup:
    key = "BBU接地线检查/审核不通过/QC-A-20250101-1"
    photos = tuple(root / key / f"p{n}.jpg" for n in range(1, num_photos + 1))
    return PhotoGroup(key, "QC-A-20250101-1", "BBU接地线检查", label, photos)  # type: ignore[arg-type]


def test_a_record_has_the_fields_of_the_contract(tmp_path: Path):
    group = make_group(tmp_path, 2)
    record = make_record(group, [LINE, "无关图片"], CHINESE, root=tmp_path)
    assert list(record) == ["group_id", "mission", "label", "images", "per_image", "timestamp"]
    assert record["label"] == "fail"
    assert record["images"] == [f"{group.key}/p1.jpg", f"{group.key}/p2.jpg"]
    assert record["per_image"] == {"图片_1": LINE, "图片_2": "无关图片"}
    assert get_record_key(record) == group.key
    check_record(json.loads(json.dumps(record)), CHINESE)
    unlabelled = make_record(make_group(tmp_path, 1, label=None), [LINE], CHINESE, root=tmp_path)
    assert unlabelled["label"] is None
    assert datetime.fromisoformat(unlabelled["timestamp"]).tzinfo is not None


@pytest.mark.parametrize("texts", [[LINE], [LINE] * 3, [], [LINE, ""], [LINE, "。"]])
def test_a_record_needs_words_for_each_photo(tmp_path: Path, texts: list[str]):
    with pytest.raises(DataError, match="QC-A-20250101-1"):
        make_record(make_group(tmp_path, 2), texts, CHINESE, root=tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"per_image": {"图片_2": "a", "图片_1": "a"}}, "wrong keys"),
        ({"per_image": {"图片_1": "a", "图片_3": "a"}}, "wrong keys"),
        ({"per_image": {"图片_1": "a"}}, "wrong keys"),
        ({"per_image": {"图片_1": "a", "图片_02": "a"}}, "wrong keys"),
        ({"per_image": {"图片_1": "a", "图片_2": "a", "图片_3": "a"}}, "wrong keys"),
        ({"per_image": {"图片_1": "a", "图片_2": ""}}, "empty summary"),
        ({"per_image": {"图片_1": "a", "图片_2": None}}, "empty summary"),
        ({"per_image": ["a", "b"]}, "broken"),
        ({"images": ["p/a", "p/b", "p/c"]}, "wrong keys"),
        ({"images": []}, "wrong photos"),
        ({"images": ["a", "b"]}, "wrong photos"),
        ({"group_id": ""}, "broken"),
        ({"images": "ab"}, "broken"),
        ({"label": "通过"}, "wrong label"),
    ],
)
def test_a_record_that_breaks_the_contract_is_refused(
    tmp_path: Path, change: dict[str, object], message: str
):
    record = make_record(make_group(tmp_path, 2), ["a", "b"], CHINESE, root=tmp_path)
    check_record(record, CHINESE)
    with pytest.raises(DataError, match=message):
        check_record({**record, **change}, CHINESE)


def test_a_record_that_lacks_a_field_is_refused(tmp_path: Path):
    record = make_record(make_group(tmp_path, 1), ["a"], CHINESE, root=tmp_path)
    for key in RECORD_KEYS:
        with pytest.raises(DataError, match=f"missing fields; got {key}"):
            check_record({name: value for name, value in record.items() if name != key}, CHINESE)


def test_ten_photos_are_in_numeric_order(tmp_path: Path):
    record = make_record(make_group(tmp_path, 12), ["a"] * 12, CHINESE, root=tmp_path)
    by_text = dict(sorted(record["per_image"].items()))
    assert list(by_text) != list(record["per_image"])
    with pytest.raises(DataError, match="wrong keys"):
        check_record({**record, "per_image": by_text}, CHINESE)
