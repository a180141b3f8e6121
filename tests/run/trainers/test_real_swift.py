"""The real ms-swift reads the rows, the launch arguments and the reward."""

import json
import os
from pathlib import Path

import pytest
from foreign_rewards import run_beside
from handed_over import open_own_rewards, read_asked, read_words, score_all

from groupwise.run.export import export_for_trainer
from groupwise.run.predict import open_run

TEXTS = ["on-task", "off-task", "Screen: a. Task: b. off-task", "what"]

DRIVER = """
import argparse, json, os, sys
from pathlib import Path
plugin = Path(sys.argv[1])
os.chdir(plugin.parent)
import torch
import swift
from swift.arguments import RLHFArguments
from swift.dataset import load_dataset
from swift.rewards import orms
from swift.rl_core.data import GRPOSample
from swift.rl_core.grpo_algorithm import compute_rewards_per_func
from swift.utils import import_external_file
from transformers import HfArgumentParser

told = json.loads((plugin.parent / "told.json").read_text())
parser = HfArgumentParser(RLHFArguments)
# Not the parser's own method, which would look the model up.
given, left = argparse.ArgumentParser.parse_known_args(parser, told["words"])
import_external_file(given.external_plugins[0])
orm = orms[given.reward_funcs[0]](args=None)
usual = {"strict": given.strict, "remove_unused_columns": False, "load_from_cache_file": False}
train, _ = load_dataset(given.dataset, **usual)
later, _ = load_dataset(given.val_dataset, **usual)

def answer(row, text):
    turns = [*row["messages"], {"role": "assistant", "content": text}]
    return GRPOSample.from_row({**row, "messages": turns})

samples = [answer(row, text) for row in train for text in told["texts"]]
values = compute_rewards_per_func(samples, [orm], [None], torch.device("cpu"))
print("RESULT" + json.dumps({
    "version": swift.__version__,
    "left": left,
    "numbers": [len(train), len(later)],
    "turns": [row["messages"] for row in train],
    "pictures": [os.path.exists(one["path"]) for row in train for one in row["images"]],
    "scores": [None if v != v else v for v in values[:, 0].tolist()],
    "arguments": [given.num_generations, given.learning_rate, given.max_completion_length,
                  given.beta, given.save_steps],
}))
"""


@pytest.mark.slow
def test_swift_reads_rows_arguments_and_reward(judged_run: Path, tmp_path: Path) -> None:
    packages = os.environ.get("GROUPWISE_MS_SWIFT")
    if not packages:
        pytest.skip(
            "needs ms-swift: pip install --target FOLDER ms-swift, then GROUPWISE_MS_SWIFT=FOLDER"
        )
    out = tmp_path / "out"
    run = open_run(judged_run)
    done = export_for_trainer(run, out, "swift")
    words = read_words(out / "launch.sh", "swift", tmp_path / "bin", MODEL="some/base")
    (out / "told.json").write_text(json.dumps({"words": words[1:], "texts": TEXTS}))
    found = run_beside(packages, DRIVER, out / "plugin.py")
    asked = read_asked(judged_run)
    assert found["left"] == []
    assert found["numbers"] == [len(asked), done.num_rows["validation"]]
    texts = ["<image>" + example.prompt[0].text for example in asked]
    assert [one[0]["content"] for one in found["turns"]] == texts
    assert found["pictures"] == [True] * len(asked)
    own = open_own_rewards(judged_run, tmp_path / "own")
    assert found["scores"] == pytest.approx(score_all(own, asked, TEXTS), abs=1e-6)  # float32
    grpo = run.config.grpo
    assert found["arguments"] == [
        grpo.group_size,
        grpo.learning_rate,
        grpo.max_new_tokens,
        grpo.beta,
        grpo.save_every_steps or 50,
    ]


