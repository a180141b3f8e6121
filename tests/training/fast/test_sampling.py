"""Completions are those of ``generate`` on repeated prompts, drawn from their seeds."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from rerun_passes import RerunPasses

from groupwise.training.fast import sampling
from groupwise.training.fast.decoding import recorded_decoding
from groupwise.training.fast.draws import draw_from_seeds, number_completions
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


@pytest.mark.parametrize("family", ["qwen2_5_vl", pytest.param("qwen3_vl", marks=pytest.mark.slow)])
def test_prompts_read_for_every_completion(sample_both, family):
    sample_both(family, speed=SpeedSettings(shared_prefix="on", prefill_once=False), beta=0.1)


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


ROWS = [{"sampling_seed": seed} for seed in (100, 100, 200, 200)]


def make_trainer(engine, *, mode="colocate"):
    generation = SimpleNamespace(mode=mode, llm=engine, vllm_client=engine)
    return SimpleNamespace(
        use_vllm=True,
        vllm_generation=generation,
        num_generations=2,
        accelerator=SimpleNamespace(process_index=0, is_main_process=True),
    )


class Engine:
    """Keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def generate(self, prompts, **named):
        self.asked.append((prompts, named))
        size = named.get("n", 1)
        words = [f"{prompt}{number}" for prompt in prompts for number in range(size)]
        return {"prompt_ids": prompts, "completion_ids": words, "logprob_token_ids": None}


def test_a_group_that_spans_two_processes_goes_on_counting():
    one = number_completions([7, 7, 7, 8], first=0, group_size=3)
    other = number_completions([8, 8, 9, 9], first=4, group_size=3)
    assert one == [(7, 0), (7, 1), (7, 2), (8, 0)]
    assert other == [(8, 1), (8, 2), (9, 0), (9, 1)]


def test_colocated_each_row_has_a_seed_of_its_own():
    engine, given = Engine(), SimpleNamespace(temperature=0.5, seed=None)
    with draw_from_seeds(make_trainer(engine), ROWS):
        engine.generate("aabb", sampling_params=given, use_tqdm=False)
    [(prompts, named)] = engine.asked
    assert (prompts, named["use_tqdm"]) == ("aabb", False)
    found = named["sampling_params"]
    assert [(one.temperature, one.seed) for one in found] == [
        (0.5, seed) for seed in (100, 101, 200, 201)
    ]
    assert given.seed is None
    assert "generate" not in vars(engine)


@pytest.mark.parametrize("features", [None, ["x", "y"]])
def test_a_server_is_asked_for_each_prompt_with_its_seed(features):
    engine = Engine()
    with draw_from_seeds(make_trainer(engine, mode="server"), ROWS):
        found = engine.generate(
            prompts=["a", "b"], features=features, n=2, generation_kwargs={"min_p": 0.1}
        )
    assert found == {
        "prompt_ids": ["a", "b"],
        "completion_ids": ["a0", "a1", "b0", "b1"],
        "logprob_token_ids": None,
    }
    asked = sorted(engine.asked, key=lambda pair: pair[0])
    for place, (prompts, named) in enumerate(asked):
        assert prompts == ["ab"[place]]
        assert named["features"] == (features and [features[place]])
        assert named["generation_kwargs"] == {"min_p": 0.1, "seed": (100, 200)[place]}


def test_rows_without_a_seed_are_left_to_trl():
    engine = Engine()
    with draw_from_seeds(make_trainer(engine), [{"prompt": "a"}]):
        engine.generate("a", sampling_params="as they are")
    assert engine.asked == [("a", {"sampling_params": "as they are"})]


ON = SpeedSettings(shared_prefix="on")
HALVES = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 1}
_TIMED = re.compile("runtime|per_second|time$")
OTHER_PROMPTS = ("this is 8", "或 a task that is this task", "is", "8 8 8 8", "a", "this task")


@pytest.fixture
def evaluate(grpo):
    """Return what an evaluation on other prompts than the training's logs."""

    def run(stepped, *, seed=0):
        prompts = [[{"role": "user", "content": text}] for text in OTHER_PROMPTS]
        torch.manual_seed(seed)
        stepped.trainer.evaluate(Dataset.from_dict({"prompt": prompts}))
        stepped.trainer.model.train()
        logs = stepped.trainer.state.log_history[-1]
        return {name: value for name, value in logs.items() if not _TIMED.search(name)}

    return run


@pytest.mark.parametrize("num_generations", [pytest.param(1, marks=pytest.mark.slow), 3])
@pytest.mark.parametrize("family", ["qwen2", "qwen2_5_vl"])
def test_other_prompts_than_the_trainings(grpo, pairs, evaluate, family, num_generations):
    """Nothing is learned, so the policy stays the reference; rounds are cut in two by it."""
    both = pairs.make_both(
        family,
        beta=0.1,
        learning_rate=0.0,
        steps_per_generation=2,
        num_iterations=2,
        per_device_eval_batch_size=6,
        num_generations_eval=num_generations,
        **HALVES,
    )
    rows = grpo.make_rows(3, family=family)
    for stepped in both:
        stepped.update(rows)
    parent, fast = (evaluate(stepped) for stepped in both)
    assert parent["eval_kl"] == pytest.approx(0, abs=1e-6)
    assert fast == pytest.approx(parent, abs=1e-5, nan_ok=True)


