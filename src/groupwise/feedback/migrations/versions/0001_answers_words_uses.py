"""Answers, what people said of them, and the versions that learned from it."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "answers",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("row", sa.JSON, nullable=False),
        sa.Column("session", sa.String(200), nullable=False),
        sa.Column("pictures", sa.JSON, nullable=False),
        sa.Column("prediction", sa.Text),
        sa.Column("confidence", sa.Double),
        sa.Column("version", sa.String(200), nullable=False),
    )
    op.create_index("answers_by_time", "answers", ["at_s"])
    op.create_table(
        "words",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column(
            "answer",
            sa.String(64),
            sa.ForeignKey("answers.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("person", sa.String(64), nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("at_s", sa.Double, nullable=False),
    )
    op.create_index("words_by_answer", "words", ["answer", "person"])
    op.create_index("words_by_person", "words", ["person"])
    op.create_table(
        "uses",
        sa.Column("answer", sa.String(64), primary_key=True),
        sa.Column("person", sa.String(64), primary_key=True),
        sa.Column("version", sa.String(200), primary_key=True),
    )
    op.create_index("uses_by_person", "uses", ["person"])
