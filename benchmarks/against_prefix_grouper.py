"""One micro-batch with a shared prompt: Groupwise's pass against PrefixGrouper's.

Both compute log-probabilities of the same completions with the same weights (Qwen3, random) and
differentiate all of them; both apply the output head to completions alone, which PrefixGrouper's
own example does not. It has masks for FlashAttention only; here they are made into those of
PyTorch's attention, once a pass. They run in turn, and so does a pass that repeats the prompt.
Times are medians, on a CPU of processor. Completions are equally long, or ``ragged``: between half
as long and as long; both leave their padding out. It is no dependency of this project:

    pip install --no-deps --target build/prefix_grouper prefix_grouper
    PYTHONPATH=build/prefix_grouper python benchmarks/against_prefix_grouper.py --json results.json
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from grpo_floor import wait_for
from torch.nn import functional
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from groupwise.core import describe_machine, write_json
from groupwise.training.fast.round import Groups, Round
from groupwise.training.fast.scoring import PromptRows, ScoredRows, Scores, Sharing, score_rows
from groupwise.training.fast.shared import install_shared_pass

PROMPTS = (128, 512, 1024)
GROUPS = (4, 8)
NUM_TOKENS = 64
NUM_REPEATS = 5
NUM_WARM_UP = 1
_VOCABULARY = 1024
INSTALL = "pip install --no-deps --target build/prefix_grouper prefix_grouper"


@dataclass(frozen=True)
class Batch:
    """One prompt and its completions.

    Attributes:
        prompt: token ids, shape [1, prompt].
        completions: token ids, padded on the right, shape [rows, tokens].
        mask: of the completions, of the same shape.
        weights: of the log-probabilities in the loss, shape [rows, 1].
    """

    prompt: torch.Tensor
    completions: torch.Tensor
    mask: torch.Tensor
    weights: torch.Tensor


def make_batch(
    prompt_tokens: int, group_size: int, *, is_ragged: bool, device: torch.device
) -> Batch:
    """Return random tokens."""
    torch.manual_seed(prompt_tokens + group_size)
    shortest = NUM_TOKENS // 2 if is_ragged else NUM_TOKENS
    lengths = torch.randint(shortest, NUM_TOKENS + 1, (group_size, 1))
    lengths[0] = NUM_TOKENS
    parts = (
        torch.randint(1, _VOCABULARY, (1, prompt_tokens)),
        torch.randint(1, _VOCABULARY, (group_size, NUM_TOKENS)),
        (torch.arange(NUM_TOKENS)[None] < lengths).long(),
        torch.randn(group_size, 1),
    )
    return Batch(*(part.to(device) for part in parts))


def build_model() -> Any:
    """Return a Qwen3 with random weights."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=_VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=2048,
    )
    return Qwen3ForCausalLM(config)


def pick_log_probs(model: Any, states: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return log-probabilities of tokens, shape [rows, tokens]."""
    logits = model.lm_head(states)
    return -functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")


def score_plainly(model: Any, batch: Batch) -> torch.Tensor:
    """Repeat the prompt for every completion."""
    size, width = batch.mask.shape
    ids = torch.cat([batch.prompt.expand(size, -1), batch.completions], dim=1)
    mask = functional.pad(batch.mask, (batch.prompt.shape[1], 0), value=1)
    states = model.model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return pick_log_probs(model, states[:, -width - 1 : -1], batch.completions)


def score_shared(model: Any, batch: Batch) -> torch.Tensor:
    """Groupwise's pass; the model was prepared by ``install_shared_pass``."""
    size = len(batch.completions)
    numbers = torch.zeros(size, dtype=torch.long, device=batch.mask.device)
    ids = batch.prompt.expand(size, -1)
    prompts = PromptRows(ids, torch.ones_like(ids))
    places = torch.arange(size, device=ids.device)
    rows = ScoredRows(prompts, batch.completions, batch.mask, places, numbers)

    def score(*, shift_labels: torch.Tensor, fused_lm_head: bool, **named: Any) -> Any:
        states = model.model(**named).last_hidden_state
        return Scores(pick_log_probs(model, states, shift_labels), entropy=None)

    return score_rows(score, model.model, rows, Sharing(), Round(Groups.of(numbers))).log_probs


def score_grouped(model: Any, batch: Batch) -> torch.Tensor:
    """PrefixGrouper's pass; the model's attention is ``attend_grouped``.

    Source: its README.
    """
    from prefix_grouper import PrefixGrouper

    size, length = len(batch.completions), batch.prompt.shape[1]
    prompt_mask = torch.ones_like(batch.prompt)
    grouper = PrefixGrouper.from_ungrouped_masks(prompt_mask, batch.mask, size)
    ids = grouper.concat_input(batch.prompt, prompt_mask, batch.completions, batch.mask)
    lengths = [length, *(length + count for count in batch.mask.sum(1).tolist())]
    starts = [0] + [length] * size
    positions = torch.cat(
        [torch.arange(start, end) for start, end in zip(starts, lengths, strict=True)]
    )
    states = model.model(
        input_ids=ids,
        attention_mask=grouper.padding_mask,
        position_ids=positions[None].to(ids.device),
        use_cache=False,
        prefix_grouper=grouper,
        suffix_mask=make_suffix_mask(grouper.suffix_attn_mask, batch.mask.shape[1]),
    ).last_hidden_state
    states = grouper.split_output(states, include_prefix_last=1)[2]
    return pick_log_probs(model, states[:, :-1], batch.completions)


def make_suffix_mask(is_real: torch.Tensor, num_queries: int) -> torch.Tensor:
    """Return what completions attend to, shape [rows, 1, queries, keys], from real keys."""
    num_keys = is_real.shape[1]
    is_past = is_real.new_ones(num_queries, num_keys, dtype=torch.bool)
    is_past = is_past.tril(num_keys - num_queries)
    return (is_past & is_real[:, None].bool())[:, None]


def attend_grouped(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _: Any,
    *,
    scaling: float,
    prefix_grouper: Any,
    suffix_mask: torch.Tensor,
    **__: Any,
) -> tuple[torch.Tensor, None]:
    """Attend as PrefixGrouper does; a single prompt has no padding, so it needs no mask."""

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, _: Any) -> torch.Tensor:
        mask = suffix_mask if k.shape[2] > q.shape[2] else None
        return sdpa_attention_forward(module, q, k, v, mask, scaling=scaling)[0]

    return prefix_grouper.forward(attend, query, key, value), None


