"""Photos described in batches against one by one, and the memory of 5 000 of them.

    python benchmarks/stage_a.py --json results.json
    python benchmarks/stage_a.py --policy FOLDER --photos FOLDER --batch-sizes 16 32

Without a policy a tiny one is taught to describe drawn photos in a line of some tens of tokens.
Every way gets the same photos, the ways take turns, and their texts are compared under greedy
decoding.
"One by one" is the engine with one photo a call, as a plain loop over photos does it.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

from groupwise.core import (
    Completion,
    Example,
    Message,
    describe_machine,
    make_example,
    read_picture,
    write_json,
)
from groupwise.inference.local import LocalModel
from groupwise.inference.local_stream import LocalStream
from groupwise.inference.model import Sampling
from groupwise.inference.settings import StreamSettings
from groupwise.inference.stream import Group, generate_groups
from groupwise.models.policy import Policy, load_policy
from groupwise.models.tiny import write_tiny_policy
from groupwise.models.trainable import TrainableSettings
from groupwise.training.checkpoints import Workspace
from groupwise.training.settings import SftRow, SftSettings
from groupwise.training.sft import train_sft

SIZES = ((1024, 768), (768, 1024), (640, 480), (800, 600), (480, 640))
COLOURS = {"红": (210, 40, 40), "绿": (40, 160, 60), "蓝": (50, 70, 210), "灰": (130, 130, 130)}
PROMPT = "请描述这张照片，只写一行：对象描述×数量。"
_MIB = 2**20


def draw_photos(folder: Path, count: int) -> list[tuple[Path, str]]:
    """Write photos of mixed sizes; return each with its description."""
    photos: list[tuple[Path, str]] = []
    for number in range(count):
        size = SIZES[number % len(SIZES)]
        picture = Image.new("RGB", size, (90 + number % 60, 100, 110))
        pen = ImageDraw.Draw(picture)
        chosen = list(
            itertools.islice(itertools.cycle(COLOURS.items()), number, number + 2 + number % 5)
        )
        for place, (_, colour) in enumerate(chosen):
            left = size[0] * place // 6
            pen.rectangle((left, size[1] // 4, left + size[0] // 8, 3 * size[1] // 4), fill=colour)
        path = folder / f"{number:04d}.jpg"
        picture.save(path, quality=90)
        photos.append((path, "，".join(f"{name}色机柜/竖直安装/门已关闭×1" for name, _ in chosen)))
    return photos


def make_photo_example(path: Path) -> Example:
    """Return the question about a photo."""
    return make_example([Message("user", PROMPT)], cluster=path.stem, pictures=[read_picture(path)])


def make_groups(paths: list[Path], num_photos: int) -> Iterator[Group]:
    """Yield groups of 1 to 7 photos, made when they are taken."""
    number, source = 0, itertools.islice(itertools.cycle(paths), num_photos)
    while chosen := list(itertools.islice(source, 1 + number % 7)):
        yield str(number), [make_photo_example(path) for path in chosen]
        number += 1


def teach(photos: list[tuple[Path, str]], work: Path) -> Policy:
    """Return a tiny policy that describes photos like these."""
    base = write_tiny_policy("tiny-qwen2.5-vl", work / "base", texts=[text for _, text in photos])
    rows = [SftRow(make_photo_example(path), text) for path, text in photos]
    settings = SftSettings(
        epochs=8,
        batch_size=8,
        learning_rate=2e-3,
        trainable=TrainableSettings(method="full", freeze_vision=False, freeze_aligner=False),
    )
    return train_sft(
        load_policy(base), lambda _: rows, settings, workspace=Workspace(work / "sft", 0)
    )


def describe_one_by_one(policy: Policy, groups: list[Group], sampling: Sampling) -> list[Any]:
    """Return the completions of a plain loop."""
    engine = LocalModel(policy, batch_size=1)
    examples = [example for _, examples in groups for example in examples]
    return [engine.generate([example], sampling=sampling)[0][0] for example in examples]


def describe_in_batches(
    policy: Policy, groups: list[Group], sampling: Sampling, batch_size: int
) -> list[Any]:
    """Return the completions of the stream."""
    settings = StreamSettings(batch_size=batch_size)
    backend = LocalStream(LocalModel(policy))
    outcomes = generate_groups(backend, groups, sampling=sampling, settings=settings)
    return [completion for _, completions in outcomes for completion in completions]


def compare(policy: Policy, groups: list[Group], arguments: argparse.Namespace) -> dict[str, Any]:
    """Time every way in turns; return seconds, ratios, and whether the texts are the same."""
    sampling = Sampling(max_new_tokens=arguments.new_tokens, repetition_penalty=arguments.penalty)
    ways: dict[str, Callable[[], list[Any]]] = {
        "one by one": lambda: describe_one_by_one(policy, groups, sampling)
    }
    for size in arguments.batch_sizes:
        ways[f"batches of {size}"] = lambda size=size: describe_in_batches(
            policy, groups, sampling, size
        )
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, list[Completion]] = {}
    for name in [*ways] * arguments.num_rounds:
        start = time.perf_counter()
        found[name] = ways[name]()
        seconds[name].append(time.perf_counter() - start)
    alone = found["one by one"]
    lengths = [len(completion.token_ids) for completion in alone]
    print(f"{len(alone)} photos, {min(lengths)} to {max(lengths)} tokens each")
    return {"num_photos": len(alone), "num_tokens": sum(lengths)} | {
        name: summarise(seconds[name], seconds["one by one"], found[name] == alone) for name in ways
    }


def summarise(seconds: list[float], alone: list[float], is_same: bool) -> dict[str, Any]:
    """Return the median time and the median of the ratios of the rounds."""
    ratios = [one / other for one, other in zip(alone, seconds, strict=True)]
    return {
        "median_s": round(statistics.median(seconds), 3),
        "ratio": round(statistics.median(ratios), 2),
        "ratios": [round(ratio, 2) for ratio in ratios],
        "same_texts": is_same,
    }


def read_status(name: str) -> int:
    """Return a value of this process in MiB, such as VmRSS (now) or VmHWM (at most)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 // _MIB
    raise SystemExit(f"/proc/self/status has no {name}")


