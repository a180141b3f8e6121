import re

import pytest
from peft import IA3Config, LoraConfig, get_peft_model

from groupwise.core import ConfigError, ModelError, load_config
from groupwise.models import (
    LoraSettings,
    TrainableSettings,
    count_blocks,
    format_trainable,
    list_trainable,
    load_policy,
    prepare_trainable,
    restore_trainable,
    tabulate_trainable,
)


@pytest.fixture
def model(vision_folder):
    return load_policy(vision_folder).model


def count_by_part(model):
    return {row.part: row.num_trainable for row in tabulate_trainable(model) if row.num_trainable}


@pytest.mark.parametrize(("last_blocks", "touched"), [(1, {2}), (2, {1, 2}), (None, {0, 1, 2})])
def test_lora_is_on_the_last_language_blocks_only(model, last_blocks, touched):
    trained = prepare_trainable(
        model, TrainableSettings(lora=LoraSettings(last_blocks=last_blocks))
    )
    names = list_trainable(trained)
    assert {
        int(re.search(r"language_model\.layers\.(\d+)\.", n).group(1)) for n in names
    } == touched
    assert not [name for name in names if "visual" in name or "lora_" not in name]
    # Seven linear layers in each block, two factors for each.
    assert len(names) == 7 * 2 * len(touched)
    assert not [n for n, _ in trained.named_parameters() if "visual" in n and "lora" in n]


@pytest.mark.parametrize("freeze_vision", [True, False])
@pytest.mark.parametrize("freeze_aligner", [True, False])
def test_vision_and_aligner_freeze_on_their_own(model, freeze_vision, freeze_aligner):
    settings = TrainableSettings(
        method="full", freeze_vision=freeze_vision, freeze_aligner=freeze_aligner
    )
    parts = set(count_by_part(prepare_trainable(model, settings)))
    assert ("vision" in parts) is not freeze_vision
    assert ("aligner" in parts) is not freeze_aligner
    blocks = {f"language block {number}" for number in range(3)}
    assert parts - {"vision", "aligner"} == blocks | {"embeddings and head"}


def test_nothing_to_train_is_refused(model):
    settings = TrainableSettings(lora=LoraSettings(modules=("no_such_layer",)))
    with pytest.raises(ModelError, match=r"no parameter is trainable.*no_such_layer"):
        prepare_trainable(model, settings)


def test_too_many_blocks_are_refused(model):
    assert count_blocks(model) == 3
    with pytest.raises(ConfigError, match=r"last_blocks is too large; got 4; expected <= 3"):
        prepare_trainable(model, TrainableSettings(lora=LoraSettings(last_blocks=4)))


@pytest.mark.parametrize("values", [{"rank": 0}, {"last_blocks": 0}, {"alpha": 0}])
def test_empty_adapters_are_refused(values):
    with pytest.raises(ConfigError):
        load_config(LoraSettings, values)


@pytest.mark.parametrize("method", ["full", "lora"])
def test_totals_of_the_table_are_the_models(model, method):
    trained = prepare_trainable(model, TrainableSettings(method=method))
    rows = tabulate_trainable(trained)
    trainable = sum(p.numel() for p in trained.parameters() if p.requires_grad)
    frozen = sum(p.numel() for p in trained.parameters() if not p.requires_grad)
    assert sum(row.num_trainable for row in rows) == trainable > 0
    assert sum(row.num_frozen for row in rows) == frozen > 0
    total = format_trainable(rows).splitlines()[-1].split()
    assert total == ["total", f"{trainable:,}", f"{frozen:,}"]


@pytest.mark.parametrize(
    ("last", "parts"),
    [
        (1, ["language blocks 0 to 1, each", "language block 2"]),
        (None, ["language blocks 0 to 2, each"]),
    ],
)
def test_blocks_that_are_alike_are_one_line(model, last, parts):
    settings = TrainableSettings(lora=LoraSettings(last_blocks=last))
    lines = format_trainable(tabulate_trainable(prepare_trainable(model, settings))).splitlines()
    assert [line[:32].rstrip() for line in lines if line.startswith("language")] == parts


def adapt(model, folder, **lora):
    trained = prepare_trainable(model, TrainableSettings(lora=LoraSettings(**lora)))
    trained.save_pretrained(folder)
    return load_policy(folder).model


def test_an_adapter_is_continued_in_the_blocks_asked_for(model, tmp_path):
    loaded = adapt(model, tmp_path, rank=4)
    assert list_trainable(loaded) == set()
    trained = prepare_trainable(loaded, TrainableSettings(lora=LoraSettings(rank=4, last_blocks=1)))
    assert trained is loaded
    names = list_trainable(trained)
    assert len(names) == 14
    assert all("layers.2." in name and ".default." in name for name in names)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (TrainableSettings(lora=LoraSettings(rank=8)), "not those of the adapter"),
        (TrainableSettings(lora=LoraSettings(rank=4)), "not on all of the blocks"),
        (TrainableSettings(method="full"), "cannot be trained in full"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(model, tmp_path, settings, message):
    loaded = adapt(model, tmp_path, rank=4, last_blocks=1)
    with pytest.raises(ConfigError, match=message):
        prepare_trainable(loaded, settings)


@pytest.mark.parametrize(
    ("config", "name", "got"),
    [
        (IA3Config(target_modules=["q_proj"], feedforward_modules=[]), "default", "default: IA3"),
        (LoraConfig(target_modules=["q_proj"]), "mine", "mine: LORA"),
    ],
)
def test_an_adapter_of_another_kind_or_name_is_refused(model, config, name, got):
    adapted = get_peft_model(model, config, adapter_name=name)
    with pytest.raises(ConfigError, match=f"one LoRA adapter.*got {got}.*expected default: LORA"):
        prepare_trainable(adapted, TrainableSettings())


def test_restoring_makes_exactly_the_named_ones_train(model):
    prepare_trainable(model, TrainableSettings(method="full"))
    names = list_trainable(model)
    model.requires_grad_(True)
    restore_trainable(model, names)
    assert list_trainable(model) == names