def prepare(
    device: torch.device, dtype: torch.dtype
) -> dict[str, tuple[Any, Callable[[Any, Batch], torch.Tensor]]]:
    """Return each way's model, all with the same weights, and its pass."""
    AttentionInterface.register("prefix_grouper", attend_grouped)
    plain = build_model().to(device, dtype)
    shared, grouped = copy.deepcopy(plain), copy.deepcopy(plain)
    install_shared_pass(shared.model)
    grouped.set_attn_implementation("prefix_grouper")
    return {
        "plain": (plain, score_plainly),
        "groupwise": (shared, score_shared),
        "prefix_grouper": (grouped, score_grouped),
    }


def measure(ways: Mapping[str, Any], batch: Batch) -> dict[str, float]:
    """Return CPU seconds of forward and backward, and differences of both from the plain pass."""
    spent: dict[str, list[float]] = {name: [] for name in ways}
    log_probs: dict[str, torch.Tensor] = {}
    for _ in range(NUM_WARM_UP + NUM_REPEATS):
        for name, (model, score) in ways.items():
            model.zero_grad()
            started = read_clock(batch.mask.device)
            found = score(model, batch)
            (found * batch.mask * batch.weights).sum().backward()
            spent[name].append(read_clock(batch.mask.device) - started)
            log_probs[name] = found.detach()
    times = {name: statistics.median(values[NUM_WARM_UP:]) for name, values in spent.items()}
    result = {f"{name}_s": seconds for name, seconds in times.items()}
    result["ratio"] = times["prefix_grouper"] / times["groupwise"]
    plain = _join_gradients(ways["plain"][0])
    for name in ("groupwise", "prefix_grouper"):
        gap = ((log_probs[name] - log_probs["plain"]) * batch.mask).abs().max()
        gradient = _join_gradients(ways[name][0])
        result[f"{name}_logp_diff"] = float(gap)
        result[f"{name}_grad_rel"] = float((gradient - plain).norm() / plain.norm())
    return result


def read_clock(device: torch.device) -> float:
    """Return seconds: of this process on a CPU, of the clock once a GPU has done its work."""
    if device.type == "cpu":
        return time.process_time()
    wait_for(device)
    return time.perf_counter()


def _join_gradients(model: Any) -> torch.Tensor:
    return torch.cat([parameter.grad.float().flatten() for parameter in model.parameters()])


def main() -> None:
    """Measure all shapes; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--device", type=torch.device, default=torch.device("cpu"))
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--prompts", nargs="+", type=int, default=PROMPTS)
    parser.add_argument("--groups", nargs="+", type=int, default=GROUPS)
    options = parser.parse_args()
    if find_spec("prefix_grouper") is None:
        parser.error(f"PrefixGrouper is not installed: {INSTALL}, and set PYTHONPATH to it")
    torch.set_num_threads(1)
    ways = prepare(options.device, getattr(torch, options.dtype))
    rows: list[dict[str, Any]] = []
    shape = {"num_tokens": NUM_TOKENS, "repeats": NUM_REPEATS, "dtype": options.dtype}
    known = {"machine": describe_machine(), "prefix_grouper": version("prefix_grouper")}
    for is_ragged, prompt_tokens, group_size in product(
        (False, True), options.prompts, options.groups
    ):
        batch = make_batch(prompt_tokens, group_size, is_ragged=is_ragged, device=options.device)
        found = measure(ways, batch)
        given = {"ragged": is_ragged, "prompt_tokens": prompt_tokens, "group_size": group_size}
        rows.append(given | found)
        print(rows[-1], flush=True)
        write_json(options.json, {**known, "shape": shape, "rows": rows})


if __name__ == "__main__":
    main()
