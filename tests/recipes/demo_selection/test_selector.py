"""The selector of demo_selection: its pools, features and choices."""

import itertools
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from demonstrations import (
    NUM_TRAIN,
    POOL_SIZE,
    QUERIES,
    TRAIN,
    make_asked,
    make_selector,
    make_table,
)
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tables import read_tables
from torch.nn.functional import normalize
from transformers import AutoTokenizer

from groupwise.core import ConfigError, DataError, ModelError, TrainingError, read_picture
from groupwise_drawn.dialects import DIALECTS, read_dialects, write_dialects
from groupwise_recipes.demo_selection.choosing import (
    BASELINES,
    PooledQueries,
    choose_by_baseline,
    choose_by_selector,
    reverse_lists,
)
from groupwise_recipes.demo_selection.features import ClipFeatures, FeatureTable, join_features
from groupwise_recipes.demo_selection.pools import draw_pools
from groupwise_recipes.demo_selection.selector import PointerSelector
from groupwise_recipes.demo_selection.settings import SelectorSettings
from groupwise_recipes.demo_selection.tiny_clip import write_tiny_clip

TABLES = read_tables(__file__)
SMALL = {"feature_size": 12, "hidden_size": 8, "dropout": 0.0}
GATES = pytest.mark.parametrize("gate", [False, True], ids=["plain", "gate"])


def make_far_selector(gate, **changes):
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


def test_it_has_as_many_parameters_as_published_and_new_weights_follow_from_the_seed():
    selector = PointerSelector(SelectorSettings())
    assert selector.set_trainable(freeze_backbone=False) == 525_824
    assert selector.set_trainable(freeze_backbone=True) == 263_680
    frozen = {name for name, p in selector.named_parameters() if not p.requires_grad}
    assert frozen == {"project.weight", "project_query.weight", "project_item.weight"}
    gated = PointerSelector(SelectorSettings(history_gate=True, num_layers=2))
    assert gated.set_trainable(freeze_backbone=False) == 525_824 + 263_680 + 2 * 256 * 256 + 256
    before = torch.get_rng_state()
    weights = [PointerSelector(SelectorSettings(), seed=s).state_dict() for s in (3, 3, 4)]
    assert before.equal(torch.get_rng_state())
    assert all(value.equal(weights[1][name]) for name, value in weights[0].items())
    assert not weights[0]["project.weight"].equal(weights[2]["project.weight"])
    for name in ("project_query.weight", "project_item.weight"):
        gap = weights[0][name] - torch.eye(256)
        assert 0 < gap.abs().max() < 0.01, "projections begin near identity"


@GATES
@pytest.mark.parametrize("num_shots", [1, 2, 3, 4])
def test_probabilities_of_all_ordered_lists_sum_to_1(gate, num_shots):
    selector, (queries, pools) = make_far_selector(gate), draw_features(3, 5)
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
        found = make_far_selector(gate).log_probs(queries, pools, lists)[0].detach()
        odds[gate] = float(found[0] - found[1]), float(found[2] - found[3])
    assert odds[False][0] == pytest.approx(odds[False][1])
    assert abs(odds[True][0] - odds[True][1]) > 0.1


@GATES
@given(order=st.permutations(range(6)), seed=st.integers(0, 99))
def test_the_order_of_the_pool_does_not_matter(gate, order, seed):
    selector, (queries, pools) = make_far_selector(gate), draw_features(2, 6, seed)
    places = torch.tensor(order)
    chosen = selector.choose(queries, pools[:, places], num_shots=3)
    assert places[chosen].equal(selector.choose(queries, pools, num_shots=3))


@GATES
def test_a_batch_is_what_its_queries_are_one_by_one(gate):
    selector, (queries, pools) = make_far_selector(gate), draw_features(4, 6)
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
    selector, (queries, pools) = make_far_selector(gate), draw_features(2, 4)
    lists, found = selector.search(queries, pools, num_shots=num_shots, num_beams=1000)
    every = list_all(4, num_shots)
    assert lists.shape == (2, len(every), num_shots)
    for row in lists.tolist():
        assert sorted(map(tuple, row)) == sorted(map(tuple, every.tolist()))
    torch.testing.assert_close(found, selector.log_probs(queries, pools, lists))
    assert bool((found.diff(dim=1) <= 0).all())


