"""Log-probabilities of completions, with every prompt of the batch computed once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
from torch.nn import functional

from groupwise.training.fast.pictures import Pictures
from groupwise.training.fast.round import Groups, Round
from groupwise.training.fast.shared import Packing, SharedPass

_NO_LABEL = -100


@dataclass(frozen=True)
class PromptRows:
    """Prompts, padded on the left; all tensors have the shape [rows, prompt]."""

    ids: torch.Tensor
    mask: torch.Tensor
    pictures: Pictures | None = None
    # 1 where a token stands for a part of a picture, by the name that the model gives it.
    token_types: Mapping[str, torch.Tensor] = field(default_factory=dict)

    def take(self, rows: torch.Tensor) -> Self:
        """Return some of the rows, shape [chosen]."""
        pictures = None if self.pictures is None else self.pictures.take(rows)
        return replace(self.change(lambda part: part[rows]), pictures=pictures)

    def name_for_masks(self) -> dict[str, torch.Tensor]:
        """Return what a model's own masks need of all tokens but the last."""
        types = self.token_types.get("token_type_ids")
        return {} if types is None else {"token_type_ids": types[:, :-1]}

    def change(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Self:
        """Return the prompts with something done to all that has their shape."""
        types = {name: change(part) for name, part in self.token_types.items()}
        return replace(self, ids=change(self.ids), mask=change(self.mask), token_types=types)


@dataclass(frozen=True)
class ScoredRows:
    """Rows whose completions, padded on the right, are scored."""

    prompts: PromptRows
    ids: torch.Tensor  # of the completions, [rows, tokens]
    mask: torch.Tensor
    places: torch.Tensor  # of each row in its round, [rows]
    prompt_numbers: torch.Tensor  # of each row's prompt in the round, [rows]

    def take(self, rows: torch.Tensor) -> Self:
        """Return some of the rows, shape [chosen], without columns that are padding."""
        width = max(1, int(self.mask[rows].sum(1).max()))
        prompts = self.prompts.take(rows)
        first = int(prompts.mask.any(0).int().argmax())
        return replace(
            self,
            prompts=prompts.change(lambda part: part[:, first:]),
            ids=self.ids[rows, :width],
            mask=self.mask[rows, :width],
            places=self.places[rows],
            prompt_numbers=self.prompt_numbers[rows],
        )

    def widen(self, num_before: int, num_behind: int) -> Self:
        """Return the rows with columns of padding before the prompts and behind completions."""
        return replace(
            self,
            prompts=self.prompts.change(lambda part: functional.pad(part, (num_before, 0))),
            ids=functional.pad(self.ids, (0, num_behind)),
            mask=functional.pad(self.mask, (0, num_behind)),
        )


@dataclass(frozen=True)
class Sharing:
    """What is kept for later passes of a round, beside sharing prompts in each."""

    first_trained: int = 0  # number of the first block in which something trains
    keeps_trunk: bool = False  # whether later passes start at that block
    keeps_features: bool = False  # of a frozen vision tower


@dataclass(frozen=True)
class Scores:
    """Of completions, shape [rows, tokens], 0 where padded; entropy is not always computed."""

    log_probs: torch.Tensor
    entropy: torch.Tensor | None


def score_rows(
    model: Any, backbone: Any, scored: ScoredRows, sharing: Sharing, round_: Round
) -> Scores:
    """Return what TRL's fused head finds for the completions.

    The model is as the trainer calls it, wrapped or not; its unwrapped backbone has gone through
    ``install_shared_pass``. ``round_`` keeps what ``sharing`` says.
    """
    groups = Groups.of(scored.prompt_numbers)
    prompts = scored.prompts.take(groups.first_rows)
    positions = find_positions(backbone, prompts)
    shared = _describe_pass(scored, groups, positions, sharing, round_)
    labels = scored.ids.masked_fill(scored.mask == 0, _NO_LABEL)
    packing, pictures = shared.packings[1], prompts.pictures
    given: dict[str, Any] = {}
    if pictures is not None and not sharing.keeps_features:
        given = pictures.copy_fields()  # the vision tower trains
    elif pictures is not None:
        features = round_.find_features(groups)
        if features is not None:
            shared = replace(shared, features=features)
        else:
            keep = partial(round_.keep_features, groups, pictures.count_features())
            shared = replace(shared, pictures=pictures.copy_fields(), keep_features=keep)
    output = model(
        input_ids=prompts.ids[:, :-1],
        attention_mask=prompts.mask[:, :-1],
        position_ids=positions[..., :-1],
        shared=shared,
        shift_labels=packing.pack(labels),
        fused_lm_head=True,
        **prompts.name_for_masks(),
        **given,
    )
    entropy = None if output.entropy is None else packing.unpack(output.entropy)
    return Scores(packing.unpack(output.log_probs), entropy)


def put_back(
    found: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]],
    scored: ScoredRows,
    *,
    unscored_log_probs: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropies of all rows, shape [rows, tokens].

    Rows that were not scored get a ratio of 1 (``unscored_log_probs`` are the old policy's; without
    them what is scored is its own old policy) and the mean entropy of the others. What was found
    are places of scored rows, their log-probabilities and their entropies (or None).
    """
    rows = torch.cat([part[0] for part in found])
    zeros = torch.zeros(scored.ids.shape, device=scored.ids.device)

    def collect(values: Sequence[Any], base: torch.Tensor) -> torch.Tensor:
        width = base.shape[1]
        parts = [functional.pad(value, (0, width - value.shape[1])) for value in values]
        return base.to(parts[0].dtype).index_copy(0, rows, torch.cat(parts))

    base = zeros if unscored_log_probs is None else unscored_log_probs
    log_probs = collect([part[1] for part in found], base)
    if found[0][2] is None:
        return log_probs, None
    entropies = collect([part[2] for part in found], zeros)
    if len(rows) < len(zeros):
        mean = entropies.detach().sum() / scored.mask[rows].sum().clamp(min=1)
        is_missing = torch.ones_like(zeros[:, :1], dtype=torch.bool)
        is_missing[rows] = False
        entropies = entropies.masked_fill(is_missing, float(mean))
    return log_probs, entropies


def find_positions(backbone: Any, prompts: PromptRows) -> torch.Tensor:
    """Return positions of prompt tokens, shape [rows, prompt], or [3, rows, prompt] (M-RoPE)."""
    if prompts.pictures is not None and hasattr(backbone, "get_rope_index"):
        return backbone.get_rope_index(
            prompts.ids,
            mm_token_type_ids=prompts.token_types["mm_token_type_ids"],
            image_grid_thw=prompts.pictures.copy("image_grid_thw"),
            attention_mask=prompts.mask,
        )[0]
    return (prompts.mask.long().cumsum(-1) - 1).clamp(min=0)


def _describe_pass(
    scored: ScoredRows, groups: Groups, positions: torch.Tensor, sharing: Sharing, round_: Round
) -> SharedPass:
    rows, prompts = groups.prompt_of_row, scored.prompts
    tail_ids = torch.cat([prompts.ids[:, -1:], scored.ids[:, :-1]], dim=1)
    steps = torch.arange(tail_ids.shape[1], device=tail_ids.device)
    shared = SharedPass(
        prompt_of_row=rows,
        tail_ids=tail_ids,
        mask=torch.cat([prompts.mask, scored.mask[:, :-1]], dim=1),
        positions=positions[..., rows, -1:] + steps,
        packings=(Packing.of(prompts.mask[groups.first_rows, :-1]), Packing.of(scored.mask)),
        first_trained=sharing.first_trained,
    )
    if not sharing.keeps_trunk:
        return shared
    places, prefix = scored.places.tolist(), prompts.ids.shape[1] - 1
    return replace(
        shared,
        trunk=round_.find_trunk(groups, places, prefix=prefix, tail=tail_ids.shape[1]),
        keep_trunk=partial(round_.keep_trunk, groups, places),
    )
