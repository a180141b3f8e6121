"""The pointer selector: its size, and that its lists have the probabilities that it says."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from groupwise.core import ModelError
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.settings import SelectorSettings

SMALL = {"feature_size": 12, "hidden_size": 8, "dropout": 0.0}
GATES = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])


def make_selector(gate, **changes):
    """Return a small selector far from its first weights, where a gate matters."""
    selector = PointerSelector(SelectorSettings(**SMALL, history_gate=gate, **changes)).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in selector.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(0.3 * noise)
        if gate:
            selector.gate.bias.zero_()
    return selector.eval()


def draw_features(num_queries, num_items, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (num_queries, 12), (num_queries, num_items, 12)
    drawn = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return tuple(torch.nn.functional.normalize(value, dim=-1) for value in drawn)


def list_all(num_items, num_shots):
    """Return all ordered lists, shape [lists, S]."""
    return torch.tensor(list(itertools.permutations(range(num_items), num_shots)))


def test_it_has_as_many_parameters_as_published():
    selector = PointerSelector(SelectorSettings())
    assert selector.set_trainable(freeze_backbone=False) == 525_824
    assert selector.set_trainable(freeze_backbone=True) == 263_680
    frozen = {name for name, p in selector.named_parameters() if not p.requires_grad}
    assert frozen == {"project.weight", "project_query.weight", "project_item.weight"}
    gated = PointerSelector(SelectorSettings(history_gate=True, num_layers=2))
    assert gated.set_trainable(freeze_backbone=False) == 525_824 + 263_680 + 2 * 256 * 256 + 256


def test_new_weights_follow_from_the_seed_and_projections_begin_near_identity():
    before = torch.get_rng_state()
    weights = [PointerSelector(SelectorSettings(), seed=s).state_dict() for s in (3, 3, 4)]
    assert before.equal(torch.get_rng_state())
    assert all(value.equal(weights[1][name]) for name, value in weights[0].items())
    assert not weights[0]["project.weight"].equal(weights[2]["project.weight"])
    for name in ("project_query.weight", "project_item.weight"):
        gap = weights[0][name] - torch.eye(256)
        assert 0 < gap.abs().max() < 0.01


@GATES
@pytest.mark.parametrize("num_shots", [1, 2, 3, 4])
def test_probabilities_of_all_ordered_lists_sum_to_1(gate, num_shots):
    selector, (queries, pools) = make_selector(gate), draw_features(3, 5)
    lists = list_all(5, num_shots)
    found = selector.log_probs(queries, pools, lists.expand(3, -1, -1))
    assert found.shape == (3, len(lists))
    torch.testing.assert_close(found.exp().sum(1), torch.ones(3, dtype=torch.float64))
    assert bool(found.isfinite().all())


def test_a_gate_lets_what_was_picked_change_the_rest():
    """Without one the order of the others' odds stays; here it is about three candidates."""
    odds = {}
    queries, pools = draw_features(1, 4)
    lists = torch.tensor([[[2, 0], [2, 1], [3, 0], [3, 1]]])
    for gate in (False, True):
        found = make_selector(gate).log_probs(queries, pools, lists)[0].detach()
        odds[gate] = float(found[0] - found[1]), float(found[2] - found[3])
    assert odds[False][0] == pytest.approx(odds[False][1])
    assert abs(odds[True][0] - odds[True][1]) > 0.1


@GATES
@given(order=st.permutations(range(6)), seed=st.integers(0, 99))
def test_the_order_of_the_pool_does_not_matter(gate, order, seed):
    selector, (queries, pools) = make_selector(gate), draw_features(2, 6, seed)
    places = torch.tensor(order)
    chosen = selector.choose(queries, pools[:, places], num_shots=3)
    assert places[chosen].equal(selector.choose(queries, pools, num_shots=3))


