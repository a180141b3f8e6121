"""Completions are those of ``generate`` on repeated prompts, token for token."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rerun_passes import RerunPasses

from groupwise.training.fast import sampling
from groupwise.training.fast.decoding import recorded_decoding
from groupwise.training.fast.pictures import Pictures
from groupwise.training.fast.sampling import collate_prompts, cut_after_end
from groupwise.training.settings import SpeedSettings

GREEDY = {"generation_kwargs": {"do_sample": False}}
TWO_PICTURES = [[(16, 24), (32, 16)], [(24, 24), (8, 16)]]
FAMILIES = ["qwen2", "qwen2_5_vl", "qwen3_vl"]
OTHERS = [pytest.param(family, marks=pytest.mark.slow) for family in ("qwen3", "llama")]


@pytest.fixture
def sample_both(grpo, pairs, keep_order):
    """Take updates with both trainers; return completions of every round, checked to be equal."""

    def run(family, trained="sft", *, rows=None, ends=(), stale=None, num_updates=2, **options):
        is_scored = options.pop("is_scored", True)
        if rows is None:
            sizes = TWO_PICTURES if family.endswith("vl") else None
            rows = grpo.make_rows(3, lengths=(1, 12), sizes=sizes)
        speed = options.pop("speed", SpeedSettings(shared_prefix="on"))
        both = []
        for levers in (None, speed):
            model = pairs.policies.build(family, trained)
            if ends:
                model.generation_config.eos_token_id = list(ends)
            if stale is not None:
                model.model.rope_deltas = stale
            both.append(pairs.make(family, trained, model=model, speed=levers, **options))
        parent, fast = both
        for seed in range(num_updates):
            one, other = (stepped.update(rows, seed=seed) for stepped in both)
            assert parent.batches[-1]["completion_ids"].equal(fast.batches[-1]["completion_ids"])
            assert parent.batches[-1]["completion_mask"].equal(fast.batches[-1]["completion_mask"])
            if not is_scored:
                continue
            # The states of sampling are where later passes start.
            assert grpo.measure_log_probs(one, other) < 1e-5
            assert grpo.measure_difference(one.gradients, other.gradients) < 1e-4
        return [batch["completion_ids"] for batch in fast.batches], fast.batches

    return run


@pytest.mark.parametrize("beta", [pytest.param(0.0, marks=pytest.mark.slow), 0.1])
@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_sampled_with_the_same_seed(sample_both, family, beta):
    completions, _ = sample_both(family, beta=beta)
    assert len(completions[0].unique(dim=0)) > 2
    assert not completions[0].equal(completions[1])


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl"])
def test_sampled_with_pictures_among_words(sample_both, grpo, family):
    rows = grpo.mix(grpo.make_rows(3, lengths=(1, 12), sizes=TWO_PICTURES))
    completions, _ = sample_both(family, rows=rows, beta=0.1)
    assert len(completions[0].unique(dim=0)) > 2


@pytest.mark.parametrize(
    "family",
    ["qwen2", *(pytest.param(one, marks=pytest.mark.slow) for one in FAMILIES[1:]), *OTHERS],
)
def test_greedy(sample_both, family):
    """Equal completions have no gradient to compare."""
    completions, _ = sample_both(family, is_scored=False, **GREEDY)
    assert len(completions[0].unique(dim=0)) == 2


@pytest.mark.parametrize(
    "trained",
    [
        *("all", "fresh"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("full", "top", "everything")),
    ],
)
def test_whatever_trains(sample_both, trained):
    sample_both("qwen2_5_vl", trained, beta=0.1)


@pytest.mark.parametrize(
    "options",
    [
        {"pad_to_multiple_of": 32},
        {"temperature": 0.3, "top_k": 5},
        {"gradient_checkpointing": True},
        {"repetition_penalty": 1.5},
        {"generation_kwargs": {"min_new_tokens": 6}},
    ],
)
def test_options(sample_both, options):
    sample_both("qwen2", **options)


@pytest.mark.parametrize("off", ["trunk_cache", "vision_once", "prefill_once"])
@pytest.mark.parametrize("family", ["qwen2_5_vl", pytest.param("qwen3_vl", marks=pytest.mark.slow)])
def test_a_lever_off(sample_both, family, off):
    sample_both(family, speed=SpeedSettings(shared_prefix="on", **{off: False}), beta=0.1)


RECORDED = ["qwen2", "qwen2_5_vl"]
OTHERS_RECORDED = [
    *("qwen3_vl", "gemma3", "mistral_windows", "glm4"),
    *("gemma3_vl", "smolvlm", "internvl", "llava"),
]


@pytest.mark.parametrize(
    "family", [*RECORDED, *(pytest.param(one, marks=pytest.mark.slow) for one in OTHERS_RECORDED)]
)
def test_decoding_recorded(sample_both, grpo, family, monkeypatch):
    """As on a GPU, with a stand-in for the graph; what it replays has room for every token."""
    recorders = []

    def record(model, *, collected):
        recorders.append(RerunPasses(model, collected))
        return recorded_decoding(model, collected=collected, record=recorders[-1])

    monkeypatch.setattr(sampling, "can_record", lambda *_: True)
    monkeypatch.setattr(sampling, "recorded_decoding", record)
    sizes = TWO_PICTURES if family in ("qwen2_5_vl", "qwen3_vl") else None
    rows = grpo.make_rows(3, lengths=(1, 12), sizes=sizes)
    speed = SpeedSettings(shared_prefix="on", decoding_graph=True)
    sample_both(family, rows=rows, speed=speed, beta=0.1, max_completion_length=20)
    assert recorders[0].num_replays > 10
    assert recorders[0].collected


@pytest.mark.parametrize("once", [True, False])
def test_features_are_kept_only_where_later_passes_use_them(grpo, pairs, once):
    speed = SpeedSettings(shared_prefix="on", vision_once=once)
    stepped = pairs.make("qwen2_5_vl", speed=speed)
    stepped.update(grpo.make_rows(3, sizes=TWO_PICTURES))
    assert bool(stepped.trainer._round.pictures) == once


def test_every_end_token_ends_a_completion(sample_both):
    _, batches = sample_both("qwen2", ends=range(0, 600, 3), num_updates=3, temperature=3.0)
    lengths = torch.cat([batch["completion_mask"].sum(1) for batch in batches])
    assert lengths.min() < 4
    assert len(lengths.unique()) > 2


@pytest.mark.parametrize("lengths", [(1, 30, 8), (4,)])
def test_ragged_prompts(sample_both, grpo, lengths):
    rows = grpo.make_rows(6 // len(lengths), lengths=lengths)
    sample_both("llama", rows=rows, num_generations=6 // len(lengths), beta=0.1)


@pytest.mark.parametrize("num_rows", [5, 12])
def test_text_alone_after_pictures(sample_both, grpo, num_rows):
    """What a vision-language model keeps of its last call is of other rows."""
    rows = grpo.make_rows(3, lengths=(1, 12))
    stale = torch.full((num_rows, 1), 7)
    sample_both("qwen2_5_vl", rows=rows, stale=stale, num_updates=1)


@pytest.mark.parametrize("prompts", [("a", "a longer prompt"), ("a", "b")])
def test_prompts_of_one_token(sample_both, prompts):
    rows = [{"prompt": prompt} for prompt in prompts for _ in range(3)]
    sample_both("qwen2", rows=rows, speed=SpeedSettings())


@given(st.lists(st.lists(st.integers(0, 5), min_size=4, max_size=4), min_size=1))
def test_cut_after_the_first_end_token(rows):
    for row, cut in zip(rows, cut_after_end(torch.tensor(rows), (0, 3)), strict=True):
        assert row[: len(cut)] == cut
        assert not {0, 3} & set(cut[:-1])
        assert len(cut) == 4 or cut[-1] in (0, 3)


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=5), min_size=1))
def test_prompts_are_padded_on_the_left(prompts):
    types = [[token % 2 for token in prompt] for prompt in prompts]
    pictures = Pictures.of({"pixel_values": torch.zeros(len(prompts), 1)}, [1] * len(prompts))
    rows = collate_prompts(
        prompts,
        {"token_type_ids": types},
        pictures=pictures,
        padding_id=0,
        device=torch.device("cpu"),
    )
    width = max(map(len, prompts))
    for prompt, kinds, ids, mask, found in zip(
        prompts, types, rows.ids, rows.mask, rows.token_types["token_type_ids"], strict=True
    ):
        missing = [0] * (width - len(prompt))
        assert ids.tolist() == missing + prompt
        assert mask.tolist() == missing + [1] * len(prompt)
        assert found.tolist() == missing + kinds


def test_prompts_without_pictures_have_no_token_types():
    """TRL's passes have none of them either."""
    fields = {"token_type_ids": [[0, 0]]}
    rows = collate_prompts(
        [[1, 2]], fields, pictures=None, padding_id=0, device=torch.device("cpu")
    )
    assert not rows.token_types
