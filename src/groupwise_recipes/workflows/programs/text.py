"""Find the program in a reply: all of it, or its one fenced block."""

import ast
import re
import textwrap
import warnings

from groupwise.core import parse_python
from groupwise_recipes.workflows.programs.form import check_size
from groupwise_recipes.workflows.programs.reasons import MAX_CHARACTERS, RefusedError, Repair

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n`]*)\n(.*?)^[ \t]*\1[ \t]*(?:\n|\Z)", re.M | re.S)
_MARK = re.compile(r"^[ \t]*(?:`{3,}|~{3,})", re.M)


def find_source(text: str) -> tuple[str, tuple[Repair, ...]]:
    """Return the program of a reply, and what was changed to get it."""
    if len(text) > MAX_CHARACTERS:
        raise RefusedError("too_long", 0, f"{len(text):,} characters, not {MAX_CHARACTERS:,}")
    # Python reads line ends so, also those in strings: this is no repair.
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    _check_characters(text)
    if not _MARK.search(text) or _parses(text):
        return _dedent(text, first_line=1)
    source, repairs, first_line = _open_fence(text)
    source, more = _dedent(source, first_line=first_line)
    return source, repairs + more


def parse(source: str) -> ast.Module:
    """Return the tree of a program that Python can compile and the other checks can walk."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = parse_python(source)
            check_size(tree)
            compile(source, "<program>", "exec", dont_inherit=True)
        except SyntaxError as error:
            raise RefusedError("syntax", error.lineno or 0, error.msg) from None
        except (RecursionError, MemoryError):
            raise RefusedError("too_nested") from None
        except (ValueError, OverflowError) as error:
            raise RefusedError("syntax", 0, str(error)) from None
    return tree


def _check_characters(text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in line):
            raise RefusedError("characters", number)


def _parses(text: str) -> bool:
    try:
        return bool(parse(text).body)
    except RefusedError:
        return False


def _open_fence(text: str) -> tuple[str, tuple[Repair, ...], int]:
    """Return the inside of the one fenced block, the repairs, and the line that it starts on."""
    blocks = list(_FENCE.finditer(text))
    outside = _FENCE.sub("", text)
    if _MARK.search(outside):
        raise RefusedError("open_fence")
    if len(blocks) > 1:
        raise RefusedError("several_blocks", 0, f"{len(blocks)} fenced blocks, not one")
    line = text.count("\n", 0, blocks[0].start()) + 1
    repairs = (Repair("fence", line),)
    if outside.strip():
        is_before = bool(text[: blocks[0].start()].strip())
        last = text.count("\n", 0, blocks[0].end()) + 1
        repairs += (Repair("text_around", 1 if is_before else last),)
    return blocks[0][3], repairs, line + 1


def _dedent(source: str, *, first_line: int) -> tuple[str, tuple[Repair, ...]]:
    """Take off common indentation, unless that would change a text of several lines."""
    if not source.strip():
        raise RefusedError("empty")
    dedented = textwrap.dedent(source)
    if dedented == source or not source.lstrip("\n")[0].isspace():
        return source, ()
    tree = parse(dedented)
    texts = (n for n in ast.walk(tree) if isinstance(n, ast.Constant | ast.JoinedStr))
    if any(text.lineno != text.end_lineno for text in texts):
        return source, ()
    return dedented, (Repair("indented", first_line),)
