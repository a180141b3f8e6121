import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import DataError
from groupwise.data.drops import DropLog
from groupwise.data.tables.files import read_table_rows

TEXT = "问题,答案\n这个产品质量很好吗？,好评\n物流太慢了。,差评\n"
ROWS = [
    {"问题": "这个产品质量很好吗？", "答案": "好评"},
    {"问题": "物流太慢了。", "答案": "差评"},
]
COMMON = st.text("的一是在不了有和人这中大为上个国我以要他时来用们生到作地于出就分对成会可主发年")


def read(path: Path, encoding: str | None = None) -> list[dict[str, object]]:
    drops = DropLog()
    rows = [row.values for row in read_table_rows(path, drops, encoding=encoding)]
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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (TEXT.encode("utf-16"), "is UTF-16"),
        ("name,answer\nnaïve café,crème brûlée\n".encode("latin-1"), "is not UTF-8"),
        (TEXT.encode()[:-7] + b"\xff\xff\n", "is not UTF-8"),
    ],
)
def test_another_encoding_is_refused_and_can_be_named(tmp_path: Path, content: bytes, words: str):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words) as refused:
        read(path)
    assert "data.encoding" in str(refused.value)


def test_a_named_encoding_is_used(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_text("name\ncrème brûlée\n", encoding="latin-1")
    assert read(path, "latin-1") == [{"name": "crème brûlée"}]
    with pytest.raises(DataError, match="is not ascii"):
        read(path, "ascii")


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
        '{"问题": "好"}\n{"问题": "\xff"}\n[1]\n{"a": \n\n'.encode("latin-1", "ignore")
    )
    path.write_bytes('{"问题": "好"}\n'.encode() + b'{"a": "\xff"}\n[1]\n{"a": \n\n')
    drops = DropLog()
    assert [row.values for row in read_table_rows(path, drops)] == [{"问题": "好"}]
    assert [drop.where for drop in drops.rows] == [
        "rows.jsonl:2 (not JSON)",
        "rows.jsonl:3 (not a JSON object)",
        "rows.jsonl:4 (not JSON)",
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
    ],
)
def test_what_is_no_table_is_refused(tmp_path: Path, name: str, content: bytes, words: str):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=words):
        read(tmp_path / name)
