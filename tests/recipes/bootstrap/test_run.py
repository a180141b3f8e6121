"""The whole way with a tiny BLIP; the judge is a stand-in, as random weights contradict themselves.

Its labels are those of a digest, so nothing here says that labels are any good.
"""

import json
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from faulty_server import MODEL, Fault, FaultyServer
from one_language import list_foreign
from PIL import Image
from tiny_blip import write_tiny_blip

from groupwise.core import Example, digest_json, read_jsonl
from groupwise.data import load_screenshots
from groupwise.inference import LabelShares, RequestError

NUM_PICTURES = 12
CONTRARY, SILENT = "00", "01"
"""Pictures, by name, on which the judge's orders disagree and of which it says nothing."""


class StandIn:
    """Answers by a digest of picture and task, in either order; counts what it is asked."""

    def __init__(self) -> None:
        self.identity = {"model": "stand-in", "revision": "1"}
        self.asked: list[str] = []
        self.contrary: set[str] = set()
        self.silent: set[str] = set()

    async def weigh_labels(self, example: Example, *, labels: Sequence[str]) -> LabelShares:
        text, digest = example.prompt[0].text, example.pictures[0].digest
        self.asked.append(example.id)
        if digest in self.silent:
            raise RequestError("refused", "no")
        is_first = "A: the screen is on-task" in text
        asked = digest_json([digest, text.partition("\nA: ")[0]])
        share = 0.05 + int(asked[:4], 16) / 0xFFFF * 0.9
        if digest in self.contrary:
            share = 0.9 if is_first else 0.1
        shares = [share, 1 - share] if is_first else [1 - share, share]
        return LabelShares(dict(zip(labels, shares, strict=True)))


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn()
    monkeypatch.setattr("groupwise_recipes.on_task.rewards.open_responder", lambda _: found)
    return found


