"""What the columns of a user's own rows mean, as written in YAML: names, or Jinja templates.

Templates are filled in a sandbox and never with missing values.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, cast

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator, model_validator

from groupwise.core import Config, Place

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

SPLITS = ("train", "validation", "test")
ALLOWED = Place("pictures are known by their content", "图片以其内容为准")
"""Marks a setting that says where pictures may lie."""
_ROWS = Place("rows are known by their content", "数据行以其内容为准")
_PLACE = re.compile(r"(?<!\{)\{\{ *([A-Za-z_][A-Za-z_0-9]*) *\}\}")
_OWN_NAMES = frozenset({"row", "_file"})


class FillError(Exception):
    """A template that a row cannot fill, with the reason."""


def is_template(text: str) -> bool:
    """Say whether a text is a template rather than the name of a column."""
    return "{{" in text or "{%" in text


def check_template(text: str) -> str:
    """Return why a text is not a template, or an empty text."""
    left = _PLACE.sub(lambda place: place[0] if iskeyword(place[1]) else "", text)
    if not any(mark in left for mark in ("{{", "{%", "{#")):
        return ""  # names alone: a config is read without waiting for Jinja
    from jinja2 import TemplateSyntaxError

    try:
        _open_environment().parse(text)
    except TemplateSyntaxError as error:
        return f"line {error.lineno}: {error.message}"
    return ""


def find_place_problem(
    text: str, *, needed: Collection[str] = (), more: Collection[str] = ()
) -> str:
    """Return why a text is no template with these places, or an empty text.

    Args:
        text: of the template.
        needed: places that it must have.
        more: places that it may have.
    """
    problem = check_template(text)
    if problem:
        return problem
    found = list_columns(text) if is_template(text) else frozenset[str]()
    missing, unknown = sorted({*needed} - found), sorted(found - {*needed, *more})
    if missing:
        return f"the template lacks {{{{ {missing[0]} }}}}"
    known = ", ".join(sorted({*needed, *more}))
    return f"nothing fills {{{{ {unknown[0]} }}}}; there are {known}" if unknown else ""


def list_columns(text: str) -> frozenset[str]:
    """Return the columns that a name or a template needs."""
    from jinja2 import meta

    if not is_template(text):
        return frozenset({text})
    environment: Any = _open_environment()
    names = meta.find_undeclared_variables(environment.parse(text))
    return frozenset(names - _OWN_NAMES - environment.globals.keys())


def fill_template(text: str, values: Mapping[str, Any], *, file: str) -> str:
    """Return a template filled with a row's values.

    Empty texts are as missing as nulls: what may be missing is written ``{% if hint %}`` or
    ``{{ hint or "" }}``.

    Raises:
        FillError: if a value that it shows is missing, or it fails on the values.
    """
    given = {k: None if isinstance(v, str) and not v.strip() else v for k, v in values.items()}
    try:
        return _compile(text).render({"row": given, "_file": file, **given})
    except Exception as error:
        raise FillError(str(error)) from error


@cache
def _compile(text: str) -> Any:
    return _open_environment().from_string(text)


@cache
def _open_environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import SandboxedEnvironment

    def refuse_missing(value: Any) -> Any:
        if value is None:
            raise FillError("it shows a value that is missing")
        return value

    return SandboxedEnvironment(
        undefined=StrictUndefined, finalize=refuse_missing, trim_blocks=True, lstrip_blocks=True
    )


def _check_splits(value: Any) -> Any:
    given: Any = value
    for name in cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else ():
        if name not in SPLITS:
            raise ValueError(f"there is no split {name!r} (there are: {', '.join(SPLITS)})")
    return given


_BY_SPLIT = BeforeValidator(_check_splits)
_Texts = Annotated[
    tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)
]
"""Texts, of which one alone may stand without a list."""


class TableColumns(Config):
    """What the columns mean; each entry is the name of a column, or a Jinja template of columns.

    A template has ``{{ column }}``; where a name is no plain word, ``{{ row["its name"] }}``;
    ``{{ _file }}`` is the name of the row's file without its suffix.

    Attributes:
        prompt: a text, or a chat (a list of ``{role, content}`` that ends with the user's turn).
        answer: the label or reference answer; None: the rewards alone say what is right.
        options: of a choice: a column with a list, or one column per option.
        pictures: paths (relative to the row's file), lists of paths, or pictures of the hub. They
            open the first user turn, unless a chat says where they stand.
        cluster: what is never split (a session, a site, a document); None: rows that share their
            first picture stay together, and others are their own cluster.
        split: whose values ``splits`` maps to train, validation and test.
        target: what the SFT warm-up teaches to answer; of a chat's column, its last turn.
        fields: further names under which rewards find columns (``tests: test_list``); all columns
            keep their own.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"id": (None,)}

    prompt: str
    answer: str | None = None
    options: _Texts = ()
    pictures: _Texts = ()
    cluster: str | None = None
    split: str | None = None
    target: str | None = None
    fields: Mapping[str, str] = {}

    @model_validator(mode="after")
    def _check_templates(self) -> Self:
        for name, text in self.list_texts():
            problem = check_template(text)
            if problem:
                raise ValueError(f"{name} is not a template ({problem}): {text!r}")
        return self

    def list_texts(self) -> list[tuple[str, str]]:
        """Return each entry with the name of its setting."""
        named: dict[str, Any] = {**dict[str, Any](self), "fields": list(self.fields.values())}
        listed = {k: [v] if isinstance(v, str) else v or () for k, v in named.items()}
        return [(name, text) for name, texts in listed.items() for text in texts]


class TableSettings(Config):
    """A user's own rows; paths are relative to the configuration file.

    Attributes:
        files: JSONL, JSON, CSV, TSV or Parquet: a file, a folder or a pattern such as
            ``part-*.csv``, or several, or a mapping of train, validation and test to such.
        hub: instead of files: id of a data set of the hub, or a folder with one.
        subset, revision: of a data set of the hub.
        allow_outside: take pictures outside the folder of their row's file, which rows may name by
            ``..``, by absolute paths or through links; otherwise such rows are refused.
        columns: what the columns mean.
        system: first message of every prompt that has none of its own; may be a template.
        splits: values of the split column, or names of the hub's splits, by our splits. Rows of
            other values are not used.
        shares: of the clusters. A split that is not given is taken from the rows for training, in
            proportion to its share.
        max_rows: of a split, at most; which ones is drawn by the seed.
    """

    retired: ClassVar[Mapping[str, tuple[Any, ...]]] = {"encoding": (None,)}

    files: Annotated[Mapping[str, tuple[str, ...]], _ROWS, _BY_SPLIT] = {}
    hub: str | None = None
    subset: str | None = None
    revision: str | None = None
    allow_outside: Annotated[bool, ALLOWED] = False
    columns: TableColumns
    system: str | None = None
    splits: Annotated[Mapping[str, _Texts], _BY_SPLIT] = {
        "train": ("train", "training", "训练", "训练集"),
        "validation": ("validation", "valid", "val", "dev", "验证", "验证集"),
        "test": ("test", "testing", "测试", "测试集"),
    }
    shares: Annotated[Mapping[str, float], _BY_SPLIT] = {
        "train": 0.7,
        "validation": 0.1,
        "test": 0.2,
    }
    max_rows: Annotated[Mapping[str, Annotated[int, Field(ge=1)]], _BY_SPLIT] = {}

    @field_validator("files", mode="before")
    @classmethod
    def _place_files(cls, value: Any, info: ValidationInfo) -> Any:
        """Return the files by split, with paths that do not depend on where they are read."""
        is_mapping = isinstance(value, Mapping)
        by_split = cast("Mapping[str, Any]", value if is_mapping else {"train": value})
        return {name: _place(files, info) for name, files in by_split.items()}

    @field_validator("hub")
    @classmethod
    def _place_hub(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_local = value is not None and value.startswith(("/", "./", "../", "~"))
        return _place(value, info)[0] if is_local else value

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if bool(self.files) == bool(self.hub):
            raise ValueError("give the rows by either data.files or data.hub")
        if self.columns.split and (self.hub or set(self.files) != {"train"}):
            raise ValueError(
                "the splits are given twice: by data.columns.split and by data."
                + ("hub" if self.hub else "files")
            )
        if not self.hub and (self.subset or self.revision):
            raise ValueError("data.subset and data.revision need data.hub")
        if set(self.shares) != set(SPLITS):
            raise ValueError(f"data.shares needs {', '.join(SPLITS)}, got {dict(self.shares)}")
        problem = check_template(self.system or "")
        if problem:
            raise ValueError(f"system is not a template ({problem})")
        return self


def _place(files: Any, info: ValidationInfo) -> Any:
    """Return paths relative to the configuration's folder; what is none is refused later."""
    context = cast("Mapping[str, str]", info.context or {})
    given = [files] if isinstance(files, str | Path) else files
    if not isinstance(given, list | tuple):
        return given
    named = cast("Sequence[str | Path]", given)
    return tuple(str(Path(context.get("folder", ""), Path(f).expanduser())) for f in named)
