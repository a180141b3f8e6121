"""The closed list of activities a drawn desktop can show, and the check of a name against it.

It knows nothing about how an activity looks (``painters``) or is spoken of (``tasks``).
"""

from groupwise.core import DataError, describe_unknown

__all__ = ["ACTIVITIES", "check_activity"]

ACTIVITIES: tuple[str, ...] = (
    "coding",
    "document",
    "game",
    "image_editing",
    "news_finance",
    "pdf_reading",
    "presentation",
    "shopping",
    "social",
    "spreadsheet",
    "terminal_admin",
    "travel",
    "video",
    "web_search",
)


def check_activity(activity: str) -> str:
    """Return the name when it is one of ``ACTIVITIES``."""
    if activity in ACTIVITIES:
        return activity
    raise DataError(describe_unknown("activity", activity, ACTIVITIES))
