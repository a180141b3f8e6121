"""Write lock-cpu.txt and lock-cpu-dev.txt: every package of constraints.txt with its hash.

Called by ``make lock``, on Linux x86-64 with the Python that the lock is for; pip chooses the
files. lock-cpu.txt holds what ``.[serve]`` needs, and lock-cpu-dev.txt the rest of ``.[dev]``.
"""

import json
import subprocess
import sys
from pathlib import Path
from platform import python_version_tuple

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
HEAD = """# Written by `make lock`: CPython {python} on Linux x86-64. torch's CPU build is on
# https://download.pytorch.org/whl/cpu (--extra-index-url). Then the project itself, built by the
# setuptools that is locked here: pip install --no-deps --no-build-isolation .
"""


def choose(extra: str) -> dict[str, str]:
    """Lines by package of what pip would install, from nothing, for an extra of the project."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    wanted = ["-c", "constraints.txt", "pip", "setuptools", f".[{extra}]"]
    command = [*pip, "--only-binary", ":all:", "--report", "-", *wanted]
    report = json.loads(
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    )
    lines: dict[str, str] = {}
    for package in report["install"]:
        archive, metadata = package["download_info"].get("archive_info"), package["metadata"]
        if archive:  # The project itself is a folder.
            name = canonicalize_name(metadata["name"])
            digest = archive["hashes"]["sha256"]
            lines[name] = f"{name}=={metadata['version']} \\\n    --hash=sha256:{digest}\n"
    return lines


def main() -> None:
    """Write both files."""
    head = HEAD.format(python=".".join(python_version_tuple()[:2]))
    serve, dev = choose("serve"), choose("dev")
    text = head + "".join(serve[name] for name in sorted(serve))
    (ROOT / "lock-cpu.txt").write_text(text, encoding="utf-8")
    rest = "".join(dev[name] for name in sorted(dev) if name not in serve)
    text = f"{head}-r lock-cpu.txt\n{rest}"
    (ROOT / "lock-cpu-dev.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
