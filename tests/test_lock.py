"""The lock with hashes names what constraints.txt names, and nothing without a hash."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_lock_has_every_pin_once_and_a_hash_for_each() -> None:
    texts = [(ROOT / name).read_text("utf-8") for name in ("lock-cpu.txt", "lock-cpu-dev.txt")]
    assert [line for line in texts[1].splitlines() if line[0] == "-"] == ["-r lock-cpu.txt"]
    lines = re.sub(r"^#.*\n|^-r.*\n", "", "".join(texts), flags=re.M)
    locked = re.findall(r"(\S+==[^\s+]+)\S* \\\n    --hash=sha256:[0-9a-f]{64}\n", lines)
    assert len(locked) == lines.count("==") == lines.count("\n") / 2
    pins = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert sorted(locked) == sorted(pin for pin in pins if not pin.startswith("#"))