DRIVER_REAL_VERL = """
import json, os, sys
from pathlib import Path
plugin = Path(sys.argv[1])
os.chdir(plugin.parent)
import hydra
import numpy as np
import torch
import verl
from verl import DataProto
from verl.trainer.ppo.reward import load_reward_manager
from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

told = json.loads((plugin.parent / "told.json").read_text())
folder = str(Path(verl.__file__).parent / "trainer" / "config")
with hydra.initialize_config_dir(folder, version_base=None):
    config = hydra.compose("ppo_trainer", overrides=told["words"])

class Letters:
    def decode(self, ids, skip_special_tokens=True):
        return "".join(map(chr, ids.tolist()))

processor = object()
rows = RLHFDataset(config.data.train_files, None, config.data, processor=processor)
later = RLHFDataset(config.data.val_files, None, config.data, processor=processor)
seen = [rows[n] for n in range(len(rows))]
turns = [row["raw_prompt"] for row in seen]
manager = load_reward_manager(config, Letters())
width = max(map(len, told["texts"]))

def wrap(row, text):
    ids = torch.tensor([list(map(ord, text.ljust(width, "~")))])
    mask = torch.tensor([[1] * 3 + [1] * len(text) + [0] * (width - len(text))])
    kept = ("data_source", "reward_model", "extra_info")
    others = {k: v for k, v in collate_fn([row]).items() if k in kept}
    tensors = {"prompts": torch.ones(1, 3), "responses": ids, "attention_mask": mask}
    return DataProto.from_dict(tensors=tensors, non_tensors=others)

async def score_all():
    return [await manager.run_single(wrap(row, text)) for row in seen for text in told["texts"]]

scored = manager.loop.run_until_complete(score_all())

import asyncio
from importlib.util import find_spec
from unittest.mock import MagicMock
if find_spec("torchvision") is None:  # has no CPU build everywhere; of pictures it reads none
    for name in ("torchvision", "torchvision.io", "torchvision.transforms"):
        sys.modules[name] = MagicMock()
pictures = asyncio.run(RLHFDataset.process_multi_modal_info(turns[0], 14, config.data))[0]
actor, rollout = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout
print("RESULT" + json.dumps({
    "version": verl.__version__,
    "numbers": [len(rows), len(later)],
    "turns": [[[t["role"], [[p["type"], p.get("text")] for p in t["content"]]] for t in one]
              for one in turns],
    "size": list(pictures[0].size),
    "scores": [one["reward_score"] for one in scored],
    "invalid": [one["reward_extra_info"]["invalid"] for one in scored],
    "config": [rollout.n, actor.optim.lr, config.data.train_batch_size, rollout.response_length,
               rollout.prompt_length, config.trainer.save_freq, config.algorithm.adv_estimator],
}))
"""


@pytest.mark.slow
def test_verl_reads_rows_arguments_and_reward(judged_run: Path, tmp_path: Path) -> None:
    packages = os.environ.get("GROUPWISE_VERL")
    if not packages:
        pytest.skip("needs verl: pip install --target FOLDER verl, then GROUPWISE_VERL=FOLDER")
    out = tmp_path / "out"
    run = open_run(judged_run)
    export_for_trainer(run, out, "verl")
    words = read_words(out / "launch.sh", "python3", tmp_path / "bin", MODEL="some/base")
    (out / "told.json").write_text(json.dumps({"words": words[2:], "texts": TEXTS}))
    found = run_beside(packages, DRIVER_REAL_VERL, out / "plugin.py")
    asked = read_asked(judged_run)
    assert found["numbers"][0] == len(asked)
    assert found["turns"] == [
        [["user", [["image", None], ["text", example.prompt[0].text]]]] for example in asked
    ]
    width, height = found["size"]
    assert width * height <= run.config.model.max_pixels
    own = open_own_rewards(judged_run, tmp_path / "own")
    assert found["scores"] == score_all(own, asked, TEXTS)
    assert found["invalid"] == [float(text == "what") for _ in asked for text in TEXTS]
    grpo = run.config.grpo
    assert found["config"] == [
        grpo.group_size,
        grpo.learning_rate,
        grpo.prompts_per_step,
        grpo.max_new_tokens,
        run.config.data.budget.max_prompt_tokens,
        grpo.save_every_steps or 50,
        "grpo",
    ]