def test_training_goes_on_as_without_it(grpo, pairs, evaluate, keep_order):
    """Inside a round and between rounds; the completions of later rounds are sampled anew."""
    both = pairs.make_both(
        "qwen2", "sft", beta=0.1, steps_per_generation=2, per_device_eval_batch_size=6, **HALVES
    )
    rows = grpo.make_rows(3)
    for seed in range(4):
        parent, fast = (stepped.update(rows, seed=seed) for stepped in both)
        assert grpo.measure_log_probs(parent, fast) < 1e-5
        parent, fast = (evaluate(stepped, seed=seed) for stepped in both)
        assert fast == pytest.approx(parent, abs=1e-5)
    parent, fast = both
    assert grpo.measure_difference(parent.list_weights(), fast.list_weights()) < 1e-4
    assert fast.num_shared > 4


def test_a_round_stays_as_it_is(grpo, pairs, evaluate):
    stepped = pairs.make(
        speed=ON, steps_per_generation=2, beta=0.1, per_device_eval_batch_size=6, **HALVES
    )
    rows = grpo.make_rows(3)
    stepped.update(rows)
    kept, shared = stepped.trainer._round, stepped.num_shared
    evaluate(stepped)
    assert stepped.trainer._round is kept
    assert stepped.num_shared == shared
    stepped.update(rows)
    assert stepped.num_shared == shared + 1


@pytest.fixture
def count_round(grpo, pairs, monkeypatch):
    """Return how many tokens blocks and the last MLP saw, and pictures, in the second round."""

    def count(speed, *, trained="last", beta=0.1, **options):
        stepped = pairs.make("qwen2_5_vl", trained, speed=speed, beta=beta, **options)
        rows = grpo.make_rows(3, family="qwen2_5_vl")
        stepped.update(rows)
        base = stepped.trainer.model.get_base_model()
        counts = Counter()

        def watch(name):
            def see(_, given):
                tokens = sum(states.shape[:-1].numel() for states in given)
                counts[name] += tokens
                if torch.is_grad_enabled():
                    counts[name, "gradient"] += tokens

            return see

        for number, block in enumerate(base.model.language_model.layers):
            block.register_forward_pre_hook(watch(number))
        base.model.language_model.layers[-1].mlp.register_forward_pre_hook(watch("last mlp"))
        base.model.visual.blocks[0].register_forward_pre_hook(watch("patches"))
        kind = type(stepped.trainer.processing_class.image_processor)
        own = kind.__call__
        monkeypatch.setattr(
            kind,
            "__call__",
            lambda self, images, *given, **named: (
                counts.update(pictures=len(images)) or own(self, images, *given, **named)
            ),
        )
        stepped.update(rows, seed=1)
        monkeypatch.undo()
        counts["real"] = grpo.count_real_tokens(stepped.batches[-1], group_size=3)
        counts["completions"] = int(stepped.batches[-1]["completion_mask"].sum())
        return counts

    return count


def without(**off):
    return SpeedSettings(shared_prefix="on", **off)


def test_pictures_prompts_and_sampled_tokens_are_computed_once_a_round(count_round):
    """Two pictures of 16 and 24 patches, whatever the group."""
    fast, parent = count_round(ON), count_round(None)
    assert (fast["patches"], parent["patches"]) == (16 + 24, 3 * 3 * (16 + 24))
    assert (fast["pictures"], parent["pictures"]) == (2, 2 * 6)
    # The trunk is what sampling computed: below the adapter each token is seen once.
    assert fast[0] == fast[1] < fast[2] == fast[3]
    assert not fast[1, "gradient"]
    assert fast[2, "gradient"] == fast[3, "gradient"] > 0
    assert parent[1] > 2 * fast[1]
    assert fast[0] < count_round(without(prefill_once=False))[0]


def test_iterations_start_at_the_trunk(count_round):
    """In the second update of a round only the trained blocks run."""
    counts = count_round(ON, num_iterations=2)
    assert (counts[0], counts["patches"]) == (0, 0)
    assert counts[2] == counts[2, "gradient"] > 0


@pytest.mark.parametrize("trained", [pytest.param("all", marks=pytest.mark.slow), "last"])
def test_sampled_tokens_are_scored_once_per_pass(count_round, trained):
    """A prompt once for its group, and no padding."""
    counts = count_round(ON, trained=trained, beta=0.0)
    parent = count_round(None, trained=trained, beta=0.0)
    assert counts[3, "gradient"] == counts["real"] < parent[3, "gradient"] / 2
    # The last block reads no more than the keys of prompts.
    assert counts["last mlp", "gradient"] == counts["completions"] < counts["real"]
