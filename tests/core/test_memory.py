import pytest

from groupwise.core import memory, read_free_memory, read_total_memory


@pytest.fixture
def limit(tmp_path, monkeypatch):
    """Return a function that puts this process into control groups of version 2 or 1."""

    def put(kind="", **groups):
        own, root = tmp_path / "cgroup", tmp_path / "groups" / kind
        own.write_text(f"1:cpu:/\n5:{kind}:/above/own\n")
        names = memory._FILES[kind == "memory"]
        for place, (most, used, cache) in groups.items():
            folder = root / place.replace("_", "/")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / names[0]).write_text(f"{most}\n")
            (folder / names[1]).write_text(f"{used}\n")
            (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")
        monkeypatch.setattr(memory, "_OWN_GROUP", own)
        monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")

    return put


@pytest.mark.parametrize("kind", ["", "memory"])
def test_a_control_group_leaves_what_it_allows(kind, limit):
    before = read_total_memory()
    limit(kind, above=(10_000, 6_000, 500), above_own=("max", 6_000, 0))
    assert read_total_memory() == 10_000 < before
    assert read_free_memory() == 4_500
    limit(kind, above_own=(9_000, 9_500, 0))
    assert read_free_memory() == 0


def test_without_control_groups_it_is_the_machine_s(limit, tmp_path, monkeypatch):
    limit()
    assert 0 < read_free_memory() <= read_total_memory()
    monkeypatch.setattr(memory, "_SYSTEM", tmp_path / "gone")
    assert read_free_memory() is None
