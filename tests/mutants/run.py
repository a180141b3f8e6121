"""Applies the faults of a package one by one and says which of them tests notice.

    python tests/mutants/run.py training --commit 0ff4700f     sources and tests of a commit
    python tests/mutants/run.py training                       those of the present tree

Each fault of ``<package>.yaml`` is a behaviour and a change of text that makes it wrong. ``before``
is for sources as they were at 0ff4700f, ``after`` for those of today; where there is no ``after``,
``before`` holds as long as its text is found, also in another file. ``after`` may have ``tests`` of
its own. The listed tests run in a copy, first without any
fault: a test that fails then kills nothing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TIMEOUT_S = 600


def copy_sources(commit: str | None, folder: Path) -> None:
    """Copy the files of a commit, or those of the present tree that git does not ignore."""
    if commit is not None:
        packed = subprocess.run(
            ["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        return
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def run_tests(folder: Path, tests: list[str], timeout_s: float = TIMEOUT_S) -> dict[str, Any]:
    """Run tests until one fails; return whether all pass (None: it took too long)."""
    paths = os.pathsep.join(str(folder / name) for name in ("src", "tests/fixtures"))
    environ = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
    ]
    started = time.perf_counter()
    try:
        done = subprocess.run(
            [*command, "--tb=no", "-rfE", *tests],
            cwd=folder,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired:
        return {"passes": None, "seconds": timeout_s, "failed": ""}
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if done.returncode not in (0, 1) and not failed:
        failed = [(done.stdout + done.stderr).strip().splitlines()[-1]]
    seconds = round(time.perf_counter() - started, 1)
    return {"passes": done.returncode == 0, "seconds": seconds, "failed": "; ".join(failed)[:200]}


def choose_change(fault: dict[str, Any], folder: Path) -> dict[str, Any] | None:
    """Return the change that fits these sources, with ``tests``; None: there is none.

    Text that has moved is followed as long as it stands in one place.
    """
    for change in filter(None, (fault.get("after"), fault.get("before"))):
        own = folder / change["file"]
        found = {path: path.read_text("utf-8").count(change["find"]) for path in _list_code(folder)}
        places = [own] if found.get(own) else [path for path, count in found.items() if count]
        if len(places) == 1 and found[places[0]] == 1:
            return {"tests": fault["tests"], **change, "file": str(places[0].relative_to(folder))}
    return None


def _list_code(folder: Path) -> list[Path]:
    return sorted((folder / "src").rglob("*.py"))


def list_tests(change: dict[str, Any], folder: Path) -> list[str]:
    """Return those tests of a change that are there: files, or functions of files."""
    found: list[str] = []
    for test in change["tests"]:
        path, _, name = test.partition("::")
        place = folder / path
        if place.is_dir() or (place.is_file() and f"def {name}" in place.read_text("utf-8")):
            found.append(test)
    return found


def try_fault(fault: dict[str, Any], folder: Path, tick: int) -> dict[str, Any]:
    """Apply a fault, run its tests and take it back."""
    change = choose_change(fault, folder)
    if change is None:
        return {"verdict": "not applicable"}
    tests = list_tests(change, folder)
    if not tests:
        return {"verdict": "no tests"}
    path = folder / change["file"]
    text = path.read_text(encoding="utf-8")

    def write(content: str, age: int) -> None:
        path.write_text(content, encoding="utf-8")
        moment = time.time() + age  # compiled files are known by size and second
        os.utime(path, (moment, moment))

    write(text.replace(change["find"], change["replace"]), 10 * tick)
    try:
        found = run_tests(folder, tests)
    finally:
        write(text, 10 * tick + 5)
    return {"verdict": "survived" if found["passes"] else "killed", **found}


def main() -> None:
    """Run the faults of a package and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("package", choices=sorted(path.stem for path in HERE.glob("*.yaml")))
    parser.add_argument("--commit", help="sources and tests of it; left out: the present tree's")
    parser.add_argument("--only", help="faults whose behaviour has these words")
    options = parser.parse_args()
    faults = yaml.safe_load((HERE / f"{options.package}.yaml").read_text(encoding="utf-8"))
    faults = [fault for fault in faults if (options.only or "") in fault["behaviour"]]
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        folder = Path(place)
        copy_sources(options.commit, folder)
        changes = [choose_change(fault, folder) for fault in faults]
        tests = sorted({t for one in changes if one for t in list_tests(one, folder)})
        sound = run_tests(folder, tests, timeout_s=6 * TIMEOUT_S)
        print(f"without a fault: {sound}", flush=True)
        if not sound["passes"]:
            sys.exit("tests fail without a fault")
        for tick, fault in enumerate(faults, start=1):
            row = {"behaviour": fault["behaviour"], **try_fault(fault, folder, tick)}
            counts = write_table(options.package, options.commit, [row])
            print(row["verdict"], row.get("seconds"), fault["behaviour"], sep=" | ", flush=True)
    print(counts)


def write_table(package: str, commit: str | None, new: list[dict[str, Any]]) -> dict[str, int]:
    """Write verdicts over those of the same faults, the others stay; return how many of each."""
    out = HERE / "results" / f"{package}-{commit or 'now'}.json"
    known = json.loads(out.read_text(encoding="utf-8"))["faults"] if out.is_file() else []
    faults = yaml.safe_load((HERE / f"{package}.yaml").read_text(encoding="utf-8"))
    found = {row["behaviour"]: row for row in (*known, *new)}
    rows = [found[one["behaviour"]] for one in faults if one["behaviour"] in found]
    counts = dict(sorted(Counter(row["verdict"] for row in rows).items()))
    table = {"package": package, "commit": commit, "counts": counts, "faults": rows}
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(table, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return counts


if __name__ == "__main__":
    main()
