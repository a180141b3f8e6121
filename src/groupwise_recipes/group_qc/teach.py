"""Stage A taught to a base, which both stages then share.

A tiny random-init model is built first, of the words that both stages will see. What LoRA trained
of a published base is merged into it: Stage B gets an adapter of its own, and off is the taught
base.

A published model can read; a tiny random-init one cannot, and an adapter on a few photo groups
would not teach it. So it has reading lessons, too: do these lines speak well or ill of what the
task is about? Their form is Stage B's, but no verdict is asked for or given: the lists are photos
drawn at random, whatever groups they are of, and the lines alone answer. What passes is left to
Stage B.
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from groupwise.core import derive_seed, make_example, read_picture
from groupwise.models.export import keep_policy
from groupwise.models.tiny import write_tiny_policy
from groupwise.run.asking import open_policy
from groupwise.run.settings import place_base
from groupwise.run.steps import StepContext
from groupwise.training.checkpoints import Workspace
from groupwise.training.processes import ask_first, is_first_process
from groupwise.training.settings import SftRow
from groupwise.training.sft import train_sft
from groupwise_recipes.group_qc.config import GroupQcConfig, TeachSettings
from groupwise_recipes.group_qc.groups import TaughtPhoto, find_root, read_groups, read_taught
from groupwise_recipes.group_qc.missions import Mission
from groupwise_recipes.group_qc.prompts import Questions, open_questions
from groupwise_recipes.group_qc.stage_b import make_group_rows, make_label_rows
from groupwise_recipes.group_qc.summaries import number_summaries
from groupwise_recipes.group_qc.verdicts import VerdictParser
from groupwise_recipes.group_qc.words import Words

TEACH_STEP = "teach_stage_a"
_MAX_PHOTOS = 5
_MAX_TRIES = 20


def find_base(config: GroupQcConfig, run: Path) -> str | Path:
    """Return the folder or hub id of the one base of both stages."""
    if config.teach is not None:
        return run / TEACH_STEP / "policy"
    return run / "stage_b_data" / "base" if config.model.is_tiny else place_base(config, run)


def run_teach(_: object, context: StepContext) -> None:
    """Teach a base to describe photos, one by one."""
    config: GroupQcConfig = context.config
    teach, questions = config.teach, open_questions(config)
    assert teach is not None
    prepared = context.output_of("prepare")
    photos = read_taught(prepared)
    rows = make_photo_rows(photos, questions, find_root(config.data, prepared))
    lessons = partial(
        make_reading_rows,
        photos,
        questions,
        num_rows=teach.reading_per_epoch,
        seed=config.seed,
    )
    base: str | Path = config.model.base
    if config.model.is_tiny:
        base = ask_first(lambda: _write_untaught([*rows, *lessons(epoch=0)], context))
    policy = open_policy(config, base)
    workspace = Workspace(context.folder, config.seed)

    def list_rows(epoch: int) -> list[SftRow]:
        seed = derive_seed(config.seed, "taught photos", epoch)
        return [*draw_photos(rows, teach, seed=seed), *lessons(epoch=epoch)]

    trained = train_sft(policy, list_rows, teach, workspace=workspace)
    if is_first_process():
        keep_policy(trained, context.folder, merged=True)


def _write_untaught(rows: Sequence[SftRow], context: StepContext) -> Path:
    """Write a tiny base that knows the words of both stages; return its folder."""
    config, folder = context.config, context.folder / "untaught"
    if not (folder / "config.json").exists():
        write_tiny_policy(
            config.model.base,
            folder,
            seed=derive_seed(config.seed, "base"),
            texts=[*_list_texts(rows), *_list_group_texts(config, context)],
            max_pixels=config.model.max_pixels,
        )
    return folder


def make_photo_rows(
    photos: Sequence[TaughtPhoto], questions: Questions, root: Path
) -> list[SftRow]:
    """Return rows of a photo and the whole reply that Stage A is to give."""
    return [
        SftRow(
            questions.ask_of_photo(
                photo.mission,
                read_picture(root / photo.photo),
                group=photo.group_id,
                description=photo.description,
            ),
            questions.write_photo_reply(photo.description),
        )
        for photo in photos
    ]


def draw_photos(rows: Sequence[SftRow], teach: TeachSettings, *, seed: int) -> list[SftRow]:
    """Return the photos of an epoch, rare descriptions more often as ``balance`` says."""
    rng = random.Random(seed)
    num_photos = teach.photos_per_epoch or len(rows)
    if not teach.balance:
        return rng.sample(rows, min(num_photos, len(rows)))
    counts = Counter(row.target for row in rows)
    weights = [counts[row.target] ** -teach.balance for row in rows]
    return rng.choices(rows, weights, k=num_photos)


def _list_texts(rows: Sequence[SftRow]) -> list[str]:
    texts = [message.text for row in rows for message in row.example.prompt]
    return [*texts, *(row.target for row in rows)]


def _list_group_texts(config: GroupQcConfig, context: StepContext) -> list[str]:
    """Return Stage B texts as the taught descriptions would make them, for the tokenizer."""
    prepared, questions = context.output_of("prepare"), open_questions(config)
    root = find_root(config.data, prepared)
    known = {root / photo.photo: photo.description for photo in read_taught(prepared)}
    groups = [group for members in read_groups(config, prepared).values() for group in members]
    summaries = {
        group.key: number_summaries([known[path] for path in group.photos], config.words)
        for group in groups
        if known.keys() >= set(group.photos)
    }
    examples = make_group_rows(groups, summaries, questions, root=root)
    return _list_texts(make_label_rows(examples, VerdictParser(config.words))(0))


def make_reading_rows(
    photos: Sequence[TaughtPhoto], questions: Questions, *, num_rows: int, seed: int, epoch: int
) -> list[SftRow]:
    """Return the lessons of an epoch: things that are unclear, bad and good, in turn."""
    rng = random.Random(derive_seed(seed, "reading", epoch))
    words = questions.words
    lines: dict[str, list[str]] = {}
    for photo in photos:
        lines.setdefault(photo.mission, []).append(photo.description)
    things = {
        name: find_thing(questions.missions[name], known, words) for name, known in lines.items()
    }
    rows: list[SftRow] = []
    for number in range(num_rows):
        name = rng.choice(sorted(lines))
        wanted = words.tones[number % len(words.tones)]
        drawn = _draw_lines(lines[name], things[name], words, wanted=wanted, rng=rng)
        rows.append(_make_row(name, drawn, things[name], questions))
    return rows


def find_thing(mission: Mission, lines: Sequence[str], words: Words) -> str:
    """Return the thing that the mission's focus names first, of those that stand in the lines."""
    names = {
        part.partition("/")[0].partition("×")[0]
        for line in lines
        for part in line.split(words.comma)
    }
    found = [name for name in names if name in mission.focus]
    return min(found, key=mission.focus.index, default="")