@GATES
def test_one_beam_is_the_greedy_choice(gate):
    selector, (queries, pools) = make_far_selector(gate), draw_features(5, 6)
    chosen = selector.choose(queries, pools, num_shots=4)
    assert chosen[:, 0].equal(selector.score(queries, pools).argmax(1))
    for step in range(1, 4):
        longer = [torch.cat([chosen[:, :step], torch.full((5, 1), i)], dim=1) for i in range(6)]
        found = selector.log_probs(queries, pools, torch.stack(longer, dim=1))
        is_new = ~(chosen[:, None, :step] == torch.arange(6)[None, :, None]).any(-1)
        best = found.masked_fill(~is_new, -torch.inf).argmax(1)
        assert chosen[:, step].equal(best)


@GATES
@pytest.mark.parametrize("temperature", [1.0, 1.3])
def test_samples_have_the_probabilities_of_their_temperature(gate, temperature):
    """Temperature 1: those of log_probs. Above: of each pick's powers, so flatter."""
    selector, (queries, pools) = make_far_selector(gate), draw_features(1, 3)
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


def test_scores_are_cosines_over_a_tenth_and_too_many_shots_are_refused():
    queries, pools = draw_features(3, 6)
    selector = make_far_selector(gate=False)
    assert 1 < selector.score(queries, pools).abs().max() <= 10
    for pick in (selector.choose, selector.sample):
        with pytest.raises(ModelError, match="got 7 shots from a pool of 6; expected 1 to 6"):
            pick(queries, pools, num_shots=7)


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


ASKED = make_asked()
FROM_POOLS = [name for name in BASELINES if name not in ("none", "knn_few_shot")]


@given(st.sampled_from(FROM_POOLS), st.integers(1, POOL_SIZE), st.integers(0, 3))
def test_lists_have_different_candidates_of_the_pool(baseline, num_shots, seed):
    lists = choose_by_baseline(baseline, ASKED, num_shots=num_shots, seed=seed)
    for query, chosen in zip(ASKED.queries, lists, strict=True):
        assert len(set(chosen)) == len(chosen) == num_shots
        assert set(chosen) <= set(ASKED.name_pool(query.id))
    fewer = choose_by_baseline(baseline, ASKED, num_shots=1, seed=seed)
    assert [one[:1] for one in lists] == fewer


@pytest.mark.parametrize(
    ("baseline", "vectors"),
    [("nearest_text", "texts"), ("nearest_picture", "pictures"), ("nearest_both", "joined")],
)
def test_the_nearest_of_the_pool_come_first(baseline, vectors):
    lists = choose_by_baseline(baseline, ASKED, num_shots=3)
    ours, theirs = getattr(ASKED.features, vectors), getattr(ASKED.train, vectors)
    for row, (query, chosen) in enumerate(zip(ASKED.queries, lists, strict=True)):
        places = ASKED.pools.members[query.id]
        ordered = sorted(places, key=lambda place: -float(ours[row] @ theirs[place]))
        assert chosen == tuple(ASKED.train.ids[place] for place in ordered[:3])


def test_mmices_takes_texts_among_the_nearest_pictures():
    lists = choose_by_baseline("mmices", ASKED, num_shots=2, num_near=3)
    near = choose_by_baseline("nearest_picture", ASKED, num_shots=3)
    by_text = choose_by_baseline("nearest_text", ASKED, num_shots=POOL_SIZE)
    for chosen, allowed, ordered in zip(lists, near, by_text, strict=True):
        assert chosen == tuple(one for one in ordered if one in allowed)[:2]


def test_knn_few_shot_gives_what_dspy_does_and_never_shows_the_query_itself():
    lists = choose_by_baseline("knn_few_shot", ASKED, num_shots=4)
    for row, chosen in enumerate(lists):
        scores = np.dot(ASKED.train.texts.numpy(), ASKED.features.texts[row].numpy())
        assert chosen == tuple(ASKED.train.ids[place] for place in scores.argsort()[-4:][::-1])
    assert not all(
        set(chosen) <= set(ASKED.name_pool(query.id))
        for query, chosen in zip(ASKED.queries, lists, strict=True)
    )
    train = make_table(TRAIN, seed=1)
    pools = draw_pools(train, train, sampler="random", size=4)
    asked = PooledQueries(tuple(TRAIN), train, train, pools)
    lists = choose_by_baseline("knn_few_shot", asked, num_shots=NUM_TRAIN - 1)
    for query, chosen in zip(TRAIN, lists, strict=True):
        assert set(chosen) == {one.id for one in TRAIN} - {query.id}


