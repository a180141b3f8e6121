"""All that is measured on a GPU, part by part: one JSON file and one Markdown table.

Each part is a script of its own with a time limit. One that fails is a row with the last line that
it said, and the others go on; what is not installed on the machine is ``?`` with the reason.

    benchmarks/gpu.sh --all                 on the GPU machine, with the wheels it was given
    benchmarks/gpu.sh --all --rehearse      anywhere: tiny models on the CPU, no number of a GPU
    python benchmarks/gpu.py --parts speed serving --out build/gpu
"""

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from grpo_gpu import describe_hardware

from groupwise.core import describe_machine, write_json, write_text

HERE = Path(__file__).parent
DTYPES = ("float32", "bfloat16")
Row = tuple[str, str]
"""What was measured, and the number with its unit."""


def list_exact(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield how far log-probabilities and gradients of families are from TRL's."""
    for name, row in found["rows"].items():
        if "max_logp_diff" in row:
            differences = f"{row['max_logp_diff']:.1e}, gradient {row['max_grad_rel']:.1e}"
            yield f"{name}: log-probability", differences
            half = row["bfloat16"]
            gap = f"{half.get('shared_diff', math.nan):.1e} of {half.get('tolerance', 0):.1e}"
            close = "yes" if half["is_close"] else "no"
            yield f"{name}, bfloat16: log-probability", f"{gap}; within noise: {close}"
        elif "fallback" in row:
            yield name, f"plain: {row['fallback']}"
        elif row.get("untested", "").startswith("failed"):
            yield name, row["untested"]


def list_tests(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield how many tests passed, and which failed."""
    yield (
        "passed",
        f"{found['num_passed']}{'' if found['is_whole'] else ', then the time was over'}",
    )
    yield "skipped", str(len(found["skipped"]))
    for name, said in found["failed"].items():
        yield name, f"failed: {' '.join(said.split())}"


def list_speed(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield step time, peak memory, share of peak and noise, by shape and trainer."""
    peak = found["peak_flops_per_s"]
    yield "matrix products", f"{peak / 1e12:.3g} TFLOP/s"
    for shape, trainers in found["rows"].items():
        for trainer, row in trainers.items():
            if "failed" in row:
                yield f"{shape}, {trainer}", f"failed: {row['failed']}"
                continue
            memory = "?" if row["peak_gib"] is None else f"{row['peak_gib']:.1f} GiB"
            share = 100 * row["needed_flops"] / row["step_s"] / peak
            yield f"{shape}, {trainer}", f"{row['step_s']:.3f} s, {memory}, MFU {share:.1f} %"
            if "shared_diff" in row:
                note = ", fell back" if row["fell_back"] else ""
                noise = f"{row['shared_diff']:.1e}; plain ones by {row['plain_diff']:.1e}{note}"
                yield f"{shape}, {trainer}: shared passes differ by", noise


def list_grouper(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield times of one micro-batch by PrefixGrouper and Groupwise."""
    for row in found["rows"]:
        kind = "ragged" if row["ragged"] else "equal"
        shape = f"prompt {row['prompt_tokens']}, G {row['group_size']}, {kind}"
        times = f"{row['prefix_grouper_s']:.3f} s against {row['groupwise_s']:.3f} s"
        yield shape, f"{times}, ratio {row['ratio']:.2f}"


def list_modes(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield tokens a second and the gap of log-probabilities, by how completions are sampled."""
    for mode, row in found["rows"].items():
        if "failed" in row:
            yield mode, f"failed: {row['failed']}"
            continue
        gap = row["logprob_gap"]
        note = "" if gap is None else f", log-probabilities {gap:.1e} apart"
        yield mode, f"{row['tokens_per_s']:.0f} tokens/s{note}"


def list_serving(found: Mapping[str, Any]) -> Iterator[Row]:
    """Yield percentiles of a request."""
    for row in found["rows"]:
        rate = f"{row['screens_per_s']:.1f} screens/s"
        yield (
            f"{row['at_once']} at once",
            f"p50 {row['p50_ms']:.0f} ms, p99 {row['p99_ms']:.0f} ms, {rate}",
        )


@dataclass(frozen=True)
class Part:
    """One script and how its file is read.

    Attributes:
        script: beside this one; it writes what ``--json`` names.
        read: yields the rows of its file.
        limit_s: after which it is ended.
        options: of its command line.
        small: those of a rehearsal, instead.
        dtypes: it is run once in each; none: without the option.
        needs: a module that has to be there.
    """

    script: str
    read: Callable[[Mapping[str, Any]], Iterator[Row]]
    limit_s: float
    options: Sequence[str] = ()
    small: Sequence[str] = ()
    dtypes: Sequence[str] = DTYPES[1:]
    needs: str | None = None


PARTS: Mapping[str, Part] = {
    "exactness": Part(
        "families.py",
        list_exact,
        600,
        ("--device", "cuda", "--measure", "exact"),
        ("--families", "Qwen2", "Qwen2.5-VL"),
        dtypes=(),
    ),
    "tests": Part("gpu_tests.py", list_tests, 600, small=("--few", "--processes", "2"), dtypes=()),
    "speed": Part("grpo_gpu.py", list_speed, 1500, small=("--tiny", "--steps", "2")),
    "speed, float32": Part(
        "grpo_gpu.py",
        list_speed,
        600,
        ("--shapes", "image-3b", "--steps", "3"),
        ("--tiny", "--steps", "2"),
        dtypes=DTYPES[:1],
    ),
    "prefix_grouper": Part(
        "against_prefix_grouper.py",
        list_grouper,
        300,
        ("--device", "cuda"),
        ("--prompts", "128", "--groups", "4"),
        DTYPES,
        needs="prefix_grouper",
    ),
    "vllm": Part("vllm_modes.py", list_modes, 1200, small=("--tiny",), needs="vllm"),
    "serving": Part(
        "screens_gpu.py", list_serving, 600, small=("--tiny", "--screens", "8"), dtypes=DTYPES
    ),
}
UNMEASURED = {
    "Unsloth": "its loader has to be imported before TRL, and no script here has tried it",
    "NCCL": "several GPUs: nothing here starts more than one process",
}


def run_part(part: Part, dtype: str | None, path: Path, *, rehearses: bool) -> dict[str, Any]:
    """Return what a script wrote, or why there is nothing.

    Args:
        part: which.
        dtype: of its models; None: it is not told.
        path: of its file; what it says is beside it.
        rehearses: with tiny models.
    """
    if part.needs is not None and find_spec(part.needs) is None:
        return {"missing": f"{part.needs} is not installed"}
    command = [
        sys.executable,
        str(HERE / part.script),
        *(part.small if rehearses else part.options),
    ]
    command += ["--dtype", dtype] if dtype else []
    path.unlink(missing_ok=True)
    started = time.monotonic()
    said = path.with_suffix(".txt")
    with said.open("w") as stream:
        fault = _wait([*command, "--json", str(path)], stream, part.limit_s)
    found: dict[str, Any] = {"took_s": round(time.monotonic() - started, 1)}
    if path.is_file():
        found["result"] = json.loads(path.read_text())
    if fault is not None:
        found["failed"] = f"{fault}: {_read_last_line(said)}"
    return found


def _wait(command: Sequence[str], stream: Any, limit_s: float) -> str | None:
    """Run a command with all that it starts; return what went wrong, or None."""
    with subprocess.Popen(
        command, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return f"ended after {limit_s:.3g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return None if status == 0 else f"exit {status}"


def _read_last_line(path: Path) -> str:
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "no output"


def write_table(known: Mapping[str, Any]) -> str:
    """Return the Markdown table of a file's parts; what is half done has its rows and its fault."""
    lines = [f"{known['hardware']}", ""]
    if known["is_rehearsal"]:
        lines = ["**A rehearsal with tiny models: no number of a GPU.**", "", *lines]
    lines += ["| part | dtype | what | measured |", "|---|---|---|---|"]
    for part in known["parts"]:
        given = part["name"], part["dtype"] or "float32"
        rows = list(PARTS[part["name"]].read(part["result"])) if "result" in part else []
        if "failed" in part:
            rows.append(("failed", part["failed"]))
        if "missing" in part:
            rows.append(("?", part["missing"]))
        lines += [_write_row(*given, *row) for row in rows]
    lines += [_write_row(name, "", "?", why) for name, why in UNMEASURED.items()]
    return "\n".join(lines) + "\n"


def _write_row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> None:
    """Run the parts; both files are written after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rehearse", action="store_true", help="tiny models, a CPU will do")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder of the files")
    options = parser.parse_args()
    if not (options.rehearse or torch.cuda.is_available()):
        raise SystemExit("no GPU here; --rehearse runs tiny models on the CPU")
    (options.out / "parts").mkdir(parents=True, exist_ok=True)
    known: dict[str, Any] = {
        "is_rehearsal": options.rehearse,
        "hardware": describe_hardware(),
        "machine": describe_machine(),
        "parts": [],
    }
    for name in options.parts:
        for dtype in PARTS[name].dtypes or (None,):
            path = options.out / "parts" / f"{name.replace(', ', '-')}-{dtype or 'exact'}.json"
            found = run_part(PARTS[name], dtype, path, rehearses=options.rehearse)
            known["parts"].append({"name": name, "dtype": dtype, **found})
            write_json(options.out / "gpu.json", known)
            write_text(options.out / "gpu.md", write_table(known))
            outcome = found.get("failed") or found.get("missing") or "done"
            print(name, dtype or "", outcome, flush=True)
    print((options.out / "gpu.md").read_text())


if __name__ == "__main__":
    main()
