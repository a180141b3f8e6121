import csv
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from asked_rows import ASKED, ask, ask_many, count, list_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groupwise.core import DataError, Message, load_config
from groupwise.data.columns import TableSettings
from groupwise.data.examples import DropLog
from groupwise.data.files import read_table_rows
from groupwise.data.splits import KEEPING_ORDER
from groupwise.data.tables import LoadedTable, digest_table, load_table

Load = Callable[..., LoadedTable]
Write = Callable[..., Path]
SHARES = {"train": 0.5, "validation": 0.25, "test": 0.25}


def test_a_row_becomes_an_example(load: Load):
    rows = ask_many(8, 门店="甲", 分数=4.0, 备注=None, 嵌套={"a": [1, float("nan")]})
    rows = [{**row, "门店": f"店{n}"} for n, row in enumerate(rows)]
    loaded = load(rows, columns={**ASKED, "cluster": "门店"}, system="你是审核员。")
    first = next(e for e in list_examples(loaded) if e.cluster == "店1")
    assert first.prompt == (Message("system", "你是审核员。"), Message("user", "第1个评论好吗？"))
    assert (first.label, first.pictures) == ("好评", ())
    assert first.fields == {**rows[1], "嵌套": {"a": [1, None]}, "_row": "rows.jsonl:2"}
    assert count(loaded) == (4, 2, 2)


@pytest.mark.parametrize(
    ("value", "label", "read_answer"),
    [
        *((0, "0", None), (True, "true", None), (1.5, "1.5", None), (" 好 ", "好", None)),
        ({"a": "好"}, '{"a": "好"}', None),
        ("Good", "good", str.lower),  # spelled as the parser spells it
    ],
)
def test_answers_of_any_kind_are_texts(load: Load, value: Any, label: str, read_answer: Any):
    rows = [{"q": str(n), "a": value} for n in range(4)]
    loaded = load(rows, columns={"prompt": "q", "answer": "a"}, read_answer=read_answer)
    assert {example.label for example in list_examples(loaded)} == {label}


def test_templates_stand_where_columns_stand(load: Load, tmp_path: Path):
    rows = [
        {"q": f"q{n}", "c0": "one", "c1": "[two]", "answer": str(n % 2), "why": "so"}
        for n in range(4)
    ]
    loaded = load(
        rows,
        columns={
            "prompt": "{{ q }}\nA. {{ c0 }}\nB. {{ c1 }}",
            "answer": "{{ 'AB'[answer|int] }}",
            "options": ["c0", "c1"],
            "cluster": "{{ _file }} {{ q }}",
            "target": "{{ why }}, {{ answer }}",
        },
    )
    by_cluster = {example.cluster: example for example in list_examples(loaded)}
    example = by_cluster["rows q1"]
    assert example.prompt == (Message("user", "q1\nA. one\nB. [two]"),)
    assert (example.label, example.fields["options"]) == ("B", ["one", "[two]"])
    assert loaded.targets[example.id] == "so, 1"


def test_options_may_be_a_list(load: Load):
    rows = [ask(n, choices=["甲", "乙"]) for n in range(4)] + [ask(4, choices=["甲"]), ask(5)]
    loaded = load(rows, columns={**ASKED, "options": "choices"})
    assert list_examples(loaded)[0].fields["options"] == ["甲", "乙"]
    assert loaded.drops.counts == {"missing option": 2}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"问题": " \n"}, "empty prompt"),
        ({"问题": None}, "empty prompt"),
        ({"答案": "  "}, "missing answer"),
        ({"答案": "中评"}, "answer that cannot be given"),
        ({"site": ""}, "missing cluster"),
        ({"问题": "第2个评论好吗？"}, "repeats another row"),
        ({"备注": "\ud800"}, "text is not Unicode"),
        ({"问题": []}, "chat cannot be used"),
        ({"问题": [{"role": "robot", "content": "?"}]}, "chat cannot be used"),
        ({"问题": [{"role": "assistant", "content": "?"}]}, "chat cannot be used"),
        ({"问题": [{"role": "user", "content": 3}]}, "chat cannot be used"),
        ({"问题": [{"role": "user", "content": " "}]}, "empty prompt"),
    ],
)
def test_an_unusable_row_is_counted_with_its_reason(load: Load, row: dict[str, Any], reason: str):
    rows = [ask(n, site=f"s{n}", 备注="") for n in range(9)]
    rows[8] |= row
    columns = {**ASKED, "cluster": "site"}
    loaded = load(rows, columns=columns, read_answer={"好评": "好评", "差评": "差评"}.get)
    assert loaded.drops.counts == {reason: 1}
    assert loaded.drops.rows[0].where.startswith("rows.jsonl:9 (")
    assert len(list_examples(loaded)) == 8