def test_random_lists_follow_from_the_seed_and_the_query():
    chosen = choose_by_baseline("random", ASKED, num_shots=4, seed=1)
    assert chosen == choose_by_baseline("random", ASKED, num_shots=4, seed=1)
    assert chosen != choose_by_baseline("random", ASKED, num_shots=4, seed=2)
    positions = [
        tuple(map(ASKED.name_pool(query.id).index, one))
        for query, one in zip(ASKED.queries, chosen, strict=True)
    ]
    assert len(set(positions)) > 1
    assert choose_by_baseline("none", ASKED, num_shots=4) == [()] * len(QUERIES)


def test_a_selector_chooses_what_it_scores_highest():
    selector = make_selector().train()
    lists = choose_by_selector(selector, ASKED, num_shots=3)
    pools = ASKED.train.joined[ASKED.members]
    order = selector.score(ASKED.features.joined, pools).argsort(-1, descending=True)
    assert lists == ASKED.name_lists(order[:, :3])
    assert reverse_lists(lists) == [one[::-1] for one in lists] != lists


def test_more_shots_than_candidates_and_parts_that_do_not_belong_together_are_refused():
    for baseline, limit in (
        *((name, 8) for name in ("random", "nearest_both", "mmices")),
        ("knn_few_shot", 23),
    ):
        with pytest.raises(ConfigError, match=f"got {limit + 1}; expected from 1 to {limit}"):
            choose_by_baseline(baseline, ASKED, num_shots=limit + 1)
    with pytest.raises(ConfigError, match="expected from 1 to 3"):
        choose_by_baseline("mmices", ASKED, num_shots=4, num_near=3)
    with pytest.raises(DataError, match="another order"):
        replace(ASKED, queries=ASKED.queries[::-1])
    members = dict(list(ASKED.pools.members.items())[1:])
    with pytest.raises(DataError, match="1 queries have no pool"):
        replace(ASKED, pools=replace(ASKED.pools, members=members))
    assert torch.equal(ASKED.members[0], torch.tensor(ASKED.pools.members[QUERIES[0].id]))


