"""Photos of group_qc."""

import pytest
from tile_photos import write_photos


@pytest.fixture
def root(tmp_path):
    """Real files in real folders: ten groups that pass and ten that fail."""
    return write_photos(tmp_path / "photos")
