"""The house only gets smaller: lines of Python by folder, against ``sizes.yaml``."""

import sys
from collections import Counter
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_name("sizes.yaml")
LOWER = "python tests/test_size.py"


def count_lines(root: Path) -> dict[str, int]:
    """Return lines of Python, stubs too, by folder: of each package in ``src``."""
    counts: Counter[str] = Counter()
    for top in ("benchmarks", "docs", "examples", "src", "tests"):
        for path in (root / top).rglob("*.py*"):
            if path.suffix in (".py", ".pyi"):
                parts = path.relative_to(root).parts[:-1]
                counts["/".join(parts[: 3 if top == "src" else 2])] += len(
                    path.read_text(encoding="utf-8").splitlines()
                )
    return dict(sorted(counts.items()))


def test_no_folder_grows_and_what_shrank_stays_small() -> None:
    allowed = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    counted = count_lines(ROOT)
    grown = {name: (allowed.get(name, 0), num) for name, num in counted.items()}
    grown = {name: pair for name, pair in grown.items() if pair[1] > pair[0]}
    assert not grown, f"folders have more lines than sizes.yaml allows: {grown}"
    shrunk = {name: (num, counted.get(name, 0)) for name, num in allowed.items()}
    shrunk = {name: pair for name, pair in shrunk.items() if pair[1] < pair[0]}
    assert not shrunk, f"lower sizes.yaml by `{LOWER}`: {shrunk}"


if __name__ == "__main__":  # lowers the table; what grew has to be made smaller by hand
    allowed = yaml.safe_load(TABLE.read_text(encoding="utf-8")) if TABLE.is_file() else {}
    counted = count_lines(ROOT)
    grown = {name: num for name, num in counted.items() if num > allowed.get(name, num)}
    table = {name: min(num, allowed.get(name, num)) for name, num in counted.items()}
    TABLE.write_text(yaml.safe_dump(table), encoding="utf-8")
    sys.exit(f"still larger than allowed: {grown}" if grown else 0)
