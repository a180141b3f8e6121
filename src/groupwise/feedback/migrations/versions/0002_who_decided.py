"""Who decided on an answer, and what a judge said of it."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns; nothing is known of the answers that are there."""
    op.add_column("answers", sa.Column("decided_by", sa.String(20)))
    op.add_column("answers", sa.Column("judge_label", sa.Text))
    op.add_column("answers", sa.Column("judge_probability", sa.Double))