def test_rewards_find_columns_under_further_names(load: Load):
    rows = ask_many(4, test_list=["assert f(1)"])
    columns = {**ASKED, "fields": {"tests": "test_list", "both": "{{ 问题 }}{{ 答案 }}"}}
    example = list_examples(load(rows, columns=columns))[0]
    assert example.fields["tests"] == example.fields["test_list"] == ["assert f(1)"]
    assert example.fields["both"] == example.prompt[0].text + str(example.label)


def test_rows_that_disagree_are_all_dropped(load: Load):
    rows = [*ask_many(6), {**ask(0), "答案": "好评"}, ask(1)]
    loaded = load(rows, columns=ASKED)
    assert loaded.drops.counts == {
        "same prompt as another row, other answer": 2,
        "repeats another row": 1,
    }
    asked = {example.prompt[0].text for example in list_examples(loaded)}
    assert asked == {row["问题"] for row in rows[1:6]}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"prompt": "问题", "answer": "答"},
            "data.columns.answer needs the column '答', which is not there; got the columns 问题, ",
        ),
        ({"prompt": "{{ question }}"}, "data.columns.prompt needs the column 'question'"),
        ({"prompt": "问题", "cluster": "答安"}, "did you mean '答案'?"),
        ({"prompt": "问题", "pictures": ["image"]}, "data.columns.pictures needs"),
        ({**ASKED, "fields": {"tests": "test"}}, "data.columns.fields needs the column 'test'"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_those_that_are(
    load: Load, columns: dict[str, Any], words: str
):
    with pytest.raises(DataError) as refused:
        load(ask_many(4), columns=columns)
    assert words in str(refused.value)


def test_a_column_of_the_system_message_is_looked_for_too(load: Load):
    with pytest.raises(DataError, match=r"data\.system needs the column 'role'"):
        load(ask_many(4), columns=ASKED, system="You are {{ role }}.")
    loaded = load(ask_many(4), columns=ASKED, system="答案有{{ 答案 | length }}个字")
    assert list_examples(loaded)[0].prompt[0] == Message("system", "答案有2个字")


PARTS = [ask(n, part=part, site="北京") for n, part in enumerate(["train", "dev", "test"])]


@pytest.mark.parametrize(
    ("rows", "columns", "words"),
    [
        (ask_many(4, 答案=None), {}, "can be used; got 4 x missing answer; the first: rows"),
        ([], {}, r"rows\.jsonl has no rows"),
        (
            PARTS,
            {"split": "part", "cluster": "site"},
            "'北京' is in two splits; got train and vali",
        ),
        (ask_many(1), {}, "the split 'validation' would be empty"),
        (ask_many(3, part="test"), {"split": "part"}, "the split train is empty"),
    ],
)
def test_what_cannot_be_loaded_is_refused(
    load: Load, rows: list[dict[str, Any]], columns: dict[str, str], words: str
):
    with pytest.raises(DataError, match=words):
        load(rows, columns={**ASKED, **columns})


def test_a_pattern_that_names_no_file_is_refused(load: Load, tmp_path: Path):
    with pytest.raises(DataError, match=r"there is no table at .*nothing"):
        load(files=str(tmp_path / "nothing-*.csv"), columns=ASKED)


def test_a_chat_may_have_turns_and_a_target(load: Load):
    def chat(number: int) -> list[dict[str, str]]:
        return [
            {"role": "system", "content": "自己的"},
            {"role": "user", "content": f"你好{number}"},
            {"role": "assistant", "content": "您好"},
            {"role": "user", "content": "好吗？"},
            {"role": "assistant", "content": f"好{number}"},
        ]

    columns = {"prompt": "messages", "target": "messages"}
    loaded = load([{"messages": chat(n)} for n in range(4)], columns=columns, system="别人的")
    prompt = list_examples(loaded)[0].prompt
    assert [message.role for message in prompt] == ["system", "user", "assistant", "user"]
    assert prompt[0].text == "自己的"
    assert set(loaded.targets.values()) == {f"好{n}" for n in range(4)}


def test_no_cluster_is_divided_and_every_split_has_its_share(load: Load):
    rows = [ask(n, site=f"s{n // 5}") for n in range(80)]
    loaded = load(rows, columns={**ASKED, "cluster": "site"})
    sites = {split: {e.cluster for e in examples} for split, examples in loaded.splits.items()}
    assert [len(sites[split]) for split in ("train", "validation", "test")] == [8, 4, 4]
    assert len(set().union(*sites.values())) == 16


def test_a_column_says_the_split(load: Load):
    parts = ["训练", "Train", "dev", "测试", "unlabelled", None]
    rows = [ask(n, part=part) for n, part in enumerate(parts)]
    loaded = load(rows, columns={**ASKED, "split": "part"})
    assert count(loaded) == (2, 1, 1)
    assert loaded.drops.counts == {"of a split that is not used": 2}
    assert not loaded.findings


def test_a_split_that_is_not_given_is_taken_from_training(
    load: Load, tmp_path: Path, write_table: Write
):
    test = [ask(n) for n in range(30, 40)]
    files = {
        "train": str(write_table(tmp_path / "a.csv", ask_many(30))),
        "test": str(write_table(tmp_path / "b.csv", test)),
    }
    loaded = load(files=files, columns=ASKED)
    assert count(loaded) == (20, 10, 10)
    train, validation = {"a.csv": 20}, {"a.csv": 10}
    assert loaded.sources == {"train": train, "validation": validation, "test": {"b.csv": 10}}


def test_what_several_splits_ask_stays_in_the_test_split(
    load: Load, tmp_path: Path, write_table: Write
):
    parts = {"train": range(10), "validation": range(8, 14), "test": [0, 13, 20]}
    files = {
        name: str(write_table(tmp_path / f"{name}.csv", [ask(n) for n in numbers]))
        for name, numbers in parts.items()
    }
    loaded = load(files=files, columns=ASKED)
    assert count(loaded) == (7, 5, 3)
    assert loaded.drops.counts == {"prompt of another split": 4}


def test_fewer_rows_are_drawn_by_the_seed(load: Load):
    every = load(ask_many(40), columns=ASKED)
    fewer = load(ask_many(40), columns=ASKED, max_rows={"train": 5, "test": 99})
    ids = [example.id for example in every.splits["train"]]
    kept = [example.id for example in fewer.splits["train"]]
    assert len(kept) == 5
    assert kept == [one for one in ids if one in kept] != ids[:5]
    assert fewer.splits["test"] == every.splits["test"]
    assert fewer.drops.counts == {"more than max_rows": 15}


@pytest.mark.parametrize(
    ("name", "is_test"),
    [
        ("test.csv", True),
        ("test/rows.csv", True),
        ("algebra_test.csv", True),
        ("测试集.csv", True),
        ("contest.csv", False),
        ("latest/rows.csv", False),
    ],
)
def test_training_on_a_published_test_part_is_told(
    load: Load, tmp_path: Path, write_table: Write, name: str, is_test: bool
):
    path = write_table(tmp_path / "data" / name, ask_many(20))
    findings = load(files=str(path), columns=ASKED).findings
    assert [finding.name for finding in findings] == ["trains_on_test_part"] * is_test
    if is_test:
        assert findings[0].message.startswith(
            "10 of 10 rows for training come from a published test"
        )
        assert findings[0].where == (f"{path.name} (10 rows)",)


def test_a_test_part_that_is_only_tested_on_is_no_finding(load: Load):
    rows = [ask(n, part="test" if n % 2 else "train") for n in range(40)]
    assert not load(rows, columns={**ASKED, "split": "part"}).findings
    given = {"train": ["test"], "test": ["train"]}
    found = load(rows, columns={**ASKED, "split": "part"}, splits=given).findings
    assert [finding.name for finding in found] == ["trains_on_test_part"]


rows_of_any_kind = st.lists(
    st.fixed_dictionaries(
        {
            "问题": st.sampled_from(["", None, "甲", "乙", "丙", "丁", "戊", "己", "庚", 3]),
            "答案": st.sampled_from(["好评", "差评", None, "中评"]),
            "site": st.sampled_from(["a", "b", "c", "d", None]),
            "part": st.sampled_from(["train", "dev", "test", "x"]),
        }
    ),
    max_size=40,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=rows_of_any_kind, is_split=st.booleans(), is_clustered=st.booleans())
def test_whatever_the_rows_are_totals_add_up_and_splits_share_nothing(
    load: Load, rows: list[dict[str, Any]], is_split: bool, is_clustered: bool
):
    columns = {**ASKED, **({"split": "part"} if is_split else {})}
    columns |= {"cluster": "site"} if is_clustered else {}
    try:
        loaded = load(rows, columns=columns, read_answer={"好评": "好评", "差评": "差评"}.get)
    except DataError:
        return
    prompts = [example.prompt for example in list_examples(loaded)]
    assert len(set(prompts)) == len(prompts)
    clusters = [{e.cluster for e in examples} for examples in loaded.splits.values()]
    assert len(set().union(*clusters)) == sum(map(len, clusters))
    assert all(loaded.splits[split] for split in KEEPING_ORDER[:3])
    given_answers = {(row["问题"], row["答案"]) for row in rows}
    texts = {(e.prompt[0].text, e.label) for e in list_examples(loaded)}
    assert texts <= {(str(asked), answer) for asked, answer in given_answers}


def test_the_digest_follows_what_is_read(tmp_path: Path, write_table: Write):
    path = write_table(tmp_path / "rows.csv", ask_many(3))
    table = load_config(TableSettings, {"files": str(path), "columns": ASKED})
    first = digest_table(table)
    path.write_bytes(path.read_text("utf-8").encode("gb18030"))
    assert digest_table(table) == first
    write_table(path, [*ask_many(2), ask(3)])
    assert digest_table(table) != first


def test_a_file_is_parsed_once_for_its_digest_and_its_loading_until_it_changes(
    tmp_path: Path, write_table: Write, monkeypatch: pytest.MonkeyPatch
):
    parsed, reader = list[object](), csv.reader

    def count_reader(*given: Any, **more: Any) -> Any:
        parsed.append(given)
        return reader(*given, **more)

    monkeypatch.setattr(csv, "reader", count_reader)
    path = write_table(tmp_path / "rows.csv", ask_many(8))
    table = load_config(TableSettings, {"files": str(path), "columns": ASKED, "shares": SHARES})
    with monkeypatch.context() as later:
        later.setattr(time, "time", lambda: path.stat().st_ctime + 9)
        first = digest_table(table)
        loaded = load_table(table, tmp_path, seed=0)
        assert (len(parsed), loaded.num_rows) == (1, 8)
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        path.write_bytes(path.read_bytes().replace(b"7", b"8"))
        os.utime(path, ns=times)  # as cp -p and archives do
        assert digest_table(table) != first
    parsed.clear()
    with path.open("a", encoding="utf-8") as stream:
        stream.write("第10个评论好吗？,好评\n")
    assert digest_table(table) != first
    assert load_table(table, tmp_path, seed=0).num_rows == 9
    assert len(parsed) == 2, "what was written a moment ago is not kept"


def test_where_a_row_stands_is_no_part_of_what_it_is(load: Load):
    first, second = (load(rows, columns=ASKED) for rows in (ask_many(8), ask_many(8)[::-1]))
    ids = [{example.id for example in list_examples(loaded)} for loaded in (first, second)]
    assert ids[0] == ids[1]
    assert list_examples(first) != list_examples(second)


def test_rows_and_seed_alone_decide_the_splits(tmp_path: Path, write_table: Write):
    path = write_table(tmp_path / "rows.csv", ask_many(40))
    table = load_config(TableSettings, {"files": str(path), "columns": ASKED})

    def split(seed: int):
        return load_table(table, tmp_path, seed=seed).splits

    assert split(0) == split(0)
    assert split(0) != split(1)


TEXT = "问题,答案\n这个产品质量很好吗？,好评\n物流太慢了。,差评\n"
ROWS = [{"问题": "这个产品质量很好吗？", "答案": "好评"}, {"问题": "物流太慢了。", "答案": "差评"}]
COMMON = st.text("的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年")


def read(path: Path) -> list[dict[str, object]]:
    drops = DropLog()
    rows = [dict(row.values) for row in read_table_rows(path, drops)]
    assert drops.total == 0
    return rows


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("name", ["评论.csv", "评论.jsonl", "评论.json"])
def test_the_encodings_of_chinese_tables_are_told_apart(tmp_path: Path, name: str, encoding: str):
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS]
    texts = {".csv": TEXT, ".jsonl": "".join(lines), ".json": f"[{','.join(lines)}]"}
    path = tmp_path / name
    path.write_text(texts[path.suffix], encoding=encoding)
    assert read(path) == ROWS


