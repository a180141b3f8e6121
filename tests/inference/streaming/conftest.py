"""Groups of photos of mixed sizes."""

import pytest

from groupwise.core import Example
from groupwise.inference.streaming.work import WorkGroup


@pytest.fixture(scope="session")
def photo_groups(
    picture_examples: list[Example], mixed_examples: list[Example], text_examples: list[Example]
) -> list[WorkGroup]:
    """Groups of 3, 0, 1, 5, 0 and 5 examples; one has no picture, the last have some anywhere."""
    examples = [*picture_examples[3:8], text_examples[1], *picture_examples[:3], *mixed_examples]
    sizes = iter((3, 0, 1, 5, 0, 5))
    groups, place = [], 0
    for number, size in enumerate(sizes):
        groups.append(WorkGroup(f"组 {number}", tuple(examples[place : place + size])))
        place += size
    return groups
