"""The pointer selector: it picks an ordered list of demonstrations from a pool."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from groupwise.core import ModelError, derive_seed
from groupwise_recipes.demo_selection.settings import TEMPERATURE, SelectorSettings


@dataclass(frozen=True)
class _Encoded:
    """Queries and pools inside the selector.

    Attributes:
        queries: what each query looks for, shape [queries, 1, hidden].
        items: projected candidates, shape [queries, K, hidden].
        keys: what a look is compared with, of length 1, shape [queries, K, hidden].
    """

    queries: torch.Tensor
    items: torch.Tensor
    keys: torch.Tensor


class PointerSelector(nn.Module):
    """Scores the candidates of a pool for a query and picks one after the other.

    A query attends to its pool; a candidate's score is the cosine of query and candidate, both
    projected, over a temperature. What was picked is masked. Without a history gate the scores of
    the others stay as they are, so that the greedy list has the candidates by their scores; with
    it the look of the next step is g · query + (1 - g) · picked, g = sigmoid(W [query, picked]).
    It picks lists of any length up to K, whatever length it was trained at.

    Features are float32, of d values: a query's and a candidate's each the re-normalised mean of
    normalised picture and text embeddings. All methods take ``queries`` [B, d] and ``pools``
    [B, K, d]. Lists hold positions in the pool, in [0, K), in the order of the prompt.

    Args:
        settings: sizes and options.
        seed: new weights follow from it; the global generator is left as it is.
    """

    def __init__(self, settings: SelectorSettings, *, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "selector"))
            self._build()

    def _build(self) -> None:
        size = self.settings.hidden_size
        self.project = nn.Linear(self.settings.feature_size, size, bias=False)
        layers = range(self.settings.num_layers)
        self.attentions = nn.ModuleList(
            nn.MultiheadAttention(size, 1, batch_first=True) for _ in layers
        )
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in layers)
        self.dropout = nn.Dropout(self.settings.dropout)
        self.project_query = _make_near_identity(size)
        self.project_item = _make_near_identity(size)
        self.gate = nn.Linear(2 * size, size) if self.settings.history_gate else None
        if self.gate is not None:
            # At first hardly anything of what was picked is mixed in: g = 0.95.
            nn.init.constant_(self.gate.bias, 3.0)

    def save(self, path: Path) -> None:
        """Write weights and settings into one safetensors file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        weights = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(weights, path, metadata={"settings": self.settings.model_dump_json()})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Return the selector that a file holds, on the CPU and in evaluation mode."""
        try:
            with safe_open(path, framework="pt") as stream:
                settings = json.loads((stream.metadata() or {})["settings"])
                names = stream.keys()
                weights = {name: stream.get_tensor(name) for name in names}
            selector = cls(SelectorSettings.model_validate(settings))
            selector.load_state_dict(weights)
        except (OSError, SafetensorError, KeyError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"{path} is not a selector ({error})", fix="give a file that training wrote"
            ) from error
        return selector.eval()

    def set_trainable(self, *, freeze_backbone: bool) -> int:
        """Say what trains, all or what is not a projection; return its number of parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(True)
        if freeze_backbone:
            for layer in (self.project, self.project_query, self.project_item):
                layer.weight.requires_grad_(False)
        return sum(p.numel() for p in self.parameters() if p.requires_grad)

    def score(self, queries: torch.Tensor, pools: torch.Tensor) -> torch.Tensor:
        """Return the scores of a first pick, in [-1 / temperature, 1 / temperature], [B, K]."""
        encoded = self._encode(queries, pools)
        return self._score(encoded.queries, encoded).squeeze(1)

    def log_probs(
        self, queries: torch.Tensor, pools: torch.Tensor, lists: torch.Tensor
    ) -> torch.Tensor:
        """Return log-probabilities of whole lists, by teacher forcing, shape [B, G].

        Args:
            queries: features, shape [B, d].
            pools: features of the candidates, shape [B, K, d].
            lists: positions that differ within a list, shape [B, G, S].
        """
        encoded = self._encode(queries, pools)
        walk = _Walk(self, encoded, num_lists=lists.shape[1])
        total = torch.zeros((), device=queries.device)
        for picks in lists.unbind(-1):
            total = total + walk.find_log_probs().gather(-1, picks.unsqueeze(-1)).squeeze(-1)
            walk.pick(picks)
        return total

    @torch.no_grad()
    def choose(self, queries: torch.Tensor, pools: torch.Tensor, *, num_shots: int) -> torch.Tensor:
        """Return the greedy list, the best candidate at each step, shape [B, S]."""
        lists, _ = self.search(queries, pools, num_shots=num_shots, num_beams=1)
        return lists.squeeze(1)

    @torch.no_grad()
    def search(
        self, queries: torch.Tensor, pools: torch.Tensor, *, num_shots: int, num_beams: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the lists that a beam search finds, best first, and their log-probabilities.

        Shapes [B, W, S] and [B, W]; W is ``num_beams`` or, where fewer lists exist, all of them.

        Args:
            queries: features, shape [B, d].
            pools: features of the candidates, shape [B, K, d].
            num_shots: S, at least 1.
            num_beams: at least 1.
        """
        num_items = _check_shots(pools, num_shots)
        walk = _Walk(self, self._encode(queries, pools), num_lists=1)
        lists = torch.zeros((len(queries), 1, 0), dtype=torch.long, device=queries.device)
        totals = torch.zeros((len(queries), 1), device=queries.device)
        for step in range(num_shots):
            num_kept = min(num_beams, lists.shape[1] * (num_items - step))
            found = (totals.unsqueeze(-1) + walk.find_log_probs()).flatten(1)
            totals, places = found.topk(num_kept, dim=-1)
            beams, picks = places // num_items, places % num_items
            walk.keep(beams)
            walk.pick(picks)
            lists = torch.cat([_take(lists, beams), picks.unsqueeze(-1)], dim=-1)
        return lists, totals

    @torch.no_grad()
    def sample(
        self,
        queries: torch.Tensor,
        pools: torch.Tensor,
        *,
        num_shots: int,
        num_lists: int = 1,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Return lists that are drawn pick by pick, equal ones among them, shape [B, G, S].

        Args:
            queries: features, shape [B, d].
            pools: features of the candidates, shape [B, K, d].
            num_shots: S, at least 1.
            num_lists: G, at least 1.
            temperature: log-probabilities of each pick are divided by it; above 0.
            generator: of the features' device; None: the global one.
        """
        num_items = _check_shots(pools, num_shots)
        walk = _Walk(self, self._encode(queries, pools), num_lists=num_lists)
        picked: list[torch.Tensor] = []
        for _ in range(num_shots):
            shares = (walk.find_log_probs() / temperature).softmax(-1)
            drawn = shares.view(-1, num_items).multinomial(1, generator=generator)
            picked.append(drawn.view(len(queries), num_lists))
            walk.pick(picked[-1])
        return torch.stack(picked, dim=-1)

    def _encode(self, queries: torch.Tensor, pools: torch.Tensor) -> _Encoded:
        hidden, items = self.project(queries).unsqueeze(1), self.project(pools)
        for attention, norm in zip(self.attentions, self.norms, strict=True):
            seen, _ = attention(hidden, items, items, need_weights=False)
            hidden = norm(hidden + self.dropout(seen))
        return _Encoded(hidden, items, functional.normalize(self.project_item(items), dim=-1))

    def _score(self, looks: torch.Tensor, encoded: _Encoded) -> torch.Tensor:
        """Return scores of looks [B, G, hidden], shape [B, G, K]."""
        looks = functional.normalize(self.project_query(looks), dim=-1)
        return looks @ encoded.keys.mT / TEMPERATURE

    def _look_on(self, looks: torch.Tensor, encoded: _Encoded, picks: torch.Tensor) -> torch.Tensor:
        """Return looks [B, G or 1, hidden] after a pick [B, G]. Without a gate they stay."""
        if self.gate is None:
            return looks
        picked = _take(encoded.items, picks)
        looks = looks.expand_as(picked)
        share = self.gate(torch.cat([looks, picked], dim=-1)).sigmoid()
        return share * looks + (1 - share) * picked


class _Walk:
    """Lists that are picked side by side, step by step."""

    def __init__(self, selector: PointerSelector, encoded: _Encoded, *, num_lists: int) -> None:
        self._selector, self._encoded = selector, encoded
        self._looks = encoded.queries
        num_queries, num_items, _ = encoded.items.shape
        self._is_picked = torch.zeros(
            (num_queries, num_lists, num_items), dtype=torch.bool, device=encoded.items.device
        )

    def find_log_probs(self) -> torch.Tensor:
        """Return log-probabilities of the next pick, shape [B, G, K]; -inf for picked ones."""
        scores = self._selector._score(self._looks, self._encoded)
        return scores.masked_fill(self._is_picked, -torch.inf).log_softmax(-1)

    def pick(self, picks: torch.Tensor) -> None:
        """Append one candidate to each list, shape [B, G]."""
        self._is_picked = self._is_picked.scatter(-1, picks.unsqueeze(-1), True)
        self._looks = self._selector._look_on(self._looks, self._encoded, picks)

    def keep(self, places: torch.Tensor) -> None:
        """Go on with these lists, which may stand there several times, shape [B, kept]."""
        self._is_picked = _take(self._is_picked, places)
        if self._looks.shape[1] > 1:
            self._looks = _take(self._looks, places)


def _take(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return some rows of each of B matrices, [B, N, n] and [B, kept] to [B, kept, n]."""
    return values.gather(1, places.unsqueeze(-1).expand(-1, -1, values.shape[-1]))


def _make_near_identity(size: int) -> nn.Linear:
    layer = nn.Linear(size, size, bias=False)
    with torch.no_grad():
        layer.weight.mul_(0.01).add_(torch.eye(size))
    return layer


def _check_shots(pools: torch.Tensor, num_shots: int) -> int:
    num_items = pools.shape[1]
    if not 1 <= num_shots <= num_items:
        raise ModelError(
            "the selector can't pick so many demonstrations",
            got=f"{num_shots} shots from a pool of {num_items}",
            expected=f"1 to {num_items}",
        )
    return num_items
