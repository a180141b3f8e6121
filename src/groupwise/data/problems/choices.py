"""Rows of MMLU, CommonsenseQA, HotpotQA and SQuAD: options are lettered, contexts are kept."""

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import Any, cast

from groupwise.core import digest_bytes
from groupwise.data.problems.rows import SetRow
from groupwise.data.tables.values import UnusableRowError, as_mapping

_LONG = 400
"""Characters of a question from which on it holds a passage that others ask about, too."""


def letter_options(question: str, options: Sequence[str]) -> str:
    """Return a question with its options below it, a line each: ``A. first``."""
    lines = [f"{letter}. {text}" for letter, text in zip(ascii_uppercase, options, strict=False)]
    return "\n".join([question, *lines])


def read_mmlu(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem; the answer is a letter or counts the options from 0."""
    question, options = row.require_text("question"), row.list_texts("choices")
    if not options:
        names = sorted(name for name in row.values if name.startswith("choice"))
        options = [str(row.values[name]) for name in names]
    subject = str(row.values.get("subject") or row.group)
    if row.part == "auxiliary_train":
        passage = question[: _LONG // 2].encode()
        subject = digest_bytes(passage)[:12] if len(question) > _LONG else ""
    return {**choose_option(question, options, row.require_text("answer")), "cluster": subject}


def read_commonsense_qa(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem, from the official nested form or the hub's flat one."""
    nested = as_mapping(row.values.get("question"))
    stem = (nested or {}).get("stem") if nested else row.values.get("question")
    choices = (nested or row.values).get("choices")
    if flat := as_mapping(choices):
        pairs = dict(zip(flat.get("label") or (), flat.get("text") or (), strict=False))
    else:
        rows = cast("Sequence[Mapping[str, str]]", choices or ())
        pairs = {str(choice.get("label")): str(choice.get("text")) for choice in rows}
    answer = row.values.get("answerKey")
    if not isinstance(stem, str) or not stem.strip():
        raise UnusableRowError("the column question is missing", "")
    if not answer:
        raise UnusableRowError("no answer", row.where)
    if answer not in pairs:
        raise UnusableRowError("the answer is no option", str(answer))
    return choose_option(
        stem.strip(), list(pairs.values()), ascii_uppercase[list(pairs).index(answer)]
    )


def choose_option(question: str, options: Sequence[str], answer: str) -> dict[str, Any]:
    """Return the fields of a problem; the answer is a letter or counts the options from 0."""
    letters = ascii_uppercase[: len(options)]
    letter = letters[int(answer) : int(answer) + 1] if answer.isdecimal() else answer
    if not 2 <= len(options) <= len(ascii_uppercase) or not all(o.strip() for o in options):
        raise UnusableRowError("an option is missing", f"{len(options)} options")
    if not letter or letter not in letters:
        raise UnusableRowError("the answer is no option", answer)
    return {
        "problem": letter_options(question, options),
        "ground_truth": letter,
        "options": tuple(options),
    }


def read_hotpot_qa(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem: all its paragraphs, then the question."""
    context = row.values.get("context")
    if flat := as_mapping(context):
        pairs = list(zip(flat.get("title") or (), flat.get("sentences") or (), strict=False))
    else:
        pairs = [(str(title), texts) for title, texts in cast("Any", context or ())]
    if not pairs:
        raise UnusableRowError("the column context is missing", "")
    paragraphs = [f"{title}\n{''.join(sentences).strip()}" for title, sentences in pairs]
    facts: Any = row.values.get("supporting_facts") or ()
    flat_facts = as_mapping(facts)
    titles: list[str] = flat_facts["title"] if flat_facts else [fact[0] for fact in facts]
    return {
        "problem": "\n\n".join([*paragraphs, f"Question: {row.require_text('question')}"]),
        "ground_truth": row.require_text("answer"),
        "cluster": min(titles, default=""),
    }


def read_squad(row: SetRow) -> dict[str, Any]:
    """Return the fields of a problem; an article's questions are a cluster."""
    answers = as_mapping(row.values.get("answers")) or {}
    texts = list(dict.fromkeys(text.strip() for text in answers.get("text") or () if text.strip()))
    if not texts:
        raise UnusableRowError("no answer", row.where)
    return {
        "problem": f"{row.require_text('context')}\n\nQuestion: {row.require_text('question')}",
        "ground_truth": texts[0],
        "answers": tuple(texts[1:]),
        "cluster": str(row.values.get("title") or ""),
    }
