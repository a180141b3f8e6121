"""vLLM is given the seeds of rows; how many processes ask and in which order plays no part."""

from types import SimpleNamespace

import pytest

from groupwise.training.fast.draws import draw_from_seeds, number_completions

ROWS = [{"sampling_seed": seed} for seed in (100, 100, 200, 200)]


def make_trainer(engine, *, mode="colocate"):
    generation = SimpleNamespace(mode=mode, tensor_parallel_size=1, llm=engine, vllm_client=engine)
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