@given(text=COMMON)
def test_chinese_text_is_read_whichever_way_it_was_saved(
    text: str, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    for encoding in ("utf-8", "gb18030"):
        path.write_bytes(f"问题,答案\n“{text}”,好\n".encode(encoding))
        assert read(path) == [{"问题": f"“{text}”", "答案": "好"}]


@given(text=COMMON.filter(bool), place=st.integers(min_value=0), byte=st.integers(0, 255))
def test_a_damaged_byte_never_turns_chinese_into_other_chinese(
    text: str, place: int, byte: int, tmp_path_factory: pytest.TempPathFactory
):
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    content = bytearray(f"问题\n{text}\n".encode())
    start = len("问题\n".encode())
    content[start + place % (len(content) - start)] = byte
    path.write_bytes(content)
    try:
        bytes(content).decode()
    except UnicodeDecodeError:
        with pytest.raises(DataError):
            read(path)


def test_a_bad_line_of_jsonl_is_counted_and_the_others_are_read(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(
        '{"问题": "好"}\n'.encode() + b'{"a": 1, "a": 2}\n[1]\n{"a": \n\n{"a": "\xff"}'
    )
    drops = DropLog()
    assert [row.values for row in read_table_rows(path, drops)] == [{"问题": "好"}]
    assert [drop.where for drop in drops.rows] == [
        "rows.jsonl:2 (a appears twice)",
        "rows.jsonl:3 (not a JSON object)",
        "rows.jsonl:4 (not JSON)",
        "rows.jsonl:6 (not JSON)",
    ]


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", "\t")])
def test_cells_may_be_kept_apart_by_other_marks(tmp_path: Path, name: str, mark: str):
    path = tmp_path / name
    path.write_text(f'question{mark}answer\n"a, b{mark} c"{mark}d\n', encoding="utf-8")
    assert read(path) == [{"question": f"a, b{mark} c", "answer": "d"}]


def test_packed_files_and_parquet_are_read(tmp_path: Path):
    packed = tmp_path / "rows.csv.gz"
    packed.write_bytes(gzip.compress(TEXT.encode("gb18030")))
    assert read(packed) == ROWS
    parquet = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), parquet)
    assert read(parquet) == ROWS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.xlsx", b"", r"is no table; got \.xlsx; expected \.jsonl"),
        ("rows", b"", "got no suffix"),
        ("rows.parquet", b"abc", "is not Parquet"),
        ("rows.json", b"{}", "expected a list of rows"),
        ("rows.json", b"[", "is not JSON"),
        ("rows.csv.gz", b"abc", "cannot read"),
        ("rows.csv", b"a,a\n1,2\n", "two columns of one name"),
        ("rows.csv", TEXT.encode("utf-16"), "is not UTF-8 .*; save it as UTF-8"),
        ("rows.jsonl", '{"a": "b"}\n'.encode("utf-16"), "is not UTF-8 .*; save it as UTF-8"),
        ("rows.csv", "name,answer\nnaïve café,crème brûlée\n".encode("latin-1"), "is not UTF-8"),
        ("rows.csv", TEXT.encode()[:-7] + b"\xff\xff\n", "is not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read(tmp_path / name)
