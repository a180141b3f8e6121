"""Near duplicates among pictures: copies that were scaled, recoloured, cropped or mirrored.

Clusters that hold them, or the same file, belong together: apart, one tells of the other.
Thumbnails name a few candidates for each picture; then the two are laid over each other and
compared block by block. What agrees in most of its structure is a near duplicate: one photo saved
twice, but also two screens that differ in a clock. Turned pictures are not looked for.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from groupwise.core import DataError, convert_picture, digest_file, open_lazily
from groupwise.data.splits import KEEPING_ORDER

T = TypeVar("T")
Array = NDArray[Any]

_cv2: Any = cv2  # its own types do not know all of it

MIN_AGREEMENT = 0.75
"""Share of the blocks with structure that must look alike."""
MAX_JOINED_SHARE = 0.05
"""Share of the pictures that clusters that were joined may have."""

# Thumbnails: sides in pixels of what is kept and of what is compared, and the crops that are tried.
_KEPT_SIDE, _SIDE = 64, 16
_CROPS = (1.0, 0.95, 0.9)
_CORNERS = [
    ((1 - scale) * x * _KEPT_SIDE, (1 - scale) * y * _KEPT_SIDE, scale * _KEPT_SIDE)
    for scale in _CROPS
    for x in ((0.0, 0.5, 1.0) if scale < 1 else (0.0,))
    for y in ((0.0, 0.5, 1.0) if scale < 1 else (0.0,))
]
_BOXES = [(left, top, left + side, top + side) for left, top, side in _CORNERS]
_NUM_CANDIDATES, _MIN_LIKENESS, _SAME_LIKENESS = 4, 0.7, 0.995
_ROWS_AT_ONCE = 256
# Laying over: pixels of the longer side, features, matches that make a position certain, and the
# share of a picture that its copy must still show.
_LONG_SIDE, _NUM_FEATURES, _MIN_MATCHES, _MIN_COVER = 384, 400, 12, 0.6
# Blocks: pixels per side, the contrast that counts as structure, the correlation that is alike.
_BLOCK, _MIN_CONTRAST, _MIN_CORRELATION = 16, 2.5, 0.75
_NUM_PICTURES_KEPT = 1000


@dataclass(frozen=True, slots=True)
class Sight:
    """A picture file and what it belongs to; pictures of one cluster may well look alike."""

    path: Path
    cluster: str


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """A picture and one that it looks like, each by its place."""

    index: int
    other: int
    agreement: float  # share of the blocks with structure that look alike, in [0, 1]
    is_mirrored: bool = False  # whether it is the mirror image that looks like the other


def find_near_duplicates(
    sights: Sequence[Sight], others: Sequence[Sight], *, mirrored: bool = False
) -> list[NearDuplicate]:
    """Return each picture that looks like one of another cluster, with the first one found."""
    gallery = Gallery()
    gallery.add(others if sights else ())
    return gallery.find(sights, mirrored=mirrored)


class Gallery:
    """Pictures to look among; thumbnails of what was added before are not made again."""

    def __init__(self) -> None:
        self._sights: list[Sight] = []
        self._crops = np.empty((len(_BOXES), 0, _SIDE**2), np.float32)
        self._load = lru_cache(_NUM_PICTURES_KEPT)(_load_features)

    def add(self, sights: Sequence[Sight]) -> None:
        """Add pictures behind those that are there."""
        if sights:
            self._crops = np.concatenate([self._crops, *_load_crops(sights)], axis=1)
            self._sights += sights

    def find(self, sights: Sequence[Sight], *, mirrored: bool = False) -> list[NearDuplicate]:
        """Return what ``find_near_duplicates`` does among all pictures that were added."""
        if not self._sights:
            return []

        def check(job: tuple[int, list[tuple[float, int, bool]]]) -> NearDuplicate | None:
            index, candidates = job
            for likeness, other, is_mirrored in candidates:
                mine = self._load(sights[index].path, is_mirrored)
                theirs = self._load(self._sights[other].path, False)
                agreement = _measure_agreement(mine, theirs, likeness)
                if agreement >= MIN_AGREEMENT:
                    return NearDuplicate(index, other, agreement, is_mirrored)
            return None

        # Candidates are laid over each other while those of the next pictures are looked for.
        jobs = self._list_candidates(sights, (False, True) if mirrored else (False,))
        with ThreadPoolExecutor() as pool:
            return [found for found in pool.map(check, jobs) if found is not None]

    def _list_candidates(
        self, sights: Sequence[Sight], flips: Sequence[bool]
    ) -> Iterator[tuple[int, list[tuple[float, int, bool]]]]:
        """Yield each place with likeness, place and mirroring of what it may be a copy of."""
        count = len(self._sights)
        clusters = np.array([sight.cluster for sight in self._sights])
        for start in range(0, len(sights), _ROWS_AT_ONCE):
            part = sights[start : start + _ROWS_AT_ONCE]
            is_own = np.array([sight.cluster for sight in part])[:, None] == clusters[None, :]
            found: list[Array] = []
            for whole, *cuts in _load_crops(part, flips):  # one of the two pictures is whole
                best = whole @ self._crops[0].T
                for mine, theirs in zip(cuts, self._crops[1:], strict=True):
                    np.maximum(best, whole @ theirs.T, out=best)
                    np.maximum(best, mine @ self._crops[0].T, out=best)
                found.append(np.where(is_own, -1.0, best))
            likeness: Array = np.concatenate(found, axis=1)
            for row, values in enumerate(likeness):
                near = choose_nearest(values)
                yield start + row, [(float(values[p]), p % count, p >= count) for p in near]


def choose_nearest(likeness: Array) -> list[int]:
    """Return the places of the largest correlations, of equals the first; most are too small."""
    places = np.flatnonzero(likeness >= _MIN_LIKENESS)
    order = np.argsort(-likeness[places], kind="stable")[:_NUM_CANDIDATES]
    return places[order].tolist()


def _load_crops(sights: Sequence[Sight], flips: Sequence[bool] = (False,)) -> list[Array]:
    """Return crops of thumbnails as they are or mirrored, each [kinds, pictures, pixels].

    The first kind is the whole; each crop has mean 0 and length 1.
    """

    def cut(sight: Sight) -> list[Array]:
        whole = _open_grey(sight.path, _KEPT_SIDE)
        whole = whole.resize((_KEPT_SIDE, _KEPT_SIDE), Image.Resampling.BOX)
        kinds: list[Array] = []
        for picture in (ImageOps.mirror(whole) if flip else whole for flip in flips):
            crops = [picture.resize((_SIDE, _SIDE), Image.Resampling.BOX, box=b) for b in _BOXES]
            rows = np.stack([np.asarray(crop, dtype=np.float32).ravel() for crop in crops])
            kinds.append(_normalise(rows))
        return kinds

    with ThreadPoolExecutor() as pool:
        return [np.stack(crops, axis=1) for crops in zip(*pool.map(cut, sights), strict=True)]


def _normalise(rows: Array) -> Array:
    """Return rows with mean 0 and length 1; a row without contrast is 0."""
    centred = rows - rows.mean(axis=1, keepdims=True)
    return centred / np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-3)


@dataclass(frozen=True, slots=True)
class _Features:
    """A picture in grey, [height, width]; places of its ORB features, [n, 2], and descriptors."""

    grey: Array
    places: Array
    descriptors: Array | None


def _load_features(path: Path, is_mirrored: bool) -> _Features:
    picture = _open_grey(path, _LONG_SIDE)
    scale = _LONG_SIDE / max(picture.size)
    size = tuple(max(_BLOCK, round(side * scale)) for side in picture.size)
    picture = picture.resize((size[0], size[1]), Image.Resampling.BOX)
    grey = np.asarray(ImageOps.mirror(picture) if is_mirrored else picture)
    finder = _cv2.ORB_create(nfeatures=_NUM_FEATURES, scaleFactor=1.1, nlevels=6, fastThreshold=8)
    points, descriptors = finder.detectAndCompute(grey, None)
    return _Features(grey, np.array([p.pt for p in points], np.float32), descriptors)


def _measure_agreement(mine: _Features, other: _Features, likeness: float) -> float:
    """Return the share of the blocks with structure that look alike, laid over each other.

    Source: Rublee et al. 2011 (ORB) and Fischler and Bolles 1981 (RANSAC), by OpenCV.
    """
    matches: Sequence[Any] = ()
    if mine.descriptors is not None and other.descriptors is not None:
        matcher = _cv2.BFMatcher(_cv2.NORM_HAMMING, crossCheck=True)
        matches = matcher.match(mine.descriptors, other.descriptors)
    move = is_inlier = None  # how the first is shifted, scaled and turned onto the other, [2, 3]
    if len(matches) >= _MIN_MATCHES:
        move, is_inlier = _cv2.estimateAffinePartial2D(
            mine.places[[match.queryIdx for match in matches]],
            other.places[[match.trainIdx for match in matches]],
            ransacReprojThreshold=2.0,
            maxIters=500,
        )
    if move is None or is_inlier is None or is_inlier.sum() < _MIN_MATCHES:
        # Too plain for features: as they lie.
        height, width = mine.grey.shape
        rows, columns = other.grey.shape
        move = np.array([[columns / width, 0, 0], [0, rows / height, 0]], np.float32)
    size = (other.grey.shape[1], other.grey.shape[0])
    moved = _cv2.warpAffine(mine.grey, move, size)
    shown = _cv2.warpAffine(np.ones_like(mine.grey), move, size, flags=_cv2.INTER_NEAREST)
    is_shown = _cut_blocks(shown).min(axis=1) > 0
    if is_shown.mean() < _MIN_COVER:
        return 0.0
    blocks = [
        _cut_blocks(_cv2.GaussianBlur(grey, (0, 0), 1.5))[is_shown] for grey in (moved, other.grey)
    ]
    has_structure = np.maximum(*(part.std(axis=1) for part in blocks)) > _MIN_CONTRAST
    if not has_structure.any():
        return float(likeness >= _SAME_LIKENESS)
    first, second = (_normalise(part[has_structure]) for part in blocks)
    return float(((first * second).sum(axis=1) > _MIN_CORRELATION).mean())


def _cut_blocks(grey: Array) -> Array:
    """Return whole blocks of a picture, [blocks, pixels]; a rest at the edges is left out."""
    rows, columns = (size // _BLOCK for size in grey.shape)
    cut = grey[: rows * _BLOCK, : columns * _BLOCK].astype(np.float32)
    return cut.reshape(rows, _BLOCK, columns, _BLOCK).swapaxes(1, 2).reshape(-1, _BLOCK * _BLOCK)


def _open_grey(path: Path, side: int) -> Image.Image:
    """Return a picture upright in grey; a JPEG is decoded no larger than needed."""
    with open_lazily(path) as image:
        image.draft("RGB", (2 * side, 2 * side))
        return convert_picture(ImageOps.exif_transpose(image)).convert("L")


def join_by_files(files: Mapping[str, Iterable[Path]]) -> dict[str, str]:
    """Return the set that each cluster belongs to, named after its first cluster.

    Two clusters that hold a file with the same bytes are in one set, and so is what they share
    files with in turn. Only files of the same size are read; one that is not there is left out.

    Args:
        files: of each cluster by its name.
    """
    by_size: dict[int, list[tuple[str, Path]]] = defaultdict(list)
    for name, paths in files.items():
        for path in paths:
            if path.is_file():
                by_size[path.stat().st_size].append((name, path))
    pairs: list[tuple[str, str]] = []
    for members in by_size.values():
        if len({name for name, _ in members}) > 1:
            first: dict[str, str] = {}
            for name, path in members:
                pairs.append((first.setdefault(digest_file(path), name), name))
    return _join(list(files), pairs)


def join_near_duplicates(sights: Sequence[Sight], *, mirrored: bool = False) -> dict[str, str]:
    """Return the set that each cluster belongs to, named after its first cluster.

    Args:
        sights: all pictures, before they are split.
        mirrored: whether mirror images count.

    Raises:
        DataError: if clusters that were joined have more than ``MAX_JOINED_SHARE`` of the
            pictures: likeness then runs through the data, and no split is clean.
    """
    joined = {sight.cluster: sight.cluster for sight in sights}
    named = list(sights)
    # Of each picture the first likeness is told: those of other clusters appear when it is joined.
    while pairs := find_near_duplicates(named, named, mirrored=mirrored):
        heads = _join(
            list(dict.fromkeys(joined.values())),
            [(named[pair.index].cluster, named[pair.other].cluster) for pair in pairs],
        )
        joined = {name: heads[head] for name, head in joined.items()}
        named = [replace(sight, cluster=joined[sight.cluster]) for sight in sights]
    members = Counter(joined.values())
    sizes = Counter(joined[sight.cluster] for sight in sights)
    largest = max((size for head, size in sizes.items() if members[head] > 1), default=0)
    if largest > MAX_JOINED_SHARE * len(sights):
        raise DataError(
            "near duplicates join too much of the data to split it",
            got=f"{largest} of {len(sights)} pictures in one cluster",
            expected=f"at most {MAX_JOINED_SHARE:.0%}",
            fix="set data.near_duplicates to drop or warn",
        )
    return joined


def _join(names: Sequence[str], pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the first name of the set of each, where both of a pair are in one set."""
    heads = {name: name for name in names}
    places = {name: place for place, name in enumerate(names)}

    def find(name: str) -> str:
        while heads[name] != name:
            name = heads[name]
        return name

    for one, other in pairs:
        first, second = sorted((find(one), find(other)), key=places.__getitem__)
        heads[second] = first
    return {name: find(name) for name in names}


def drop_near(
    splits: Mapping[str, Sequence[T]],
    *,
    list_paths: Callable[[T], Iterable[Path]],
    report: Callable[[T, str], None],
    mirrored: bool = False,
) -> dict[str, list[T]]:
    """Drop what looks like something of test, else of validation, else of train.

    Args:
        splits: rows by split; one that is not of ``KEEPING_ORDER`` keeps last.
        list_paths: the pictures of a row.
        report: is told each row that is dropped, and the split that it was of.
        mirrored: whether mirror images count.
    """
    kept: dict[str, list[T]] = {name: [] for name in splits}
    seen = Gallery()
    for name in sorted(splits, key=lambda name: (*KEEPING_ORDER, name).index(name)):
        rows = [(row, [*list_paths(row)]) for row in splits[name]]
        own = [Sight(path, name) for _, paths in rows for path in paths]
        pairs = seen.find(own, mirrored=mirrored)
        copies = {own[pair.index].path for pair in pairs}
        seen.add([sight for sight in own if sight.path not in copies])
        for row, paths in rows:
            if copies.isdisjoint(paths):
                kept[name].append(row)
            else:
                report(row, name)
    return kept
