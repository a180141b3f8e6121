"""Log-probabilities of completions, with every prompt of the batch computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import torch
from torch.nn import functional

from groupwise.training.fast.groups import Groups, pick_grid, pick_pixels
from groupwise.training.fast.rounds import Round
from groupwise.training.fast.shared import SharedPass

_NO_LABEL = -100


@dataclass(frozen=True)
class Pictures:
    """Pictures of rows; what belongs to a row is copied only when it is asked for.

    Attributes:
        pixel_values: patches of all pictures, shape [patches, values].
        grid: frames, height and width in patches of each picture, shape [pictures, 3].
        num_images: pictures of each row.
        rows: which of the rows are meant, shape [chosen]; None: all.
    """

    pixel_values: torch.Tensor
    grid: torch.Tensor
    num_images: Sequence[int]
    rows: torch.Tensor | None = None

    def take(self, rows: torch.Tensor) -> Self:
        """Mean some of these rows only, shape [chosen]."""
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def count(self) -> list[int]:
        """Return the number of pictures of each row that is meant."""
        if self.rows is None:
            return list(self.num_images)
        return [self.num_images[row] for row in self.rows.tolist()]

    def find_grid(self) -> torch.Tensor:
        """Return the grids of the rows that are meant, in order."""
        return self.grid if self.rows is None else pick_grid(self.rows, self.grid, self.num_images)

    def copy_pixels(self) -> torch.Tensor:
        """Return the patches of the rows that are meant, in order."""
        if self.rows is None:
            return self.pixel_values
        return pick_pixels(self.rows, self.pixel_values, self.grid, self.num_images)


@dataclass(frozen=True)
class PromptRows:
    """Prompts, padded on the left.

    Attributes:
        ids, mask: shape [rows, prompt].
        pictures: of the rows; None without pictures.
        token_types: 1 where a token stands for a patch, shape [rows, prompt].
    """

    ids: torch.Tensor
    mask: torch.Tensor
    pictures: Pictures | None = None
    token_types: torch.Tensor | None = None

    def take(self, rows: torch.Tensor) -> Self:
        """Return some of the rows, shape [chosen]."""
        return replace(
            self,
            ids=self.ids[rows],
            mask=self.mask[rows],
            pictures=None if self.pictures is None else self.pictures.take(rows),
            token_types=None if self.token_types is None else self.token_types[rows],
        )

    def trim(self) -> Self:
        """Return the rows without the columns in which all of them are padding."""
        first = int(self.mask.any(0).int().argmax())
        types = None if self.token_types is None else self.token_types[:, first:]
        return replace(self, ids=self.ids[:, first:], mask=self.mask[:, first:], token_types=types)

    def widen(self, num_columns: int) -> Self:
        """Return the rows with columns of padding before them."""
        types = self.token_types
        return replace(
            self,
            ids=functional.pad(self.ids, (num_columns, 0)),
            mask=functional.pad(self.mask, (num_columns, 0)),
            token_types=None if types is None else functional.pad(types, (num_columns, 0)),
        )


@dataclass(frozen=True)
class ScoredRows:
    """Rows whose completions are scored.

    Attributes:
        prompts: of the rows.
        ids, mask: of the completions, padded on the right, shape [rows, tokens].
        places: place of each row in its round, shape [rows].
        prompt_numbers: number of each row's prompt in the round, shape [rows].
    """

    prompts: PromptRows
    ids: torch.Tensor
    mask: torch.Tensor
    places: torch.Tensor
    prompt_numbers: torch.Tensor

    def take(self, rows: torch.Tensor) -> Self:
        """Return some of the rows, shape [chosen], without columns that are padding."""
        width = max(1, int(self.mask[rows].sum(1).max()))
        return replace(
            self,
            prompts=self.prompts.take(rows).trim(),
            ids=self.ids[rows, :width],
            mask=self.mask[rows, :width],
            places=self.places[rows],
            prompt_numbers=self.prompt_numbers[rows],
        )

    def widen(self, num_before: int, num_behind: int) -> Self:
        """Return the rows with columns of padding before the prompts and behind completions."""
        return replace(
            self,
            prompts=self.prompts.widen(num_before),
            ids=functional.pad(self.ids, (0, num_behind)),
            mask=functional.pad(self.mask, (0, num_behind)),
        )


@dataclass(frozen=True)
class Sharing:
    """What is kept for later passes of a round, beside sharing prompts in each.

    Attributes:
        first_trained: number of the first block in which something trains.
        keeps_trunk: whether later passes start at that block.
        keeps_features: whether the output of a frozen vision tower is kept.
    """

    first_trained: int = 0
    keeps_trunk: bool = False
    keeps_features: bool = False


def score_rows(
    model: Any, backbone: Any, scored: ScoredRows, sharing: Sharing, round_: Round
) -> Any:
    """Return the output of TRL's fused head for the completions, fields of [rows, tokens].

    Args:
        model: the policy as the trainer calls it, wrapped or not.
        backbone: its unwrapped backbone, after ``install_shared_pass``.
        scored: the rows.
        sharing: what is kept.
        round_: keeps it.
    """
    groups = Groups.of(scored.prompt_numbers)
    prompts = scored.prompts.take(groups.first_rows)
    positions = find_positions(backbone, prompts)
    shared = _describe_pass(scored, groups, positions, sharing, round_)
    labels = scored.ids.masked_fill(scored.mask == 0, _NO_LABEL)
    pictures: dict[str, Any] = {}
    if prompts.pictures is not None:
        shared, pictures = _add_pictures(shared, prompts.pictures, groups, sharing, round_)
    return model(
        input_ids=prompts.ids[:, :-1],
        attention_mask=prompts.mask[:, :-1],
        position_ids=positions[..., :-1],
        shared=shared,
        shift_labels=labels,
        fused_lm_head=True,
        **pictures,
    )


def _add_pictures(
    shared: SharedPass, pictures: Pictures, groups: Groups, sharing: Sharing, round_: Round
) -> tuple[SharedPass, dict[str, Any]]:
    """Return the pass with known features, or else the pixels that they are computed from."""
    if not sharing.keeps_features:
        pixels = pictures.copy_pixels()
        return shared, {"pixel_values": pixels, "image_grid_thw": pictures.find_grid()}
    features = round_.find_features(groups)
    if features is not None:
        return replace(shared, features=features), {}
    pixels = pictures.copy_pixels()
    keep = partial(round_.keep_features, groups, pictures.count())
    given = {"pixel_values": pixels, "image_grid_thw": pictures.find_grid()}
    return replace(shared, keep_features=keep), given


def put_back(
    found: Sequence[tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]],
    scored: ScoredRows,
    *,
    unscored_log_probs: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log-probabilities and entropies of all rows, shape [rows, tokens].

    Rows that were not scored get a ratio of 1 and the mean entropy of the others.

    Args:
        found: places of scored rows, their log-probabilities and their entropies (or None).
        scored: all rows.
        unscored_log_probs: of the old policy, shape [rows, tokens]; None: what is scored is its
            own old policy.
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
    if prompts.pictures is not None:
        return backbone.get_rope_index(
            prompts.ids,
            mm_token_type_ids=prompts.token_types,
            image_grid_thw=prompts.pictures.find_grid(),
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
