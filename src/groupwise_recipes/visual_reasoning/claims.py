"""Reads what a text says of two things: what relations it claims, and what it concludes.

Phrases become letters (``wording``), and rules of a few letters are looked for from left to right.
Words that have no letter of their own may stand between; where one that has is left over, its part
of the text is not understood.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from groupwise_drawn.relations import INVERSES, Relation
from groupwise_recipes.visual_reasoning.wording import Word, split_words

_CLAIMED: Mapping[Relation, tuple[str, str]] = {
    "left of": ("(?:(?:to|on|at) )?(?:the )?left(?: side)? of|further left than", "左"),
    "right of": ("(?:(?:to|on|at) )?(?:the )?right(?: side)? of|further right than", "右"),
    "above": ("above|over|higher than", "上"),
    "below": ("below|beneath|under|underneath|lower than", "下"),
    "in front of": ("in front of|nearer than|closer than", "前"),
    "behind": ("behind|(?:partly )?(?:covered|hidden) by|(?:farther|further) away than", "后"),
}
_STATEMENTS: list[tuple[Relation, re.Pattern[str]]] = [
    (
        relation,
        re.compile(
            rf"(?:the |an? )?(?P<a>.+?) (?:is|lies|stands|sits)(?: located| placed)? (?:{english})"
            rf" (?:the |an? )?(?P<b>.+)"
            rf"|(?P<a_zh>.+?)(?:位于|在)(?P<b_zh>.+?)的?{chinese}[边侧面方]"
        ),
    )
    for relation, (english, chinese) in _CLAIMED.items()
]
_AXES: Mapping[Relation, str] = {
    "left of": "x",
    "right of": "x",
    "above": "y",
    "below": "y",
    "in front of": "depth",
    "behind": "depth",
}
# Letters that may stand between, and an axis only with its number.
_GAP = "(?:[wg:*]|Xw?#+|#)*+"
_NOT = f"{_GAP}(?P<n>N?){_GAP}"
_A = "(?P<z>Z?)(?:i(?=Ts))?(?P<a>[Ti])(?:(?<=iT)s)?'?"
_B = "(?P<b>[Ti])"
_MORE = f"(?P<r>C|X{_GAP}G|G{_GAP}X)"
_START = f"(?<![^.,|:!]){_GAP}"
_ON = "(?<=[,|!])(?P<n>N?)@?"
_ALONE = f"(?!{_GAP}[Ti])"
_END = r"(?=[.,|:]|\Z)"
_RULES = [
    (name, re.compile(pattern))
    for name, pattern in (
        # I agree.
        ("conclude", "(?P<n>N?)(?P<r>E)"),
        # The statement is not true.
        ("conclude", f"S{_NOT}(?P<r>[+-])S?"),
        # This is false.
        ("remark", f"[si]{_NOT}(?P<r>[+-])(?:,?S|{_END})"),
        # The statement about the ball and the cup is true.
        ("conclude", f"S(?:{_GAP}T,T|[Ti'RDCtw]*?){_NOT}(?P<r>[+-])"),
        # It does not match the statement.
        ("conclude", f"(?P<n>N?){_GAP}(?P<r>[+-]){_GAP}S"),
        # So: false.
        ("conclude", f"(?<![^.,|:!])(?P<n>N?)(?P<r>[+-]){_END}"),
        # The claim is right.
        ("conclude", f"S[^RC]*?(?P<n>N?)(?P<r>D){_END}"),
        # The ball is not left of the cup.
        ("relate", f"{_A}{_NOT}@?(?P<r>R){_B}(?!'w)"),
        # 球被杯子挡住
        ("relate", f"{_B}{_NOT}p(?P<a>[Ti]){_GAP}(?P<r>R)"),
        # 球把杯子挡住
        ("relate", f"{_A}{_NOT}k{_B}{_GAP}(?P<r>R)"),
        # The ball is higher than the cup.
        ("relate", f"{_A}{_NOT}{_MORE}{_GAP}t{_GAP}{_B}"),
        # 球比杯子高
        ("relate", f"{_A}{_NOT}t{_B}'?{_GAP}{_MORE}"),
        # The ball is on the cup's left.
        ("relate", f"{_A}{_NOT}@?{_B}'(?P<r>D)"),
        # 球在杯子左边
        ("relate", f"{_A}{_NOT}@{_B}(?P<r>[DRC])"),
        # On the cup's left is the ball.
        ("relate", f"{_START}{_B}'(?P<r>D){_GAP}(?P<a>T){_ALONE}"),
        # Left of the cup is the ball.
        ("relate", f"{_START}(?P<r>R){_B}{_GAP}(?P<a>T){_ALONE}"),
        # The ball is higher.
        ("compare", f"{_A}{_NOT}{_MORE}(?!{_GAP}[tTi])"),
        # The ball is above.
        ("compare", f"{_A}{_NOT}(?P<r>R){_END}"),
        # The upper one is the ball.
        ("compare", f"{_START}(?P<r>C){_GAP}(?P<a>T){_ALONE}"),
        # The ball is on the left.
        ("place", f"(?!.s?'D){_A}{_NOT}@?(?P<r>D)"),
        # On the left is the ball.
        ("place", f"{_START}(?P<r>D){_GAP}(?P<a>T){_ALONE}"),
        # A smaller x means further left.
        ("ignore", f"(?P<r>G{_GAP}X|X{_GAP}G){_GAP}[CDR]"),
        # It has no windows.
        ("ignore", f"(?P<r>n)w+{_END}"),
        # Neither is left of the other.
        ("level", f"(?P<n>n){_GAP}(?P<r>R)g"),
        # … and left of the cup: the subject is left out.
        ("relate", f"{_ON}{_B}'?(?P<r>D){_END}"),
        ("relate", f"{_ON}{_MORE}{_GAP}t{_GAP}{_B}"),
        ("relate", f"{_ON}(?P<r>R){_B}(?!{_GAP}T)"),
        ("compare", f"{_ON}{_MORE}(?!{_GAP}[tTi])"),
        ("place", f"{_ON}(?P<r>[DR]){_END}"),
        # From left to right: the ball, the cup.
        ("relate", "(?P<r>O)[wg,:*]*(?P<a>T)[wg,:*]*(?P<b>T)"),
    )
]
_SENTENCE = re.compile("(?<=[.Q!])")
# What a supposition or a question says is not said.
_NOT_SAID = re.compile(r"[^|]*~[^|.!]*|.*Q")
_TURNS = "NnZE?+-"
_TELLS = "RDCO"
_BY_AXIS: dict[tuple[object, object], Relation] = {
    ("x", -1): "left of",
    ("x", 1): "right of",
    ("y", -1): "above",
    ("y", 1): "below",
}


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


def read_claim(statement: str) -> Claim | None:
    """Return what a statement claims of two things; None if it claims no relation."""
    words = statement.strip().rstrip(".。").casefold()
    for relation, pattern in _STATEMENTS:
        if found := pattern.fullmatch(words):
            return Claim(found["a"] or found["a_zh"], relation, found["b"] or found["b_zh"])
    return None


@dataclass
class Reading:
    """What a text says of the two things of a statement.

    Attributes:
        asked: what the statement claims.
        claims: without what is taken back later.
        places: on which side of the picture a thing is said to be, by thing and axis.
        conclusions: whether each says that the statement is true.
        remarks: likewise of those that say "this is true", of whatever it may be.
        unread: the first sentence that may matter and is not understood.
        is_whole: whether every word is understood, and nothing supposed or taken back.
        is_about_nothing: whether it says something, but nothing about things or the statement.
        may_correct_itself: whether it has words like "seems" and "wait".
    """

    asked: Claim
    claims: list[Claim] = field(default_factory=list)
    places: dict[tuple[str, str], Relation] = field(default_factory=dict)
    conclusions: list[bool] = field(default_factory=list)
    remarks: list[bool] = field(default_factory=list)
    unread: str = ""
    is_whole: bool = True
    is_about_nothing: bool = False
    may_correct_itself: bool = False
    _numbers: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _axis: str = ""
    _topic: str | None = None

    def read(self, text: str) -> None:
        """Note what a text says."""
        words = split_words(text, (self.asked.subject, self.asked.other))
        letters = "".join(word.letter for word in words)
        self.is_about_nothing = bool(letters) and not set("TSsg#RDC+-E") & set(letters)
        self.may_correct_itself = bool(set("*!") & set(letters))
        start = 0
        for sentence in _SENTENCE.split(letters):
            end = start + len(sentence)
            self._read_sentence(sentence, words[start:end])
            start = end
        self._compare_numbers()
        self._compare_places()

    @property
    def hints(self) -> list[Claim]:
        """What the places would claim if the other thing were on the other side."""
        return [
            Claim(name, place, other)
            for (name, _), place in self.places.items()
            if (other := self._find_other(name))
        ]

    def _read_sentence(self, letters: str, words: Sequence[Word]) -> None:
        first = next((word for word in words if word.letter in "Ti"), None)
        if first and first.letter == "T":
            self._topic = str(first.value)
        said = _NOT_SAID.sub(lambda found: "~" * len(found[0]), letters)
        self._note_numbers(said, words)
        position = 0
        while position < len(said):
            position = self._apply_rules(said, words, position)
        self.is_whole = self.is_whole and not re.search("[w~!*XG#]|TT", said)
        if said.endswith("!"):
            for noted in (self.claims, self.places, self.conclusions, self.remarks, self._numbers):
                noted.clear()

    def _apply_rules(self, letters: str, words: Sequence[Word], position: int) -> int:
        """Read what stands at a position by the first rule that fits; return where it ends."""
        for rule, pattern in _RULES:
            found = pattern.match(letters, position)
            if found and self._note(rule, found, words):
                return found.end()
        letter = letters[position]
        if letter == "T" and letters[:position][-1:] == "|":
            self._topic = str(words[position].value)
        if letter in _TELLS:
            self.is_whole = False
            matters = set("TiS") & set(_find_clause(letters, position))
        else:
            matters = letter in _TURNS
        if matters and not self.unread:
            self.unread = " ".join(word.text for word in words)
        return position + 1

    def _note(self, rule: str, found: re.Match[str], words: Sequence[Word]) -> bool:
        """Note what a rule has found; return whether it has a meaning."""
        said, groups = words[found.start("r") : found.end("r")], found.groupdict()
        is_denied = bool(groups.get("n")) != bool(groups.get("z"))
        if rule == "ignore":
            return True
        if rule == "remark" and "~" in found.string:
            return False  # it may be of what is supposed
        if rule in ("conclude", "remark"):
            return self._conclude(said[0], is_denied, is_remark=rule == "remark")
        relation = self._find_relation(said)
        a, b = (words[found.start(name)] if groups.get(name) else None for name in ("a", "b"))
        subject, other = self._find_things(a, b)
        if relation is None or subject is None or other is None:
            return False
        # 瓶子被箱子遮住，它…: of a passive, "it" is the thing that comes first
        self._topic = other if "p" in found[0] else subject
        if rule == "level":
            self.claims.append(Claim(other, relation, subject, is_denied))
        if rule != "place" or any(_AXES[one.relation] == _AXES[relation] for one in self.claims):
            self.claims.append(Claim(subject, relation, other, is_denied))
        elif not is_denied:
            self.places[subject, _AXES[relation]] = relation
        return True

    def _conclude(self, said: Word, is_denied: bool, *, is_remark: bool) -> bool:
        if said.letter == "D" and said.text != "right":
            return False
        is_true = said.value is True or said.letter in "+D"
        (self.remarks if is_remark else self.conclusions).append(is_true != is_denied)
        return True

    def _find_relation(self, said: Sequence[Word]) -> Relation | None:
        values = {word.letter: word.value for word in said}
        if "X" in values:
            return _BY_AXIS[values["X"], values["G"]]
        first, *more = cast("list[Relation]", said[0].value)
        asked = _AXES[self.asked.relation]
        for relation in (first, *more):
            if _AXES.get(relation, "depth") == asked:
                return relation if relation in _AXES else None
        return first

    def _find_things(self, a: Word | None, b: Word | None) -> tuple[str | None, str | None]:
        """Return the names of two words; "it" is the other one of the two, or who was spoken of."""
        one, two = (str(word.value) if word and word.letter == "T" else None for word in (a, b))
        if one is None:
            one = self._find_other(two) if two and a else self._topic
        return one, two or self._find_other(one)

    def _find_other(self, name: str | None) -> str | None:
        names = (self.asked.subject, self.asked.other)
        return names[1 - names.index(name)] if name in names else None

    def _note_numbers(self, letters: str, words: Sequence[Word]) -> None:
        named = {str(word.value) for word in words if word.letter == "T"}
        thing = None
        for letter, word in zip(letters, words, strict=True):
            if letter == "T":
                thing = str(word.value)
            elif letter == "i" and thing is None:
                thing = self._find_other(*named) if len(named) == 1 else self._topic
            elif letter == "X":
                self._axis = str(word.value)
            elif letter == "#" and thing:
                self._numbers.setdefault((thing, self._axis), []).append(float(word.text))

    def _compare_numbers(self) -> None:
        axis = _AXES[self.asked.relation]
        names = self.asked.subject, self.asked.other
        one, two = (self._numbers.get((name, axis)) for name in names)
        if one and two and (max(one) < min(two) or min(one) > max(two)):
            relation = _BY_AXIS[axis, -1 if max(one) < min(two) else 1]
            self.claims.append(Claim(names[0], relation, names[1]))

    def _compare_places(self) -> None:
        axis = _AXES[self.asked.relation]
        names = self.asked.subject, self.asked.other
        one, two = self.places.get((names[0], axis)), self.places.get((names[1], axis))
        if one and two and one != two:
            self.claims.append(Claim(names[0], one, names[1]))


def _find_clause(letters: str, position: int) -> str:
    """Return the clause that a position is in."""
    clauses = re.finditer("[^,|]+", letters)
    return next((clause[0] for clause in clauses if clause.end() > position), "")
