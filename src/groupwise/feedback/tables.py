"""The tables of a feedback store, as the newest migration leaves them."""

from sqlalchemy import (
    JSON,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()

ANSWERS = Table(
    "answers",
    METADATA,
    Column("id", String(64), primary_key=True),
    Column("at_s", Double, nullable=False),
    Column("row", JSON, nullable=False),
    Column("session", String(200), nullable=False),
    Column("pictures", JSON, nullable=False),
    Column("prediction", Text),
    Column("confidence", Double),
    Column("version", String(200), nullable=False),
    Column("decided_by", String(20)),
    Column("judge_label", Text),
    Column("judge_probability", Double),
    Index("answers_by_time", "at_s"),
)

WORDS = Table(
    "words",
    METADATA,
    Column("number", Integer, primary_key=True),
    Column("answer", ForeignKey("answers.id", ondelete="CASCADE"), nullable=False),
    Column("person", String(64), nullable=False),
    Column("label", Text),
    Column("at_s", Double, nullable=False),
    Index("words_by_answer", "answer", "person"),
    Index("words_by_person", "person"),
)
"""All that was said, in order; a label of NULL takes back what the person said before."""

USES = Table(
    "uses",
    METADATA,
    Column("answer", String(64), primary_key=True),
    Column("person", String(64), primary_key=True),
    Column("version", String(200), primary_key=True),
    Index("uses_by_person", "person"),
)
"""Whose labels a version was trained on; it stays when the labels are deleted."""
