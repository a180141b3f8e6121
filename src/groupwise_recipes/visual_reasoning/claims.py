"""Reads the sentences of reasoning about two things: what relation is claimed, and what concluded.

The words a writer of drawn scenes uses are few; what is common for the same meaning ("to the left
of", "beneath", "covers", "在…左侧", "挡住") is read, too. Other sentences are left over.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from groupwise_drawn.relations import INVERSES, Relation

_ENGLISH: Mapping[Relation, str] = {
    "left of": r"(?:to |on )?(?:the )?left(?: side)? of|further left than",
    "right of": r"(?:to |on )?(?:the )?right(?: side)? of|further right than",
    "above": r"above|over|higher than",
    "below": r"below|beneath|under|underneath|lower than",
    "in front of": r"in front of|nearer than|closer than",
    "behind": r"behind|(?:partly )?(?:covered|hidden) by|farther away than|further away than",
}
_CHINESE: Mapping[str, Relation] = {
    "左": "left of",
    "右": "right of",
    "上": "above",
    "下": "below",
    "前": "in front of",
    "后": "behind",
}
_IS = (
    r"(?:is|lies|stands|sits|appears|can be seen) (?P<no>not )?"
    r"(?:clearly |actually )?(?:located |placed |positioned |seen )?"
)
_PLACED: list[tuple[Relation, re.Pattern[str]]] = [
    (
        relation,
        re.compile(
            rf"(?:the |a )?(?P<a>.+?) {_IS}"
            rf"(?:{words}) (?:the |a )?(?P<b>.+)"
        ),
    )
    for relation, words in _ENGLISH.items()
]
_IN_PICTURE = re.compile(
    r"(?:the |a )?(?P<a>.+?) (?:is|lies|stands|sits) (?:clearly )?(?:on|at|to|in) the "
    r"(?P<side>left|right|top|bottom)(?: side)?(?: of the (?:picture|image|scene))?"
    r"|(?P<a_zh>.+?)(?:位于|在)(?:(?:画面|图片|图像|图)的?)?(?P<side_zh>[左右上下])[边侧面方]"
)
# What lies on the first side lies so to what lies on the second one.
_SIDES: tuple[tuple[str, str, Relation], ...] = (
    ("left", "right", "left of"),
    ("top", "bottom", "above"),
    ("左", "右", "left of"),
    ("上", "下", "above"),
)
_COVERS = re.compile(
    r"(?:the |a )?(?P<a>.+?) (?P<no>does not )?(?:partly )?(?:cover|hide)s? "
    r"(?:(?:a )?part of )?(?:the |a )?(?P<b>.+)"
)
_PLACED_ZH = re.compile(
    r"(?P<a>.+?)(?P<no>不|并不)?(?:位于|在)(?P<b>.+?)的?(?P<place>[左右上下前后])[边侧面方]"
)
_COVERED_ZH = re.compile(r"(?P<a>.+?)(?P<no>没有)?被(?P<b>.+?)(?:挡住|遮住)了?(?:一部分)?")
_COVERS_ZH = re.compile(r"(?P<a>.+?)(?P<no>没有)?(?:挡住|遮住)了?(?P<b>.+?)(?:的一部分)?")
_CONCLUSION = re.compile(
    r"(?:the )?(?:statement|caption|claim|answer|it|that) is (?P<no>not )?(?P<truth>true|false)"
    r"|(?:这句话|这个陈述|陈述|说法|答案)(?P<no_zh>不)?是?(?P<truth_zh>对|正确|真|错|错误|假)的?"
)
_TRUE = ("true", "对", "正确", "真")
_BOX = re.compile(r"\[[^\[\]]*\]")
_END = re.compile(r"[.!?;。！？；\n]+|,? ?\b(?:but|so|therefore|and)\b|，|,")
_LEAD = re.compile(
    r"^(?:(?:so|therefore|thus|hence|then|and|but|here|since|because|as|now)\b"
    r"|(?:we|i|you|one)(?: can)? sees?(?: that)?\b|所以|因此|因为|由于|可以看到|但是?|那么)[ ,，]*"
)


@dataclass(frozen=True, slots=True)
class Claim:
    """That ``subject`` is in a relation to ``other``, or is not."""

    subject: str
    relation: Relation
    other: str
    is_denied: bool = False

    def turn(self) -> "Claim":
        """Return what it says of the other thing."""
        return Claim(self.other, INVERSES[self.relation], self.subject, self.is_denied)


@dataclass(frozen=True, slots=True)
class Sentences:
    """What a text says.

    Attributes:
        claims: in order.
        conclusions: whether each says that the statement is true.
        others: sentences that were not understood.
    """

    claims: tuple[Claim, ...]
    conclusions: tuple[bool, ...]
    others: tuple[str, ...]


def read_sentences(text: str) -> Sentences:
    """Return what a text says beside its boxes."""
    claims, conclusions, others = list[Claim](), list[bool](), list[str]()
    sides: dict[str, str] = {}
    for sentence in _split(text):
        claim = read_claim(sentence)
        found = _CONCLUSION.fullmatch(sentence)
        if place := _IN_PICTURE.fullmatch(sentence):
            sides[place["side"] or place["side_zh"]] = place["a"] or place["a_zh"]
        elif found:
            is_true = (found["truth"] or found["truth_zh"]) in _TRUE
            conclusions.append(is_true != bool(found["no"] or found["no_zh"]))
        elif claim:
            is_same = claims and claim.subject in ("it", "它")
            claims.append(replace(claim, subject=claims[-1].subject) if is_same else claim)
        else:
            others.append(sentence)
    claims += [
        Claim(sides[side], relation, sides[opposite])
        for side, opposite, relation in _SIDES
        if side in sides and opposite in sides
    ]
    return Sentences(tuple(claims), tuple(conclusions), tuple(others))


def read_claim(sentence: str) -> Claim | None:
    """Return what a sentence claims of two things; None if it claims no relation."""
    words = sentence.strip().rstrip(".。").casefold()
    for relation, pattern in _PLACED:
        if found := pattern.fullmatch(words):
            return Claim(found["a"], relation, found["b"], bool(found["no"]))
    if found := _PLACED_ZH.fullmatch(words):
        return Claim(found["a"], _CHINESE[found["place"]], found["b"], bool(found["no"]))
    if found := _COVERED_ZH.fullmatch(words):
        return Claim(found["a"], "behind", found["b"], bool(found["no"]))
    if found := _COVERS.fullmatch(words) or _COVERS_ZH.fullmatch(words):
        return Claim(found["a"], "in front of", found["b"], bool(found["no"]))
    return None


def is_same_thing(one: str, two: str) -> bool:
    """Return whether two names can be of one thing: a colour may be left out, not be another."""
    a, b = (_normalize(name) for name in (one, two))
    return a.endswith(b) or b.endswith(a)


def _normalize(name: str) -> str:
    words = re.sub(r"^(?:the|a) ", "", name.strip().casefold()).replace("的", "")
    return f" {words}" if words.isascii() else words


def _split(text: str) -> Iterator[str]:
    for part in _END.split(_BOX.sub(" ", text.casefold().replace("n't ", " not "))):
        sentence = _LEAD.sub("", part.strip()).strip()
        if sentence:
            yield sentence
