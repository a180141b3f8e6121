"""Trained policies on disk: what a training keeps, weights for other tools, and averages."""

import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors import safe_open

from groupwise.core import ModelError, read_json, write_json, write_text
from groupwise.models.base_model import find_weights
from groupwise.models.identity import is_adapter, name_base, read_base
from groupwise.models.policy import Policy, load_policy
from groupwise.models.quantization import find_quantization, read_quantization
from groupwise.models.settings import Quantization
from groupwise.models.silence import silence_libraries
from groupwise.models.trainable import (
    KIND,
    find_virtual_tokens,
    format_trainable,
    tabulate_trainable,
)

CARD = "README.md"
"""Of an exported policy, for people and for a hub."""

_PROBE = "The quick brown fox. 敏捷的棕色狐狸，两行：通过"
_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16}
_NUM_DRAWS = 3
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM takes for ``--max-lora-rank``."""


@dataclass(frozen=True, slots=True)
class ExportedPolicy:
    """What was written."""

    base: str  # folder or hub id of the base model; the merged folder if there is no adapter
    adapter: Path | None  # folder in PEFT's form; None for a policy that was trained whole
    merged: Path  # folder of a model that needs nothing else
    dtype: str  # of the merged weights
    # Largest difference of a log-probability between the policy and ``merged``, and as large a one
    # as comes from moving each merged weight by less than one unit in its last place at random.
    max_difference: float
    noise: float
    has_vision: bool  # whether the policy takes pictures
    name: str  # how vLLM is to call the adapter
    # What the base of the adapter is held in; ``merged`` has the numbers that these bits stand for,
    # and the base itself has others.
    quantization: Quantization | None = None

    def list_commands(self, *, from_inside: bool = False) -> list[str]:
        """Return command lines that serve the policy with vLLM.

        Of virtual tokens, or of an adapter on 4 bits, the merged weights alone are served.

        Args:
            from_inside: as they are typed in the folder itself, also on another machine; of an
                adapter whose base is a folder of this one, only the merged weights are served.
        """
        merged, adapter = (
            Path(one.name) if one and from_inside else one for one in (self.merged, self.adapter)
        )
        lines = [["vllm", "serve", str(merged)]]
        is_known = not from_inside or not Path(self.base).is_dir()
        if self.adapter is not None and is_known and self.quantization is None:
            own = read_json(self.adapter / "adapter_config.json", dict).get("r")
            if own is not None:  # virtual tokens have no rank
                rank = next((one for one in _RANKS if one >= own), own)
                modules = ["--lora-modules", f"{self.name}={adapter}", "--max-lora-rank", str(rank)]
                lines.insert(0, ["vllm", "serve", self.base, "--enable-lora", *modules])
        return list(map(shlex.join, lines))


def export_policy(
    source: Path,
    out: Path,
    *,
    name: str = "policy",
    like: str | Path | None = None,
    write_card: Callable[[ExportedPolicy], str] | None = None,
) -> ExportedPolicy:
    """Write ``out/adapter`` and ``out/merged``, and see that both say the same.

    What is there in the end is whole: until then all is in a folder beside it.

    Args:
        source: folder of a trained policy, an adapter or a whole model.
        out: a new or empty folder.
        name: how vLLM is to call the adapter.
        like: the base in whose dtype the merged weights are written; None: in float32.
        write_card: returns the text of ``out/README.md``.

    Raises:
        ModelError: if ``out`` has files, the policy cannot be loaded, or the merged weights give
            log-probabilities that differ by more than twice what rounding gives.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ModelError(f"{out} has files already", fix="name a new folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as made:
        draft = Path(made) / out.name
        adapter = base = None
        if is_adapter(source):
            adapter, base = draft / "adapter", read_base(source)
            shutil.copytree(source, adapter, ignore=_leave_state)
            name_base(adapter, base)
        dtype = torch.float32 if like is None else read_dtype(like)
        has_vision, difference, noise = _write_merged(source, draft / "merged", dtype)
        exported = ExportedPolicy(
            base=base or str(out / "merged"),
            adapter=adapter,
            merged=draft / "merged",
            dtype=str(dtype).removeprefix("torch."),
            max_difference=difference,
            noise=noise,
            has_vision=has_vision,
            name=name,
            quantization=read_quantization(source),
        )
        if write_card is not None:
            write_text(draft / CARD, write_card(exported))
        draft.replace(out)
    return replace(exported, adapter=adapter and out / "adapter", merged=out / "merged")


def _leave_state(_: str, names: Sequence[str]) -> list[str]:
    """Name what a checkpoint goes on from, such as the optimizer: no part of the policy."""
    kept = (".safetensors", ".json", ".jinja", ".txt", ".model", ".md")
    others = [name for name in names if not name.startswith("adapter_")]
    return [name for name in others if not name.endswith(kept) or name == "trainer_state.json"]


def read_dtype(base: str | Path) -> torch.dtype:
    """Return the dtype that most weights of a base's files have; without any, float32."""
    counts = Counter[torch.dtype]()
    for path in find_weights(base).glob("*.safetensors"):
        with safe_open(path, "pt") as weights:
            for name in weights.keys():  # noqa: SIM118 (it is no mapping)
                held = weights.get_slice(name)
                counts[_DTYPES.get(held.get_dtype(), torch.float32)] += prod(held.get_shape())
    return max(counts, key=counts.__getitem__, default=torch.float32)


def _write_merged(source: Path, folder: Path, dtype: torch.dtype) -> tuple[bool, float, float]:
    """Write the merged weights; return whether they take pictures, their difference and the noise.

    First the merging is judged in float32, then what was written against it in its own dtype.
    """
    policy = load_policy(source, device=torch.device("cpu"))
    expected = _probe(policy)
    merged = merge_adapter(policy)
    exact = _probe(merged)
    merged.model.to(dtype)
    merged.save(folder)
    del policy, merged
    written = load_policy(folder, device=torch.device("cpu"))
    found = _probe(written)
    for said, by, rounded in ((exact, expected, torch.float32), (found, exact, dtype)):
        difference, noise = float((said - by).abs().max()), _measure_noise(written, rounded)
        if not difference <= 2 * noise:
            raise ModelError(
                "the merged weights do not say what the policy says; nothing was written",
                got=f"log-probabilities that differ by {difference:.2g}",
                expected=f"at most {2 * noise:.2g}, twice what rounding to {rounded} gives",
                fix="serve the policy where it is",
            )
    return written.has_vision, float((found - expected).abs().max()), noise


@torch.no_grad()
def _measure_noise(policy: Policy, dtype: torch.dtype) -> float:
    """Return the largest difference of a log-probability that rounding gives.

    Each weight is moved, and stays so, by less than one unit in its last place, drawn at random;
    sums of products are rounded otherwise then, too.
    """
    generator = torch.Generator().manual_seed(0)
    before, found = _probe(policy), []
    for _ in range(_NUM_DRAWS):
        for weight in policy.model.parameters():
            share = torch.rand(weight.shape, generator=generator).sub_(0.5).mul_(2)
            weight.add_(share.mul_(weight).mul_(torch.finfo(dtype).eps))
        after = _probe(policy)
        found.append(float((after - before).abs().max()))
        before = after
    return max(found)


def merge_adapter(policy: Policy) -> Policy:
    """Return the policy with its adapter, if it has one, merged into its weights in place."""
    from peft import get_peft_model, get_peft_model_state_dict, set_peft_model_state_dict

    model = policy.model
    adapters = getattr(model, "peft_config", None)
    if not adapters:
        return policy
    if any(one.peft_type == KIND for one in adapters.values()):
        # A head that shares its weights with the input embedding gets a copy of them.
        head, embedding = model.get_output_embeddings(), model.get_input_embeddings().base_layer
        if len(head.weight) < len(embedding.weight):
            raise ModelError(
                "virtual tokens cannot be merged into this base",
                got=f"{len(head.weight)} rows of the head",
                expected=f"{len(embedding.weight)}: its tokenizer uses all rows, and leaves none "
                "free",
                fix="take the policy's folder as it is, which is an adapter",
            )
        head.weight = torch.nn.Parameter(head.weight.detach().clone(), requires_grad=False)
    if find_quantization(model) is not None:
        # The base gets the numbers that its 4 bits stand for, and the LoRA is put on them.
        config, weights = model.peft_config["default"], get_peft_model_state_dict(model)
        base = model.unload()
        with silence_libraries():
            base.dequantize(dtype=base.get_input_embeddings().weight.dtype)
        base.requires_grad_(False)
        model = get_peft_model(base, config)
        set_peft_model_state_dict(model, weights)
        model.eval()
    return Policy(model.merge_and_unload(safe_merge=True), policy.processor, policy.has_vision)


@torch.inference_mode()
def _probe(policy: Policy) -> torch.Tensor:
    """Return log-probabilities (tokens, vocabulary) of a fixed text, behind virtual tokens."""
    text = find_virtual_tokens(policy.processor) + _PROBE
    inputs = policy.tokenizer(text, return_tensors="pt").to(policy.model.device)
    with silence_libraries():
        return policy.model(**inputs).logits[0].float().log_softmax(-1)


def keep_policy(policy: Policy, folder: Path, *, merged: bool = False) -> None:
    """Save a trained policy under ``folder/policy``, with what trained and what was frozen.

    The counts stand in ``trainable.json`` and, for people, in ``trainable.txt``. With ``merged``
    its adapter is merged into its weights, so that it can be a base.
    """
    rows = tabulate_trainable(policy.model)
    (merge_adapter(policy) if merged else policy).save(folder / "policy")
    write_json(folder / "trainable.json", [asdict(row) for row in rows])
    write_text(folder / "trainable.txt", format_trainable(rows) + "\n")


@torch.no_grad()
def average_policy(
    trained: Path, before: str | Path, share: float, *, dtype: str = "float32"
) -> Policy:
    """Return the policy whose weights are a share of the way from others to what was trained.

    Such weights keep more of what the policy could before. A LoRA on these very weights stays one:
    its product is scaled. All else becomes a whole model. Averages are computed in float32.

    Source: Wortsman et al. 2022 (2109.01903, "WiSE-FT"), equation 1.

    Args:
        trained: folder of a policy.
        before: folder or hub id of the whole model that it was trained from.
        share: of the way, in [0, 1].
        dtype: of the weights.

    Raises:
        ModelError: if there is no way from one to the other: virtual tokens, another architecture.
    """
    cpu = torch.device("cpu")
    policy = load_policy(trained, dtype=dtype, device=cpu)
    kinds = {one.peft_type for one in getattr(policy.model, "peft_config", {}).values()}
    if KIND in kinds:
        raise ModelError(f"{trained} has virtual tokens, which {before} has not: no average")
    is_on_it = kinds and is_adapter(trained)
    if is_on_it and Path(read_base(trained)).resolve() == Path(before).resolve():
        for name, weights in policy.model.named_parameters():
            if ".lora_B." in name:
                weights.mul_(share)
        return policy
    if find_quantization(policy.model) is not None:
        raise ModelError(f"{trained} is on a base in 4 bits, and {before} is not: no average")
    policy = merge_adapter(policy)
    # Parameters, not the state: that has tied weights under both names, and once is enough.
    own, ends = (
        dict(model.named_parameters())
        for model in (policy.model, load_policy(before, dtype=dtype, device=cpu).model)
    )
    if {n: one.shape for n, one in own.items()} != {n: one.shape for n, one in ends.items()}:
        raise ModelError(f"{trained} and {before} are no models of the same architecture")
    for name, weights in own.items():
        weights.copy_(ends[name].float().lerp(weights.float(), share))
    return policy
