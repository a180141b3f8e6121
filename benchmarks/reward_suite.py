"""How many faulty rewards of the public suite the audit finds, and how many sound ones it blames.

    python benchmarks/reward_suite.py --json results.json
    python benchmarks/reward_suite.py --only label_anywhere --verbose

The suite lies in ``tests/faults/rewards.jsonl``, made in ``tests/fixtures/reward_suite``. A faulty
reward is caught if the audit has at least one error about it, which is what stops a run; a sound
one for which it has an error is a false alarm. Warnings are shown and do not count.
"""

import argparse
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from groupwise.core import describe_machine, write_json
from groupwise.rewards.audit.audit import RewardAudit, audit_rewards, render_reward_audit

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "fixtures"))

from reward_suite import ENTRIES, FAULTY, SOUND, Entry

BLIND = {entry.name for entry in ENTRIES if entry.row["is_blind"]}
"""Entries whose author had not seen the audit."""


@dataclass(frozen=True, slots=True)
class Result:
    """One audited reward."""

    name: str
    is_faulty: bool
    audit: RewardAudit
    seconds: float

    @property
    def half(self) -> str:
        """Which half of the suite it is in."""
        return "blind" if self.name in BLIND else "more"

    def list_names(self, level: str) -> list[str]:
        """Return the names of the findings of one level, without ``reward/``."""
        found = [finding for finding in self.audit.findings if finding.level == level]
        return [finding.name.removeprefix("reward/") for finding in found]

    def to_json(self) -> dict[str, Any]:
        """Return what was found as JSON values."""
        return {
            "name": self.name,
            "half": self.half,
            "kind": "faulty" if self.is_faulty else "sound",
            "is_stopped": bool(self.audit.errors),
            "errors": self.list_names("error"),
            "warnings": self.list_names("warning"),
        }


def run_entry(entry: Entry, *, is_faulty: bool) -> Result:
    """Audit one reward."""
    started = process_time()
    audit = audit_rewards(entry.build())
    return Result(entry.name, is_faulty, audit, process_time() - started)


def count(results: list[Result]) -> dict[str, dict[str, int]]:
    """Return the caught and the falsely blamed by half, and of all."""
    halves = {half: [r for r in results if r.half == half] for half in ("blind", "more")}
    return {
        half: {
            "faulty": sum(r.is_faulty for r in rows),
            "caught": sum(r.is_faulty and bool(r.audit.errors) for r in rows),
            "sound": sum(not r.is_faulty for r in rows),
            "false_alarms": sum(not r.is_faulty and bool(r.audit.errors) for r in rows),
        }
        for half, rows in {**halves, "all": results}.items()
        if rows
    }


def find_revision() -> str:
    """Return the commit that last changed the rewards and their audit, as it is checked out."""
    folder = Path(__file__).parents[1] / "src" / "groupwise" / "rewards"
    command = ["git", "-C", str(folder), "log", "-1", "--format=%H", "--", "."]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    """Audit the rewards, print a line for each and write the results if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--only", nargs="+", help="names of entries")
    parser.add_argument("--verbose", action="store_true", help="print what each audit found")
    arguments = parser.parse_args()
    chosen = [
        (entry, entry in FAULTY)
        for entry in (*FAULTY, *SOUND)
        if not arguments.only or entry.name in arguments.only
    ]
    results = [run_entry(entry, is_faulty=is_faulty) for entry, is_faulty in chosen]
    for result in results:
        row = result.to_json()
        print(f"{row['half']:5} {row['kind']:6} {row['name']:28}", end=" ")
        print(f"{result.seconds:4.1f} s  {', '.join(row['errors']) or '-'}", end=" ")
        print(f"[warnings: {', '.join(row['warnings'])}]" if row["warnings"] else "")
        if arguments.verbose:
            print(render_reward_audit(result.audit))
    counts = count(results)
    print(*(f"{half}: {rates}" for half, rates in counts.items()), sep="\n")
    if arguments.json:
        rows = [result.to_json() for result in results]
        seconds = round(sum(result.seconds for result in results), 1)
        where = {"machine": describe_machine(), "rewards_revision": find_revision()}
        write_json(arguments.json, {**where, "cpu_s": seconds, "counts": counts, "rewards": rows})


if __name__ == "__main__":
    main()
