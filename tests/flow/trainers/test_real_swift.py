"""The real ms-swift reads the rows, the launch arguments and the reward."""

import json
import os
from pathlib import Path

import pytest
from foreign_rewards import run_beside
from handed_over import open_own_rewards, read_asked, read_words, score_all

from groupwise.flow import export_for_trainer, open_run

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
