"""How many copies of real screenshots are found as near duplicates, by what was done to them.

    python benchmarks/near_duplicates.py --json results.json

Of the screenagent set (``GROUPWISE_DATA``), 80 pictures are copied in several ways and looked for
among all of its pictures; beside it stands how many of the 80 look like a picture of another
session as they are, which no copying explains: the same empty desktop, the same page.
"""

import argparse
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image, ImageEnhance, ImageOps

from groupwise.core import describe_machine, open_picture, write_json
from groupwise.data.near import Sight, find_near_duplicates
from groupwise_recipes.on_task.screenshots import load_screenshots

NUM_COPIES = 80
Copy = Callable[[Image.Image, random.Random], Image.Image]


def recolour(picture: Image.Image, rng: random.Random) -> Image.Image:
    """Change brightness and contrast by up to 30 % and colour by up to 50 %."""
    for enhancer, strength in (
        (ImageEnhance.Brightness, 0.3),
        (ImageEnhance.Contrast, 0.3),
        (ImageEnhance.Color, 0.5),
    ):
        picture = enhancer(picture).enhance(rng.uniform(1 - strength, 1 + strength))
    return picture


def crop(picture: Image.Image, rng: random.Random, share: float = 0.05) -> Image.Image:
    """Take away a share of width and height, from both sides as it comes."""
    width, height = picture.size
    left, top = rng.uniform(0, share * width), rng.uniform(0, share * height)
    size = ((1 - share) * width, (1 - share) * height)
    return picture.crop(tuple(round(x) for x in (left, top, left + size[0], top + size[1])))


COPIES: dict[str, Copy] = {
    "scaled to 60 %, JPEG": lambda one, _: one.resize((one.width * 3 // 5, one.height * 3 // 5)),
    "recoloured": recolour,
    "cropped by 5 %": crop,
    "cropped by 5 %, recoloured": lambda one, rng: recolour(crop(one, rng), rng),
    "cropped by 10 %, recoloured": lambda one, rng: recolour(crop(one, rng, 0.1), rng),
    "mirrored": lambda one, _: ImageOps.mirror(one),
    "mirrored, cropped by 5 %, recoloured": lambda one, rng: recolour(
        crop(ImageOps.mirror(one), rng), rng
    ),
}


def count_found(sights: Sequence[Sight], chosen: Sequence[int], copy: Copy, folder: Path) -> int:
    """Return how many copies are found, as copies of a picture of the session they come from."""
    rng = random.Random(0)
    copies: list[Sight] = []
    for place in chosen:
        path = folder / f"{place}.jpg"
        copy(open_picture(sights[place].path), rng).save(path, quality=85)
        copies.append(Sight(path, f"copy {place}"))
    found = find_near_duplicates(copies, sights, mirrored=True)
    return len({near.index for near in found})


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    root = Path(os.environ.get("GROUPWISE_DATA", "../shared/data")) / "screenagent"
    screens = {one.picture.digest: one for one in load_screenshots(root).screens}
    sights = [Sight(one.picture.path, one.session) for one in screens.values()]
    chosen = random.Random(0).sample(range(len(sights)), NUM_COPIES)
    rows: dict[str, int] = {}
    start_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for kind, copy in COPIES.items():
            rows[kind] = count_found(sights, chosen, copy, Path(folder))
            print(f"{kind:40s} {rows[kind]:3d} of {NUM_COPIES}")
    resembling = find_near_duplicates([sights[place] for place in chosen], sights, mirrored=True)
    mirrored = sum(near.is_mirrored for near in resembling)
    print(f"{'like a picture of another session':40s} {len(resembling):3d} of {NUM_COPIES}")
    if given.json:
        result = {
            "num_pictures": len(sights),
            "num_copies": NUM_COPIES,
            "found": rows,
            "like_another_session": len(resembling),
            "of_these_mirrored": mirrored,
            "duration_s": round(time.monotonic() - start_s, 1),
            "machine": describe_machine(),
        }
        write_json(given.json, result)


if __name__ == "__main__":
    main()
