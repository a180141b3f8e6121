"""Patience for property tests; the tiny recipe; tiny policies and examples for them."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from groupwise.core import Example, Message, make_example, read_jsonl, read_picture

# A busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# The tiny recipe needs no torch, and importing the real one takes most of a test's time.
_TORCH_STUB = """
class cuda:
    device_count = staticmethod(lambda: 0)
"""
_FIXTURES = Path(__file__).parent / "fixtures"


def listen_to_ctrl_c() -> None:
    """Take Ctrl-C as usual, whatever the starting process does with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class TinyRecipe:
    """The tiny recipe installed in ``site``, with a folder to work in."""

    site: Path
    work: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        return self.work / "source.txt"

    def use_real_torch(self) -> None:
        """Let the processes import the installed torch, not the quick stand-in."""
        (self.site / "torch.py").unlink()

    def list_done(self) -> list[str]:
        """Return ``step`` or ``step resumed`` for all that ran since the last call."""
        log = self.work / "log.jsonl"
        rows = read_jsonl(log) if log.is_file() else []
        log.unlink(missing_ok=True)
        return [row["step"] + (" resumed" if row["state"] == "resumed" else "") for row in rows]

    def start(self, *arguments: str, **options: object) -> subprocess.Popen[str]:
        """Start ``groupwise`` with these arguments in the working folder.

        It listens to Ctrl-C even where the tests run in the background and ignore it.
        """
        return subprocess.Popen(
            [sys.executable, "-m", "groupwise.cli", *arguments],
            cwd=self.work,
            env=dict(self.environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **({"preexec_fn": listen_to_ctrl_c} | options),
        )

    def call(self, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
        """Run ``groupwise`` with these arguments to its end."""
        process = self.start(*arguments, **options)
        stdout, stderr = process.communicate(timeout=60)
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TinyRecipe:
    """Install the tiny recipe as a package of its own."""
    site, work = tmp_path / "site", tmp_path / "work"
    info = site / "tiny-0.1.dist-info"
    for folder in (info, work, site / "configs"):
        folder.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny\nVersion: 0.1\n")
    (info / "entry_points.txt").write_text("[groupwise.recipes]\ntiny = tiny_recipe:recipe\n")
    shutil.copy(_FIXTURES / "tiny_recipe.py", site)
    (site / "torch.py").write_text(_TORCH_STUB)
    (site / "configs" / "demo.yaml").write_text("source: source.txt\n")
    (work / "source.txt").write_text("hello\n")
    monkeypatch.setenv("TINY_LOG", str(work / "log.jsonl"))
    environment = {**os.environ, "PYTHONPATH": str(site), "NO_COLOR": "1", "COLUMNS": "200"}
    return TinyRecipe(site, work, environment)


@pytest.fixture
def load_tiny(tiny: TinyRecipe, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make the tiny recipe importable in this process."""

    def load() -> None:
        tiny.use_real_torch()
        monkeypatch.delitem(sys.modules, "tiny_recipe", raising=False)
        monkeypatch.syspath_prepend(str(tiny.site))
        monkeypatch.chdir(tiny.work)

    return load


@pytest.fixture(scope="session")
def vision_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny vision-language policy with random weights."""
    from groupwise.models import write_tiny_policy

    folder = tmp_path_factory.mktemp("vision")
    return write_tiny_policy("tiny-qwen2.5-vl", folder / "base", max_pixels=49_152)


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny text policy with random weights."""
    from groupwise.models import write_tiny_policy

    return write_tiny_policy("tiny-qwen2", tmp_path_factory.mktemp("text") / "base")


@pytest.fixture(scope="session")
def picture_examples(tmp_path_factory: pytest.TempPathFactory) -> list[Example]:
    """Eight prompts of different lengths, each with a picture of another size."""
    from PIL import Image, ImageDraw

    folder = tmp_path_factory.mktemp("pictures")
    examples: list[Example] = []
    for number in range(8):
        picture = Image.new("RGB", (56 + 17 * number, 120 - 9 * number), (30 * number, 90, 200))
        ImageDraw.Draw(picture).ellipse((5, 5, 40, 20 + 5 * number), fill=(250, 30 * number, 0))
        picture.save(folder / f"{number}.png")
        examples.append(
            make_example(
                [Message("user", "Is this what the task says? " * (1 + number % 3) + str(number))],
                group=str(number),
                pictures=[read_picture(folder / f"{number}.png")],
                label="yes" if number % 2 else "no",
            )
        )
    return examples


@pytest.fixture(scope="session")
def text_examples() -> list[Example]:
    """Eight prompts of different lengths without pictures."""
    return [
        make_example(
            [Message("user", f"Number {number} 是不是单数? " * (1 + number % 3))],
            group=str(number),
            label="yes" if number % 2 else "no",
        )
        for number in range(8)
    ]


@pytest.fixture(scope="session")
def taught_folder(
    vision_folder: Path, picture_examples: list[Example], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The vision-language policy after a few steps: it answers, and not always the same."""
    return teach(vision_folder, picture_examples, tmp_path_factory.mktemp("taught"))


@pytest.fixture(scope="session")
def taught_text_folder(
    text_folder: Path, text_examples: list[Example], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The text policy after a few steps."""
    return teach(text_folder, text_examples, tmp_path_factory.mktemp("taught_text"))


def teach(base: Path, examples: list[Example], folder: Path) -> Path:
    """Teach a policy its examples' labels, each with the number of its group."""
    from groupwise.models import TrainableSettings, load_policy
    from groupwise.training import SftRow, SftSettings, Workspace, train_sft

    rows = [
        SftRow(e, f"{e.label} {e.group}" if int(e.group) % 3 else str(e.label)) for e in examples
    ]
    settings = SftSettings(
        epochs=10,
        batch_size=8,
        learning_rate=2e-3,
        trainable=TrainableSettings(method="full", freeze_vision=False, freeze_aligner=False),
    )
    trained = train_sft(
        load_policy(base), lambda _: rows, settings, workspace=Workspace(folder / "work", 0)
    )
    trained.save(folder / "policy")
    return folder / "policy"