def describe_thing(thing: str, lines: Sequence[str], words: Words) -> tuple[str, str]:
    """Return how lines speak of a thing and their words: the first bad ones, else the first good.

    A thing that is not named, or only as unclear, is unclear.
    """
    unknown, negative, positive = words.tones
    parts = [
        part.partition("×")[0].split("/") for line in lines for part in line.split(words.comma)
    ]
    own = [said for name, *said in parts if name == thing]
    bad = [[one for one in said if one != unknown and words.is_negative(one)] for said in own]
    good = [said for said in own if said and unknown not in said]
    for tone, found in ((negative, [*filter(None, bad)]), (positive, good)):
        if found:
            return tone, f"{thing}{words.colon}{words.pause.join(found[0])}"
    return unknown, words.unclear


def _draw_lines(
    known: Sequence[str], thing: str, words: Words, *, wanted: str, rng: random.Random
) -> list[str]:
    """Return photos' lines that speak as wanted, where a few tries find such."""
    drawn: list[str] = []
    for _ in range(_MAX_TRIES):
        drawn = rng.choices(known, k=rng.randint(1, _MAX_PHOTOS))
        if describe_thing(thing, drawn, words)[0] == wanted:
            break
    return drawn


def _make_row(name: str, lines: Sequence[str], thing: str, questions: Questions) -> SftRow:
    words = questions.words
    listed = number_summaries(lines, words)
    messages = questions.ask_of_summaries(name, listed, answers=words.tones)
    tone, reason = describe_thing(thing, lines, words)
    return SftRow(make_example(messages, cluster=name), f"{tone}\n{words.reason}{reason}")
