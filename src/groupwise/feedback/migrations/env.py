"""Run by Alembic: the connection comes from ``FeedbackStore``."""

from alembic import context

from groupwise.feedback.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