@GATES
def test_a_batch_is_what_its_queries_are_one_by_one(gate):
    selector, (queries, pools) = make_selector(gate), draw_features(4, 6)
    lists = list_all(6, 2)[torch.randperm(30)[:20]].view(4, 5, 2)
    together = selector.log_probs(queries, pools, lists)
    for row in range(4):
        one = slice(row, row + 1)
        alone = selector.log_probs(queries[one], pools[one], lists[one])
        torch.testing.assert_close(together[one], alone)
        for place in range(5):
            single = selector.log_probs(queries[one], pools[one], lists[one, place : place + 1])
            torch.testing.assert_close(single, alone[:, place : place + 1])
        chosen = selector.choose(queries, pools, num_shots=3)[one]
        assert chosen.equal(selector.choose(queries[one], pools[one], num_shots=3))


@GATES
@pytest.mark.parametrize("num_shots", [1, 2, 3, 4])
def test_a_wide_search_finds_every_list_best_first(gate, num_shots):
    selector, (queries, pools) = make_selector(gate), draw_features(2, 4)
    lists, found = selector.search(queries, pools, num_shots=num_shots, num_beams=1000)
    every = list_all(4, num_shots)
    assert lists.shape == (2, len(every), num_shots)
    for row in lists.tolist():
        assert sorted(map(tuple, row)) == sorted(map(tuple, every.tolist()))
    torch.testing.assert_close(found, selector.log_probs(queries, pools, lists))
    assert bool((found.diff(dim=1) <= 0).all())


@GATES
def test_one_beam_is_the_greedy_choice(gate):
    selector, (queries, pools) = make_selector(gate), draw_features(5, 6)
    chosen = selector.choose(queries, pools, num_shots=4)
    assert chosen[:, 0].equal(selector.score(queries, pools).argmax(1))
    for step in range(1, 4):
        longer = [
            torch.cat([chosen[:, :step], torch.full((5, 1), item)], dim=1) for item in range(6)
        ]
        found = selector.log_probs(queries, pools, torch.stack(longer, dim=1))
        is_new = ~(chosen[:, None, :step] == torch.arange(6)[None, :, None]).any(-1)
        best = found.masked_fill(~is_new, -torch.inf).argmax(1)
        assert chosen[:, step].equal(best)


@GATES
@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_samples_have_the_probabilities_of_their_temperature(gate, temperature):
    """Temperature 1: those of log_probs. Above: of each pick's powers, so flatter."""
    selector, (queries, pools) = make_selector(gate), draw_features(1, 3)
    drawn = selector.sample(
        queries,
        pools,
        num_shots=2,
        num_lists=20_000,
        temperature=temperature,
        generator=torch.Generator().manual_seed(0),
    )[0]
    every = list_all(3, 2)
    shares = (drawn.unsqueeze(1) == every).all(-1).double().mean(0)
    first = selector.log_probs(queries, pools, torch.arange(3).view(1, 3, 1))[0]
    both = selector.log_probs(queries, pools, every.unsqueeze(0))[0]
    second = (both - first[every[:, 0]]).view(3, 2)
    expected = (first / temperature).softmax(0).unsqueeze(1) * (second / temperature).softmax(1)
    torch.testing.assert_close(shares, expected.flatten(), atol=0.015, rtol=0)


def test_too_many_shots_are_refused():
    selector, (queries, pools) = make_selector(gate=False), draw_features(1, 3)
    for pick in (selector.choose, selector.sample):
        with pytest.raises(ModelError, match="got 4 shots from a pool of 3; expected 1 to 3"):
            pick(queries, pools, num_shots=4)


def test_scores_are_cosines_over_the_temperature():
    queries, pools = draw_features(3, 6)
    warm = make_selector(gate=False).score(queries, pools)
    torch.testing.assert_close(
        make_selector(False, temperature=0.2).score(queries, pools), warm / 2
    )
    assert 1 < warm.abs().max() <= 10


def test_it_is_the_same_after_saving(tmp_path):
    selector = PointerSelector(SelectorSettings(**SMALL | {"history_gate": True}), seed=5)
    selector.save(tmp_path / "one" / "selector.safetensors")
    loaded = PointerSelector.load(tmp_path / "one" / "selector.safetensors")
    assert loaded.settings == selector.settings
    assert not loaded.training
    assert all(v.equal(loaded.state_dict()[n]) for n, v in selector.state_dict().items())
    (tmp_path / "none.safetensors").write_bytes(b"words")
    with pytest.raises(ModelError, match="is not a selector"):
        PointerSelector.load(tmp_path / "none.safetensors")
