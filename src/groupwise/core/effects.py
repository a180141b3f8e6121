"""What a setting changes between two runs, said where its field is defined.

A field counts unless it is marked: ``Annotated[int, Harmless("why", "为什么")]``. A mark of a
section holds for its fields, too, unless they are marked themselves.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Effect:
    """What a setting changes.

    Attributes:
        kind: ``counts``: what is trained or measured; ``budget``: that, and how much is trained;
            ``source``: where something comes from, whose content counts; ``harmless``: nothing.
        reason: why it is harmless, a clause; of a source, what its content is recorded as.
        reason_zh: the same in Chinese.
        is_place: it says where something is reached, which leaves no trace in what is made: work
            that is done is not done again for it.
    """

    kind: Literal["counts", "budget", "source", "harmless"] = "counts"
    reason: str = ""
    reason_zh: str = ""
    is_place: bool = False


BUDGET = Effect("budget")
"""Marks a field that decides how much is trained."""


def Harmless(reason: str, reason_zh: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a field that changes no result, with the reason in both languages."""
    return Effect("harmless", reason, reason_zh)


def Place(reason: str, reason_zh: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a harmless field for whose change no step is done again."""
    return Effect("harmless", reason, reason_zh, is_place=True)


def Source(aspect: str) -> Effect:  # noqa: N802 (reads as a mark)
    """Return the mark of a field that says where something comes from.

    Args:
        aspect: what the content is recorded as: ``data``, ``base_weights``, ``items``.
    """
    return Effect("source", aspect, aspect)


@cache
def list_effects(config_type: type[BaseModel]) -> dict[str, Effect]:
    """Return the effect of every field by its path, sections and their fields alike.

    Fields of a section that may be absent or one of several are there; ``*`` stands for any key
    of a mapping of sections. A field that several sections at one place have counts, unless they
    agree.
    """
    found: dict[str, Effect] = {}
    for path, effect in _walk(config_type, "", Effect()):
        found[path] = effect if found.get(path, effect) == effect else Effect()
    return found


def find_effect(effects: Mapping[str, Effect], path: str) -> Effect:
    """Return the effect of a setting, or that of the section it is in; otherwise it counts."""
    parts = path.split(".")
    for end in range(len(parts), 0, -1):
        for known, effect in effects.items():
            names = known.split(".")
            if len(names) == end and all(n in ("*", p) for n, p in zip(names, parts, strict=False)):
                return effect
    return Effect()


def _walk(
    config_type: type[BaseModel], prefix: str, inherited: Effect
) -> Iterator[tuple[str, Effect]]:
    for name, field in config_type.model_fields.items():
        own = next((one for one in field.metadata if isinstance(one, Effect)), inherited)
        yield f"{prefix}{name}", own
        for inner, key in _find_sections(field.annotation):
            yield from _walk(inner, f"{prefix}{name}.{key}", own)


def _find_sections(annotation: Any) -> Iterator[tuple[type[BaseModel], str]]:
    """Yield the sections in an annotation, each with what stands between it and its fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ""
        return
    origin: Any = get_origin(annotation)
    if origin in (list, tuple, set, frozenset):
        return  # A list is one value.
    is_mapping = isinstance(origin, type) and issubclass(origin, Mapping)
    for part in get_args(annotation):
        for inner, key in _find_sections(part):
            yield inner, f"*.{key}" if is_mapping else key
