"""What a training step leaves behind."""

import json

import torch

from groupwise.models import (
    LoraSettings,
    Policy,
    TrainableSettings,
    format_trainable,
    keep_policy,
    load_policy,
    prepare_trainable,
    tabulate_trainable,
)


def test_a_policy_is_kept_with_the_table_of_what_trained(text_folder, tmp_path, capfd):
    base = load_policy(text_folder)
    model = prepare_trainable(base.model, TrainableSettings(lora=LoraSettings(last_blocks=2)))
    policy = Policy(model.eval(), base.processor, base.has_vision)
    with torch.no_grad():
        next(p for name, p in model.named_parameters() if "lora_B" in name).fill_(0.5)
    keep_policy(policy, tmp_path)
    printed = capfd.readouterr()
    assert printed.out + printed.err == ""
    loaded = load_policy(tmp_path / "policy").model.state_dict()
    assert all(loaded[name].equal(value) for name, value in model.state_dict().items())
    rows = tabulate_trainable(model)
    assert json.loads((tmp_path / "trainable.json").read_text()) == [vars(row) for row in rows]
    trained = {row.part for row in rows if row.num_trainable}
    assert trained == {"language block 1", "language block 2"}
    assert (tmp_path / "trainable.txt").read_text() == format_trainable(rows) + "\n"