@pytest.fixture(scope="module")
def items(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    return read_dialects(write_dialects(folder, seed=1, sizes={"train": 40}))


@pytest.fixture(scope="module")
def clip(items, tmp_path_factory):
    captioned = [(item.picture, item.scene.caption) for item in items]
    folder = tmp_path_factory.mktemp("clip")
    questions = [item.question for item in items]
    return write_tiny_clip(folder, captioned, texts=questions, num_steps=40, batch_size=16)


def test_embeddings_have_length_one_and_do_not_depend_on_the_others(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path / "a")
    pictures = [item.picture for item in items]
    texts = [item.question for item in items]
    for embedded in (features.embed_pictures(pictures), features.embed_texts(texts)):
        assert embedded.shape == (40, 512)
        assert torch.allclose(embedded.norm(dim=-1), torch.ones(40), atol=1e-5)
    alone = ClipFeatures(clip, cache=tmp_path / "b")
    assert torch.allclose(
        alone.embed_pictures(pictures[:1]), features.embed_pictures(pictures)[:1], atol=1e-5
    )
    assert torch.allclose(alone.embed_texts(texts[:1]), features.embed_texts(texts)[:1], atol=1e-5)


def test_what_was_embedded_is_read_from_disk_and_known_by_its_content(clip, items, tmp_path):
    first = ClipFeatures(clip, cache=tmp_path).embed_pictures([items[0].picture])
    moved = tmp_path / "moved.png"
    shutil.copy(items[0].picture.path, moved)
    gone = replace(read_picture(moved), path=tmp_path / "gone.png")
    assert ClipFeatures(clip, cache=tmp_path).embed_pictures([gone]).equal(first)
    Image.new("RGB", (128, 128)).save(moved)
    other = ClipFeatures(clip, cache=tmp_path).embed_pictures([read_picture(moved)])
    assert not other.allclose(first)


def test_captions_find_their_pictures(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path)
    pictures = features.embed_pictures([item.picture for item in items])
    captions = features.embed_texts([item.scene.caption for item in items])
    ranks = (captions @ pictures.mT).argsort(dim=-1, descending=True).tolist()
    mean_rank = sum(row.index(place) for place, row in enumerate(ranks)) / 40
    assert mean_rank < 8  # 19.5 by chance


def test_words_that_stand_in_no_caption_are_learned_whole_and_every_one_counts(clip, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(clip)
    assert tokenizer.tokenize("Reply in Kelo") == ["Reply", "Ġin", "ĠKelo"]
    features = ClipFeatures(clip, cache=tmp_path)
    questions = [f"{words} {name}" for words in ("Reply in", "Say it in") for name in DIALECTS]
    embedded = features.embed_texts(questions)
    apart = torch.cdist(embedded, embedded) + torch.eye(len(questions))
    assert apart.min() > 0.05


def test_a_table_knows_what_it_was_made_of_and_joins_what_has_length_one(clip, items, tmp_path):
    features = ClipFeatures(clip, cache=tmp_path)
    triples = [(item.id, item.picture, item.question) for item in items]
    table = features.tabulate(triples)
    assert table.ids == tuple(item.id for item in items)
    assert table.joined.equal(join_features(table.pictures, table.texts))
    assert features.tabulate(triples).digest == table.digest
    assert features.tabulate(triples[1:]).digest != table.digest
    with pytest.raises(DataError, match="two items have the same id"):
        features.tabulate(triples[:1] * 2)
    pictures, texts = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert join_features(pictures, texts).allclose(torch.tensor([[0.5**0.5, 0.5**0.5]]))


def test_no_clip_model_and_too_few_captions_are_refused(items, tmp_path):
    with pytest.raises(ModelError, match="cannot load the CLIP model"):
        ClipFeatures(tmp_path, cache=tmp_path)
    with pytest.raises(TrainingError, match="too few captioned pictures for a batch; got 1"):
        write_tiny_clip(tmp_path, [(items[0].picture, "red")])


SAMPLERS = ("random", "text", "picture", "mixed")


def draw_table(num_items, *, seed=0, name="item"):
    drawn = torch.randn(2, num_items, 6, generator=torch.Generator().manual_seed(seed))
    pictures, texts = normalize(drawn, dim=-1)
    ids = tuple(f"{name}-{number}" for number in range(num_items))
    return FeatureTable(ids, pictures, texts, f"digest of {seed}")


@given(st.sampled_from(SAMPLERS), st.integers(2, 20), st.integers(0, 5), st.data())
def test_a_pool_has_different_items_and_never_the_query(sampler, num_items, seed, data):
    train = draw_table(num_items, seed=seed)
    size = data.draw(st.integers(1, num_items - 1))
    pools = draw_pools(train, train, sampler=sampler, size=size, seed=seed)
    for place, query in enumerate(train.ids):
        members = pools.members[query]
        assert len(set(members)) == size
        assert set(members) <= set(range(num_items)) - {place}


@given(st.sampled_from(SAMPLERS), st.integers(0, 5))
def test_the_pool_of_a_query_does_not_depend_on_the_other_queries(sampler, seed):
    train, queries = (
        draw_table(12, seed=seed),
        draw_table(5, seed=seed + 50, name="query"),
    )
    whole = draw_pools(queries, train, sampler=sampler, size=4, seed=seed)
    one = FeatureTable(queries.ids[2:3], queries.pictures[2:3], queries.texts[2:3], "")
    alone = draw_pools(one, train, sampler=sampler, size=4, seed=seed)
    assert (alone.members["query-2"], alone.digest) == (whole.members["query-2"], whole.digest)


def test_similar_items_come_by_what_the_sampler_looks_at_and_equal_ones_in_order():
    train, queries = draw_table(9), draw_table(3, seed=1, name="query")
    texts, pictures = queries.texts @ train.texts.mT, queries.pictures @ train.pictures.mT
    scores = {"text": texts, "picture": pictures, "mixed": queries.joined @ train.joined.mT}
    for sampler, expected in scores.items():
        drawn = draw_pools(queries, train, sampler=sampler, size=4).members
        best = expected.topk(4).indices.tolist()
        assert [drawn[one] for one in queries.ids] == [tuple(row) for row in best]
    same = replace(train, texts=train.texts[:1].expand(9, -1))
    assert draw_pools(same, same, sampler="text", size=3).members["item-1"] == (0, 2, 3)


def test_the_digest_tells_pools_apart_that_are_drawn_otherwise():
    train = draw_table(9)
    digests = [draw_pools(train, train, sampler=one, size=3).digest for one in SAMPLERS]
    changed = [
        draw_pools(train, train, sampler="random", size=3, seed=1),
        draw_pools(train, train, sampler="random", size=4),
        draw_pools(train, draw_table(9, seed=2), sampler="text", size=3),
    ]
    digests += [pools.digest for pools in changed]
    assert len(set(digests)) == len(digests)
    seeded = [draw_pools(train, train, sampler="text", size=3, seed=seed) for seed in (0, 1)]
    assert seeded[0] == seeded[1]


@pytest.mark.parametrize(("named", "expected"), TABLES["a_pool_that_cannot_be_drawn_is_refused"])
def test_a_pool_that_cannot_be_drawn_is_refused(named, expected):
    train = draw_table(9)
    with pytest.raises(ConfigError, match=expected):
        draw_pools(train, train, **named)