@pytest.fixture(scope="module")
def blip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_blip(tmp_path_factory.mktemp("blip"))


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Twelve pictures of six sessions, one of them twice, and two files that are none."""
    folder = tmp_path / "given"
    for number in range(NUM_PICTURES):
        path = folder / f"session{number // 2}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.linear_gradient("L").rotate(31 * number).resize((96, 64)).save(path)
    (folder / "again.png").write_bytes((folder / "session0" / "00.png").read_bytes())
    (folder / "torn.jpg").write_bytes(b"torn")
    (folder / "notes.txt").write_text("not a picture")
    return folder


@pytest.fixture
def words(pictures: Path, blip: Path) -> list[str]:
    values = {
        "pictures": pictures,
        "captioner.model": blip,
        "captioner.max_new_tokens": 6,
        "judge": "{server: {url: 'http://127.0.0.1:9/v1', model: stand-in}, "
        "settings: {retry: {max_attempts: 1}}}",
        "min_rows": 5,
    }
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return ["run", "bootstrap", "--out", "boot", *settings]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def name_digests(run: Path, *names: str) -> set[str]:
    rows = read_jsonl(run / "pictures" / "rows.jsonl")
    return {row["digest"] for row in rows if Path(row["file"]).stem in names}


def run_all(command_line: CommandLine, words: list[str], judge: StandIn) -> Path:
    first = command_line(*words, "--until", "pictures")
    assert first.returncode == 0, first.stderr
    judge.contrary = name_digests(Path("boot"), CONTRARY, "again")
    judge.silent = name_digests(Path("boot"), SILENT)
    done = command_line(*words)
    assert done.returncode == 0, done.stderr
    assert "nobody has checked them" in done.stderr
    return Path("boot")


def test_a_run_ends_in_rows_that_on_task_prepares(
    command_line: CommandLine, words: list[str], judge: StandIn
) -> None:
    run = run_all(command_line, words, judge)
    rows = read_jsonl(run / "rows" / "index.jsonl")
    loaded = load_screenshots(run / "rows")
    assert loaded.drops.total == 0
    assert [one.label for one in loaded.screens] == [row["label"] for row in rows]
    settings = {
        "data.root": run / "rows",
        "data.warmup_share": 0.0,
        "data.validation_share": 0.3,
        "data.test_share": 0.3,
    }
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    done = command_line("run", "on_task", *words, "--out", "trained", "--until", "prepare")
    assert done.returncode == 0, done.stderr
    train = read_jsonl(Path("trained/prepare/train.jsonl"))
    assert train
    assert {row["label"] for row in train} <= {"on-task", "off-task"}


def test_every_row_says_where_it_comes_from(
    command_line: CommandLine, words: list[str], judge: StandIn, blip: Path
) -> None:
    run = run_all(command_line, words, judge)
    rows = read_jsonl(run / "rows" / "index.jsonl")
    captioner = read(run / "manifest.json")["inputs"]["captioner.model"]
    found = {row["digest"]: row for row in read_jsonl(run / "pictures" / "rows.jsonl")}
    version = read(run / "judge" / "judge.json")["version"]
    for row in rows:
        origin = found[row["picture"]["digest"]]
        assert (row["source"], row["label_source"]) == ("bootstrap", "judge")
        assert row["picture"]["file_digest"] == origin["file_digest"]
        assert row["caption"]["model"] == str(blip)
        assert row["caption"]["revision"] == captioner
        assert row["scenario"]["source"] == "template"
        assert (row["judge"]["model"], row["judge"]["version"]) == ("stand-in", version)
    probabilities = [row["judge"]["probability"] for row in rows]
    assert probabilities == sorted(probabilities, reverse=True)
    assert [row["place"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(
        (row["difficulty"] == "easy") == (row["judge"]["probability"] >= 0.8) for row in rows
    )
    assert {row["difficulty"] for row in rows} == {"easy", "hard"}


def test_what_is_left_out_is_counted_and_the_totals_add_up(
    command_line: CommandLine, words: list[str], judge: StandIn
) -> None:
    run = run_all(command_line, words, judge)
    summary = read(run / "rows" / "summary.json")
    stages = summary["stages"]
    for stage in stages.values():
        assert stage["given"] == stage["kept"] + sum(stage["dropped"].values())
    assert stages["pictures"]["dropped"] == {"repeats another picture": 1, "unreadable picture": 1}
    assert stages["pictures"]["given"] == NUM_PICTURES + 2
    assert stages["judge"]["given"] == 2 * stages["captions"]["kept"]
    assert stages["judge"]["dropped"] == {
        "no verdict: refused": 2,
        "the judge's two orders disagree": 2,
    }
    assert summary["num_rows"] == stages["judge"]["kept"] == sum(summary["labels"].values())
    page = (run / "rows" / "README.md").read_text(encoding="utf-8")
    assert "Nobody has checked them" in page
    assert f"{summary['num_rows']} rows came out" in page
    chinese = (run / "rows" / "README.zh.md").read_text(encoding="utf-8")
    assert "2 没有裁决：被拒绝、2 评审在两种次序下不一致" in chinese
    data = ("on-task", "off-task", "easy", "hard", "stand-in")
    assert list_foreign(chinese, "zh", data) == []


def test_an_interrupted_run_asks_for_no_caption_and_no_verdict_again(
    command_line: CommandLine,
    words: list[str],
    judge: StandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from groupwise_recipes.on_task.bootstrap.captioner import BlipCaptioner

    asked: list[str] = []
    caption = BlipCaptioner.caption

    def stop_after_eight(self: BlipCaptioner, pictures: Sequence[Any]) -> list[str]:
        if len(asked) == 8:
            raise KeyboardInterrupt
        asked.extend(one.digest for one in pictures)
        return caption(self, pictures)

    monkeypatch.setattr(BlipCaptioner, "caption", stop_after_eight)
    command_line(*words)
    assert len(read_jsonl(Path("boot/captions/said.jsonl"))) == 8
    asked.clear()
    done = command_line(*words)
    assert done.returncode == 0, done.stderr
    assert len(asked) == NUM_PICTURES - 8
    num_asked = len(judge.asked)
    again = command_line(*words, "--set", "easy_from=0.7")
    assert again.returncode == 0, again.stderr
    assert len(judge.asked) == num_asked


def test_pictures_and_captions_of_shards_go_the_same_way(
    command_line: CommandLine, words: list[str], judge: StandIn, pictures: Path
) -> None:
    shards = pictures.with_name("shards")
    shards.mkdir()
    with tarfile.open(shards / "00000.tar", "w") as shard:
        for number, path in enumerate(sorted(pictures.glob("*/*.png"))):
            shard.add(path, f"{number:09}.png")
            text = pictures / "notes.txt"
            text.write_text(f"a bowl of soup {number}\n")
            shard.add(text, f"{number:09}.txt")
    with (shards / "00000.tar").open("r+b") as stream:
        stream.truncate(stream.seek(0, 2) - 2 * tarfile.RECORDSIZE)
    words = [*words, "--set", f"pictures={shards}", "--set", "captioner=null"]
    done = command_line(*words)
    assert done.returncode == 0, done.stderr
    summary = read(Path("boot/rows/summary.json"))
    assert summary["stages"]["pictures"]["dropped"] == {"damaged shard": 1}
    for row in read_jsonl(Path("boot/rows/index.jsonl")):
        assert row["caption"]["text"].startswith("a bowl of soup")
        assert row["caption"]["model"] is None
        assert row["picture"]["file"].startswith("00000.tar:0")
        assert row["session"] == row["picture"]["file"]


def test_too_few_rows_stop_the_run_and_nothing_is_lost(
    command_line: CommandLine, words: list[str], judge: StandIn
) -> None:
    run = run_all(command_line, words, judge)
    few = command_line(*words, "--set", "min_rows=24")
    assert few.returncode == 2
    assert "rows came out" in few.stderr
    assert "the judge's two orders disagree" in few.stderr
    assert read_jsonl(run / "judge" / "rows.jsonl")


def test_a_dry_run_says_what_cannot_be(command_line: CommandLine, words: list[str]) -> None:
    many = command_line(*words, "--set", "min_rows=1000", "--dry-run")
    assert many.returncode == 2
    assert "14 pictures give at most 28 rows" in many.stderr
    mute = command_line(*words, "--set", "captioner=null", "--dry-run")
    assert mute.returncode == 2
    assert "pictures outside of shards have no captions" in mute.stderr
    none = command_line(*words, "--set", "pictures=nowhere", "--dry-run")
    assert none.returncode == 2
    assert "nowhere is not a folder" in none.stderr
    assert not Path("boot").exists()


def test_a_chat_model_is_refused_as_a_captioner(
    command_line: CommandLine, words: list[str], vision_folder: Path
) -> None:
    done = command_line(*words, "--set", f"captioner.model={vision_folder}")
    assert done.returncode == 2
    assert "is no captioner; got qwen2_5_vl; expected blip" in done.stderr


@pytest.fixture
def captioner() -> Iterator[FaultyServer]:
    server = FaultyServer(lambda _: Fault(f"thing \n number {len(server.asked)}"))
    yield server
    server.close()


def name_server(url: str, **more: object) -> list[str]:
    server = {"url": url, "model": MODEL, "retry": {"max_attempts": 2, "base_delay_s": 0}, **more}
    return ["--set", "captioner.model=null", "--set", f"captioner.server={json.dumps(server)}"]


def test_a_served_model_makes_captions_too(
    command_line: CommandLine, words: list[str], judge: StandIn, captioner: FaultyServer
) -> None:
    captioner.script = [Fault(" ", status=200), Fault("a spread", finish_reason="length")] * 2
    words = [*words, *name_server(captioner.url, revision="r7"), "--set", "captioner.batch_size=1"]
    done = command_line(*words)
    assert done.returncode == 0, done.stderr
    counts = read(Path("boot/captions/counts.json"))
    assert counts["dropped"] == {"no caption": 2}
    assert counts["kept"] == NUM_PICTURES - 2
    rows = read_jsonl(Path("boot/rows/index.jsonl"))
    assert all(row["caption"]["text"].startswith("thing number ") for row in rows)
    assert all(
        (row["caption"]["model"], row["caption"]["revision"]) == (MODEL, "r7") for row in rows
    )
    assert [one["max_tokens"] for one in captioner.asked[:2]] == [6, 12]
    picture, text = captioner.asked[0]["messages"][0]["content"]
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")
    assert "one short sentence" in text["text"]


def test_a_captioner_that_cannot_be_asked_stops_the_run_and_loses_nothing(
    command_line: CommandLine, words: list[str], judge: StandIn, captioner: FaultyServer
) -> None:
    captioner.script = [Fault("soup"), Fault(status=400, body=b"no pictures here")]
    words = [*words, *name_server(captioner.url), "--set", "captioner.batch_size=1"]
    words += ["--until", "captions"]
    done = command_line(*words)
    assert done.returncode == 2
    assert "the server answered with status 400: no pictures here" in done.stderr
    num_asked = len(captioner.asked)
    assert command_line(*words).returncode == 0
    assert len(captioner.asked) == num_asked + NUM_PICTURES - 1


def test_a_captioner_elsewhere_is_named_first(
    command_line: CommandLine,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    elsewhere = name_server("https://captions.example/v1", api_key_variable="CAPTIONS_API_KEY")
    done = command_line(*words, *elsewhere)
    assert done.returncode == 2
    assert "--allow-judge captions.example" in done.stderr
    assert not Path("boot").exists()
    both = command_line(*words, *elsewhere, "--set", "captioner.model=blip")
    assert "captioner: give model or server, and not both" in both.stderr
