"""Patience for property tests; the tiny recipe; tiny policies and examples for them."""

import gc
import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import monotonic

import pytest
from command_line import CommandLine, forget_recipes
from hypothesis import HealthCheck, settings
from made_once import make_once
from mixed_prompts import make_mixed
from tiny_site import TinyRecipe, install_tiny

from groupwise.core import Example, Message, make_example, read_picture

# What tests do, and how long they take, must not depend on the models that somebody has fetched;
# those with real weights ask for the user's cache by the fixture below.
os.environ.setdefault("GROUPWISE_USERS_CACHE", os.environ.get("GROUPWISE_CACHE", ""))
os.environ["GROUPWISE_CACHE"] = str(Path(__file__).parent / "no_models")

# A busy machine is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep what is imported and collected out of garbage collection.

    These are a million objects that live to the end, and every training collects garbage.
    """
    gc.disable()
    yield
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Repeat a fuzz target, with other inputs each time, for as many seconds as are asked for.

    By Hypothesis, not by a fuzzer that watches coverage (atheris): it runs wherever the tests run,
    without clang, draws what is nearly right by construction, and makes what it finds small; a
    finding becomes an ``@example`` beside its property, tried again with every run of the tests.
    """
    fuzz_s = float(os.environ.get("GROUPWISE_FUZZ_S", "0"))
    if not fuzz_s or not pyfuncitem.get_closest_marker("fuzz"):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    ends_at = monotonic() + fuzz_s
    while monotonic() < ends_at:
        pyfuncitem.obj(**given)
    return True


@pytest.fixture(scope="session", autouse=True)
def equal_plots_are_drawn_once() -> Iterator[None]:
    """Pages of tiny runs differ in little, and drawing is what writing them takes longest with."""
    from groupwise.evaluation.report import page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "render_svg", cache(page.render_svg))
        yield


@pytest.fixture
def users_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models that the user of this machine has fetched."""
    if os.environ["GROUPWISE_USERS_CACHE"]:
        monkeypatch.setenv("GROUPWISE_CACHE", os.environ["GROUPWISE_USERS_CACHE"])
    else:
        monkeypatch.delenv("GROUPWISE_CACHE")


@pytest.fixture
def command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """``groupwise`` in this process, in a folder of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # The command sets it for its process.
    return CommandLine(capsys)


@pytest.fixture
def tiny(tmp_path: Path, command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> TinyRecipe:
    """Install the tiny recipe as a package of its own."""
    import torch  # noqa: F401  (before the stand-in can be found)

    tiny = TinyRecipe(tmp_path / "site", tmp_path / "work", command_line)
    install_tiny(tiny.site, tiny.work)
    monkeypatch.chdir(tiny.work)
    monkeypatch.syspath_prepend(str(tiny.site))
    monkeypatch.setenv("PYTHONPATH", str(tiny.site), prepend=os.pathsep)
    monkeypatch.setenv("TINY_LOG", str(tiny.work / "log.jsonl"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget_recipes()
    return tiny


@pytest.fixture(scope="session")
def vision_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny vision-language policy with random weights."""
    from groupwise.models.tiny import write_tiny_policy

    folder = tmp_path_factory.mktemp("vision")
    return write_tiny_policy("tiny-qwen2.5-vl", folder / "base", max_pixels=49_152)


@pytest.fixture(scope="session")
def text_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny text policy with random weights."""
    from groupwise.models.tiny import write_tiny_policy

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
                cluster=str(number),
                pictures=[read_picture(folder / f"{number}.png")],
                label="yes" if number % 2 else "no",
            )
        )
    return examples


@pytest.fixture(scope="session")
def mixed_examples(picture_examples: list[Example]) -> list[Example]:
    """Prompts that show pictures among their words and in several turns."""
    return make_mixed([example.pictures[0] for example in picture_examples])


@pytest.fixture(scope="session")
def text_examples() -> list[Example]:
    """Eight prompts of different lengths without pictures."""
    return [
        make_example(
            [Message("user", f"Number {number} 是不是单数? " * (1 + number % 3))],
            cluster=str(number),
            label="yes" if number % 2 else "no",
        )
        for number in range(8)
    ]


@pytest.fixture(scope="session")
def taught_folder(
    vision_folder: Path, picture_examples: list[Example], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The vision-language policy after a few steps: it answers, and not always the same."""
    made = make_once(
        "taught", tmp_path_factory, lambda to: teach(vision_folder, picture_examples, to)
    )
    return made / "policy"


@pytest.fixture(scope="session")
def taught_text_folder(
    text_folder: Path, text_examples: list[Example], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The text policy after a few steps."""
    made = make_once(
        "taught_text", tmp_path_factory, lambda to: teach(text_folder, text_examples, to)
    )
    return made / "policy"


def teach(base: Path, examples: list[Example], folder: Path) -> None:
    """Teach a policy its examples' labels, each with the number of its group."""
    import training_job

    targets = [f"{e.label} {e.cluster}" if int(e.cluster) % 3 else str(e.label) for e in examples]
    settings = {"epochs": 10, "batch_size": 8, "learning_rate": 2e-3, "warmup_share": 0.05}
    settings["trainable"] = training_job.FULL
    trained = training_job.teach(base, examples, folder / "work", targets=targets, **settings)
    trained.save(folder / "policy")
