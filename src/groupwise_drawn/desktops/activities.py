"""The closed list of activities a drawn desktop can show, and the check of a name against it.

It knows nothing about how an activity looks (``painters``) or is spoken of (``tasks``).
"""

import difflib

from groupwise.core import DataError

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
    """Return the name when it is one of ``ACTIVITIES``.

    Raises:
        DataError: The name is unknown; the message lists what is allowed and the nearest name.
    """
    if activity in ACTIVITIES:
        return activity
    near = difflib.get_close_matches(activity, ACTIVITIES, n=1)
    raise DataError(
        "unknown activity",
        got=repr(activity),
        expected="one of " + ", ".join(ACTIVITIES),
        fix=f"did you mean {near[0]!r}?" if near else "use one of these names",
    )
