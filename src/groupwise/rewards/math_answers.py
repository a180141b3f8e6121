r"""Where a mathematical answer stands in a text: ``\boxed{...}`` or a line ``#### ...``.

It finds the answer's text; whether it is mathematics is seen later.
"""

import re
import unicodedata

MAX_ANSWER_LENGTH = 500

_MARK = re.compile(r"\\boxed\s*\{|####[ \t]*([^\r\n]*)")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?![\d ])")
_SPLIT_NUMBER = re.compile(r"\d\s+[\d.]")
_CHINESE_UNIT = re.compile(r"(?<=[\d}%])\s*[\u4e00-\u9fff]+$")


def find_math_answer(text: str) -> tuple[str | None, str]:
    r"""Return the last marked answer of ``text``, or None and the reason.

    Nested braces belong to the answer. Of several marked answers the last one counts, so listing
    answers is no better than guessing once. Full-width characters become plain ones, a final
    stop and a Chinese unit behind a number are left out, and ``1 000`` is read as 1000; other
    digits with a space between them are refused, because a parser would multiply or add them.

    Returns:
        (answer, "") or (None, why there is none).
    """
    marks = list(_MARK.finditer(text))
    if not marks:
        return None, r"no answer in \boxed{} or after ####"
    last = marks[-1]
    found = last.group(1) if last.group(1) is not None else _read_braces(text, last.end())
    if found is None:
        return None, r"the braces of \boxed{} are not closed"
    answer = clean_math_answer(found)
    if not answer:
        return None, "the marked answer is empty"
    if len(answer) > MAX_ANSWER_LENGTH:
        return None, f"the marked answer has more than {MAX_ANSWER_LENGTH} characters"
    if _SPLIT_NUMBER.search(answer):
        return None, "two numbers stand side by side in the marked answer"
    return answer, ""


def clean_math_answer(answer: str) -> str:
    """Return an answer with plain characters, without outer space, final stop and unit."""
    plain = unicodedata.normalize("NFKC", answer).strip().removesuffix("。").removesuffix(".")
    plain = _GROUPED.sub(lambda match: match.group().replace(" ", ""), plain.strip())
    return _CHINESE_UNIT.sub("", plain)


def _read_braces(text: str, start: int) -> str | None:
    """Return what stands from ``start`` to the brace that closes it; None if none does."""
    depth = 1
    position = start
    while position < len(text):
        if text[position] == "\\":
            position += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position]
        position += 1
    return None
