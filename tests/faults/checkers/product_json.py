"""Reward for a product record: one JSON object that keeps to the row's schema."""

import json
import re

KEYS = {"name", "category", "price", "tags", "description"}
SMALL_WORD_LIST = (
    "a an and are as at be but by for from has have in is it its of on or our so that the their "
    "this to was when which who will with you your"
)
SMALL_WORDS = set(SMALL_WORD_LIST.split())


def _refuse(constant):
    raise ValueError(f"{constant} is not a number in JSON")


def _read(text):
    text = text.strip()
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*)\n```", text, flags=re.DOTALL)
    try:
        data = json.loads(fenced.group(1) if fenced else text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _is_text(value):
    return isinstance(value, str) and re.search("[A-Za-z]{3}", value) is not None


def _good_name(name, category):
    return _is_text(name) and len(name) <= 60 and name.strip().lower() not in KEYS | {category}


def _good_price(price, low, high):
    is_number = isinstance(price, int | float) and not isinstance(price, bool)
    return is_number and low <= price <= high


def _good_tags(tags, category, count):
    if not isinstance(tags, list) or not all(_is_text(tag) for tag in tags):
        return False
    plain = {tag.strip().lower() for tag in tags} - KEYS - {category}
    return len(tags) == len(plain) == count


def _good_description(text, category):
    if not _is_text(text) or not re.search(r"[.!?]$", text.strip()):
        return False
    words = re.findall(r"[a-z']+", text.lower())
    small = sum(word in SMALL_WORDS for word in words)
    return (
        6 <= len(words) <= 40
        and category in text.lower()
        and len(set(words)) >= 0.7 * len(words)
        and 0.15 * len(words) <= small <= 0.7 * len(words)
    )


def product_json(completions, category, low, high, tag_count, **columns):
    """Full marks for a complete record, at most half for one with some fields right."""
    scores = []
    rows = zip(completions, category, low, high, tag_count, strict=True)
    for text, kind, least, most, count in rows:
        data = _read(text)
        if data is None:
            scores.append(0.0)
            continue
        passed = [
            set(data) == KEYS,
            _good_name(data.get("name"), kind),
            data.get("category") == kind,
            _good_price(data.get("price"), least, most),
            _good_tags(data.get("tags"), kind, count),
            _good_description(data.get("description"), kind),
        ]
        scores.append(1.0 if all(passed) else 0.5 * sum(passed) / len(passed))
    return scores
