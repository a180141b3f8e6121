"""How a dry run is printed."""

import pytest

from groupwise.cli.printing import print_preview
from groupwise.core import ConfigError
from groupwise.pipeline import Preview, PreviewTable, ShownRow


def test_rows_tables_and_facts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    table = PreviewTable("Stages", ("stage", "will be"), [("prepare", "reused")])
    shown = [ShownRow("问题 [bold]?", "答案", ["a.png", "b.png"])]
    empty = PreviewTable("Nothing", ("a",), [])
    print_preview(Preview([("model", "[m]")], shown=shown, tables=[table, empty]))
    printed = capsys.readouterr().out
    for part in ("row 1 of 1", "问题 [bold]?", "pictures: a.png, b.png", "答案", "reused", "[m]"):
        assert part in printed
    assert "Nothing" not in printed
    assert printed.endswith("ready: nothing was written\n")


def test_long_rows_are_cut_and_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_preview(Preview(shown=[ShownRow("\x1b[2J" + "a" * 2_000, "b")]))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "a … and 4 characters more" in " ".join(printed.replace("│", " ").split())


def test_problems_are_refused_below_what_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ConfigError, match=r"2 problem\(s\) stop this run:\n  one\n  two"):
        print_preview(Preview([("rows", "3")], ["one", "two"]))
    printed = capsys.readouterr().out
    assert "rows" in printed
    assert "ready" not in printed
