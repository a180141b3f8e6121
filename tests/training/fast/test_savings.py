"""What is computed once: counted in tokens and pictures, in a round whose shapes were compared."""

from collections import Counter

import pytest
import torch

from groupwise.training.settings import SpeedSettings

SIZES = [[(16, 16)], [(24, 16)]]


@pytest.fixture
def count_round(grpo, pairs, monkeypatch):
    """Return how many tokens blocks and the last MLP saw, and pictures, in the second round."""

    def count(speed, *, trained="last", beta=0.1, **options):
        stepped = pairs.make("qwen2_5_vl", trained, speed=speed, beta=beta, **options)
        rows = grpo.make_rows(3, sizes=SIZES)
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


ON = SpeedSettings(shared_prefix="on")


def without(**off):
    return SpeedSettings(shared_prefix="on", **off)


def test_pictures_and_patches_once_a_round(count_round):
    """Two pictures of 16 and 24 patches, whatever the group."""
    fast, parent = count_round(ON), count_round(None)
    assert fast["patches"] == 16 + 24
    assert parent["patches"] == 3 * 3 * (16 + 24)
    assert fast["pictures"] == 2
    assert parent["pictures"] == 2 * 6


def test_the_trunk_is_what_sampling_computed(count_round):
    """Blocks below the adapter see the prompts once and every sampled token once."""
    fast, kept = count_round(ON), count_round(without(trunk_cache=False))
    assert fast[0] == fast[1] < fast[2] == fast[3]
    assert kept[0] == kept[2] == fast[2]
    assert not fast[1, "gradient"]
    assert not kept[1, "gradient"]
    assert fast[2, "gradient"] == fast[3, "gradient"] > 0
    assert count_round(None)[1] > 2 * kept[1]


def test_prompts_are_read_once_in_sampling(count_round):
    one, other = (count_round(without(prefill_once=once, trunk_cache=False)) for once in (1, 0))
    assert one[0] < other[0]


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


def test_the_last_block_reads_no_more_than_keys_of_prompts(count_round):
    counts = count_round(ON, beta=0.0)
    assert counts["last mlp", "gradient"] == counts["completions"] < counts["real"]
