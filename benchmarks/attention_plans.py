"""What attention costs at a length that is new, with cuDNN's kernels and without, on a GPU.

    python benchmarks/attention_plans.py --json benchmarks/results/attention_plans.json

One query token against a cache, as in decoding: 8 rows, 28 heads of 128, bfloat16, lengths 600 to
619, each asked twice. ``groupwise.models.policy`` says what follows.
"""

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from groupwise.core import describe_machine, write_json

LENGTHS = range(600, 620)


def time_call(num_keys: int, *, num_kv_heads: int, is_masked: bool) -> list[float]:
    """Return milliseconds of the first and of the second call at a length."""
    options: Any = {"device": "cuda", "dtype": torch.bfloat16}
    query = torch.randn(8, 28, 1, 128, **options)
    keys, values = torch.randn(2, 8, num_kv_heads, num_keys, 128, **options)
    mask = torch.ones(8, 1, 1, num_keys, device="cuda", dtype=torch.bool) if is_masked else None
    found = []
    for _ in range(2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        scaled_dot_product_attention(
            query, keys, values, attn_mask=mask, enable_gqa=num_kv_heads != 28
        )
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - started))
    return found


def main() -> None:
    """Print and write the medians over lengths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for has_cudnn in (True, False):
        torch.backends.cuda.enable_cudnn_sdp(has_cudnn)
        for num_kv_heads, is_masked in ((28, False), (4, False), (28, True)):
            named = {"num_kv_heads": num_kv_heads, "is_masked": is_masked}
            times = [time_call(length, **named) for length in LENGTHS]
            first, again = (statistics.median(column) for column in zip(*times, strict=True))
            rows.append({"cudnn": has_cudnn, **named, "first_ms": first, "again_ms": again})
            print(rows[-1], flush=True)
    if options.json:
        write_json(options.json, {"rows": rows, "machine": describe_machine()})


if __name__ == "__main__":
    main()