def watch_memory(policy: Policy, paths: list[Path], num_photos: int) -> list[dict[str, Any]]:
    """Describe many photos and return the resident memory after every 1 000."""
    rows: list[dict[str, Any]] = []
    settings = StreamSettings(batch_size=32)
    outcomes = generate_groups(
        LocalStream(LocalModel(policy)),
        make_groups(paths, num_photos),
        sampling=Sampling(max_new_tokens=4),
        settings=settings,
    )
    num_done = 0
    for _, completions in outcomes:
        before, num_done = num_done, num_done + len(completions)
        if before // 1000 != num_done // 1000 or before == 0:
            rows.append({"num_photos": num_done, "resident_mib": read_status("VmRSS")})
            print(f"{num_done:6} photos: {rows[-1]['resident_mib']} MiB resident")
    return rows


def watch_huge(policy: Policy, folder: Path) -> list[dict[str, Any]]:
    """Describe photos of 60 megapixels; return by how much each raises the memory at most."""
    rows: list[dict[str, Any]] = []
    for name in ("huge.jpg", "huge.png"):
        Image.new("RGB", (9000, 6700), (90, 120, 60)).save(folder / name, compress_level=1)
        group = name, [make_photo_example(folder / name)]
        for settings in (StreamSettings(), StreamSettings(max_pixels=None)):
            Path("/proc/self/clear_refs").write_text("5")
            before = read_status("VmRSS")
            backend = LocalStream(LocalModel(policy))
            sampling = Sampling(max_new_tokens=2)
            list(generate_groups(backend, [group], sampling=sampling, settings=settings))
            rose = read_status("VmHWM") - before
            rows.append({"photo": name, "max_pixels": settings.max_pixels, "rose_by_mib": rose})
            print(f"{name}, limit {settings.max_pixels} pixels: at most {rose} MiB more")
    return rows


def main() -> None:
    """Measure, print, write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--policy", help="a vision-language model folder; taught here if left out")
    parser.add_argument("--photos", type=Path, help="a folder of photos; drawn if left out")
    parser.add_argument("--num-photos", type=int, default=128)
    parser.add_argument("--num-rounds", type=int, default=3)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[16, 32])
    parser.add_argument("--new-tokens", type=int, default=64)
    parser.add_argument("--penalty", type=float, default=1.0)
    parser.add_argument("--memory-photos", type=int, default=5000)
    parser.add_argument("--num-threads", type=int, default=2, help="of torch")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.num_threads)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        drawn = draw_photos(work, 64)
        policy = load_policy(arguments.policy) if arguments.policy else teach(drawn, work)
        found = sorted(arguments.photos.rglob("*.jpg")) if arguments.photos else None
        paths = found or [path for path, _ in drawn]
        result = compare(policy, list(make_groups(paths, arguments.num_photos)), arguments)
        print(json.dumps(result, indent=2))
        result["memory"] = watch_memory(policy, paths, arguments.memory_photos)
        result["huge"] = watch_huge(policy, work)
    if arguments.json:
        write_json(arguments.json, {"machine": describe_machine(), **result})


if __name__ == "__main__":
    main()
