"""The tests whose models go to a GPU where there is one, counted.

They hold shared passes, decoding and 4 bits against plain ones with the tolerances that
they have on a CPU; what differs is named.

    python benchmarks/gpu_tests.py --json build/gpu_tests.json
"""

import argparse
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from groupwise.core import describe_machine, write_json

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/training/fast/test_decoding.py",
    "tests/models/test_quantization.py",
    "tests/inference/test_local.py",
    "tests/training/test_policies.py",
    "tests/training/fast/test_exactness.py",
    "tests/training/fast/test_families.py",
    "tests/training/fast/test_sampling.py",
)


def main() -> None:
    """Run them and write how many passed, were left out with which reason, or failed and how."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--few", action="store_true", help="the first file alone")
    parser.add_argument("--files", nargs="+", default=TESTS, help="of tests; all of these")
    parser.add_argument("--limit-s", type=float, default=570, help="what ran until then is counted")
    parser.add_argument("--processes", default="12", help="of pytest")
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases_of = Path(folder, "junit.xml")
        command = [sys.executable, "-m", "pytest", "-n", options.processes, "--dist", "worksteal"]
        files = options.files[:1] if options.few else options.files
        command += [f"--junitxml={cases_of}", "-rf", *files]
        is_whole = True
        with subprocess.Popen(command, cwd=ROOT) as process:
            try:
                process.wait(options.limit_s)
            except subprocess.TimeoutExpired:
                is_whole = False
                process.send_signal(signal.SIGINT)
        cases = list(ElementTree.parse(cases_of).iter("testcase"))
    counted: dict[str, dict[str, str]] = {"failed": {}, "skipped": {}}
    for case in cases:
        for kind, ends in (("failed", ("failure", "error")), ("skipped", ("skipped",))):
            said = [one.get("message", "") for end in ends for one in case.findall(end)]
            if said:
                name = f"{case.get('classname')}.{case.get('name')}"
                counted[kind][name] = said[0][:300]
    num_passed = len(cases) - sum(map(len, counted.values()))
    found = {"num_passed": num_passed, **counted, "is_whole": is_whole, "tests": files}
    write_json(options.json, {**found, "machine": describe_machine()})


if __name__ == "__main__":
    main()
