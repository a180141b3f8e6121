"""The tiny answerer: a vision-language model taught to look words up in demonstrations.

It is taught on dialects whose words are drawn anew for every episode, so it knows no world's
words: it can only look them up.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from groupwise.core import TrainingError, derive_seed, seed_everything
from groupwise.models.policy import Policy, load_policy
from groupwise.models.prompts import TINY_TOKEN_SIDE
from groupwise.models.tiny import write_tiny_policy
from groupwise.training.sft import IGNORED
from groupwise_drawn.dialects import COLORS, DIALECTS, WORDINGS, WORDS, draw_scene, plan_scene
from groupwise_recipes.demo_selection.episodes import Turn, draw_episode
from groupwise_recipes.demo_selection.vqa import FewShotForm

_BASE = "tiny-qwen2.5-vl"
_STAMPED_SHARE = 0.75
_END_WEIGHT = 0.05  # the end token is learned at once
ANSWERER_FORM = FewShotForm("{question}{pictures}", between="\n")
"""How the tiny answerer is asked: a question, its picture and its answer, and so on."""
# Of turns it writes nothing but the content, so that the last answer follows its picture as those
# of the demonstrations do.
_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{- '<|image_pad|>' -}}"
    "{%- else -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{%- endfor -%}"
)


@dataclass(frozen=True)
class Teaching:
    """How the answerer is taught.

    Attributes:
        num_scenes: drawn; two thirds are for aligning, the others for episodes.
        num_aligning_steps: in which the token of a scene becomes the word of its colour.
        num_steps: of AdamW, on episodes.
        batch_size: scenes or episodes of a step.
        learning_rate: peak of the schedule.
        aligning_rate: the same of aligning.
        max_shots: demonstrations of an episode at most.
        max_attempts: with new weights each: some begin to copy any answer that was shown, and stay
            at that.
        min_looked_up: share of words that must be looked up after half of the steps; a smaller one
            ends the attempt.
    """

    num_scenes: int = 2304
    num_aligning_steps: int = 200
    num_steps: int = 300
    batch_size: int = 48
    learning_rate: float = 1e-3
    aligning_rate: float = 4e-3
    max_shots: int = 4
    max_attempts: int = 10
    min_looked_up: float = 0.6


def plan_teaching(num_steps: int) -> Teaching:
    """Return how an answerer is taught in so many steps on episodes.

    In fewer than 100 nothing is learned, and it is not asked for: that is for trying a run out.
    """
    return Teaching(
        num_scenes=min(2304, 24 * num_steps),
        num_aligning_steps=max(1, num_steps * 2 // 3),
        num_steps=num_steps,
        min_looked_up=0.6 if num_steps >= 100 else 0.0,
    )


def teach_answerer(folder: Path, settings: Teaching, *, seed: int) -> Path:
    """Teach a tiny policy to use demonstrations and write it as a folder.

    Returns:
        The folder, which ``load_policy`` reads; it is asked in ``ANSWERER_FORM``.
    """
    for attempt in range(settings.max_attempts):
        policy = _teach_once(folder, settings, seed=derive_seed(seed, "attempt", attempt))
        if policy is not None:
            policy.save(folder)
            return folder
    raise TrainingError(
        "the answerer did not learn to look words up",
        got=f"{settings.max_attempts} attempts",
        fix="set teach_steps higher, or another seed",
    )


def _teach_once(folder: Path, settings: Teaching, *, seed: int) -> Policy | None:
    """Return a taught policy, or None if it does not look words up."""
    questions = [words.format(dialect) for words in WORDINGS for dialect in DIALECTS]
    write_tiny_policy(
        _BASE,
        folder,
        seed=derive_seed(seed, "answerer"),
        texts=[*questions, *(f"{word}\n{one}" for word in (*WORDS, *COLORS) for one in DIALECTS)],
        max_pixels=TINY_TOKEN_SIDE**2,
        looks_back=True,
    )
    policy = load_policy(folder, device=torch.device("cpu"))
    policy.processor.chat_template = policy.tokenizer.chat_template = _TEMPLATE
    seed_everything(derive_seed(seed, "teach answerer"))
    lessons = Lessons(policy, settings, random.Random(derive_seed(seed, "episodes")))
    policy.model.train()
    lessons.align()
    is_taught = lessons.teach()
    policy.model.eval()
    return policy if is_taught else None


class Lessons:
    """The scenes that are shown, and the training on them.

    As in LLaVA what encodes pictures is trained first, alone, and stays as it is while episodes are
    taught. It is trained by regression: of tokens that only are nearest to the right word, the
    language model learns to copy answers, but hardly to compare one picture with another.
    """

    def __init__(self, policy: Policy, settings: Teaching, rng: random.Random) -> None:
        self.policy, self.settings, self.rng = policy, settings, rng
        scenes = [
            plan_scene(rng, stamped=rng.random() < _STAMPED_SHARE)
            for _ in range(settings.num_scenes)
        ]
        self.first = settings.num_scenes * 2 // 3  # of those for episodes
        self.pictures = [draw_scene(scene, rng=rng) for scene in scenes]
        self.colors: list[str] = [scene.color for scene in scenes]
        self.model: Any = policy.model
        self.tokenizer: Any = policy.tokenizer
        self.picture_id = self.tokenizer.convert_tokens_to_ids("<|image_pad|>")

    def align(self) -> None:
        """Train what encodes pictures: the token of a scene becomes the word of its colour."""
        pixels, grids = self.process(range(self.first))
        words = torch.tensor(
            [ids[0] for ids in self.tokenizer(self.colors[: self.first])["input_ids"]]
        )
        embeddings = self.model.get_input_embeddings().weight.detach()[words]
        visual = self.model.model.visual
        parameters = list(visual.parameters())
        optimizer, schedule = self.plan_training(
            parameters, self.settings.num_aligning_steps, rate=self.settings.aligning_rate
        )
        # At random weights pictures are a hundred times as loud as words. They are trained at their
        # own loudness, which the learning rate suits, and then turned down.
        with torch.no_grad():
            louder = self.look(pixels[:8], grids[:8]).norm() / embeddings[:8].norm()
        for _ in range(self.settings.num_aligning_steps):
            places = self.rng.choices(range(self.first), k=self.settings.batch_size)
            wanted = embeddings[places]
            missed = self.look(pixels[places], grids[places]) / louder - wanted
            loss = missed.square().sum() / wanted.square().sum()
            _take_step(optimizer, schedule, loss, parameters)
        with torch.no_grad():
            for parameter in visual.merger.mlp[-1].parameters():
                parameter /= louder

    def teach(self) -> bool:
        """Train the language model on episodes with the scenes that were not for aligning.

        Returns:
            Whether it was trained to the end: after half of the steps it must look words up.
        """
        settings = self.settings
        self.model.model.visual.requires_grad_(False)
        parameters = list(self.model.model.language_model.parameters())
        optimizer, schedule = self.plan_training(
            parameters, settings.num_steps, rate=settings.learning_rate
        )
        tokens = self.see(range(self.first, settings.num_scenes))
        scenes: dict[str, list[int]] = {}
        for place, color in enumerate(self.colors[self.first :]):
            scenes.setdefault(color, []).append(place)

        def draw(num_shots: int) -> list[list[Turn]]:
            drawn = range(settings.batch_size)
            return [draw_episode(scenes, num_shots=num_shots, rng=self.rng) for _ in drawn]

        for step in range(settings.num_steps):
            if step == settings.num_steps // 2:
                share = self.measure_looked_up(tokens, draw(settings.max_shots))
                if share < settings.min_looked_up:
                    return False
            episodes = draw(self.rng.randint(1, settings.max_shots))
            _take_step(optimizer, schedule, self.find_loss(tokens, episodes), parameters)
        return True

    def plan_training(
        self, parameters: list[torch.nn.Parameter], num_steps: int, *, rate: float
    ) -> tuple[Any, Any]:
        """Return AdamW and its schedule: a warm-up, a plateau and a fall over the last 40 %."""
        optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98))
        return optimizer, torch.optim.lr_scheduler.LambdaLR(
            optimizer,
            lambda done: min(1.0, (done + 1) / 30, max(0.05, (1 - done / num_steps) / 0.4)),
        )

    def process(self, places: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the patches of scenes, shape [scenes, patches, values], and their grids."""
        pictures = [self.pictures[place] for place in places]
        done = self.policy.processor.image_processor(images=pictures, return_tensors="pt")
        return done["pixel_values"].unflatten(0, (len(pictures), -1)), done["image_grid_thw"]

    def look(self, pixels: torch.Tensor, grids: torch.Tensor) -> torch.Tensor:
        """Return the tokens of scenes, shape [scenes, hidden]."""
        features = self.model.model.get_image_features(pixels.flatten(0, 1), grids)
        return torch.cat(list(features.pooler_output))

    def see(self, places: Sequence[int]) -> torch.Tensor:
        """Return the tokens of scenes without their gradients, shape [scenes, hidden]."""
        size = self.settings.batch_size
        parts = [places[start : start + size] for start in range(0, len(places), size)]
        with torch.no_grad():
            return torch.cat([self.look(*self.process(part)) for part in parts])

    def find_loss(self, tokens: torch.Tensor, episodes: Sequence[Sequence[Turn]]) -> torch.Tensor:
        """Return the mean cross-entropy of what is taught; ``tokens`` are those of the scenes."""
        logits, wanted = self.answer(tokens, episodes)
        losses = functional.cross_entropy(logits, wanted, reduction="none")
        weights = torch.where(wanted == self.tokenizer.eos_token_id, _END_WEIGHT, 1.0)
        return (losses * weights).sum() / weights.sum()

    def measure_looked_up(self, tokens: torch.Tensor, episodes: Sequence[Sequence[Turn]]) -> float:
        """Return the share of the words that are asked for which are right, in [0, 1]."""
        with torch.no_grad():
            logits, wanted = self.answer(tokens, episodes)
        is_word = wanted != self.tokenizer.eos_token_id
        return float((logits.argmax(-1) == wanted)[is_word].float().mean())

    def answer(
        self, tokens: torch.Tensor, episodes: Sequence[Sequence[Turn]]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits of what is taught, shape [taught, words], and what is wanted, [taught]."""
        rows = [self.write(episode) for episode in episodes]
        ids, wanted = (
            pad_sequence([row[part] for row in rows], batch_first=True, padding_value=padding)
            for part, padding in ((0, int(self.tokenizer.pad_token_id)), (1, IGNORED))
        )
        shown = [turn.place for episode in episodes for turn in episode]
        # A picture is one token, so its position is a text token's and the model's own suffice.
        embedded = self.model.get_input_embeddings()(ids).masked_scatter(
            (ids == self.picture_id).unsqueeze(-1), tokens[shown]
        )
        hidden = self.model.model.language_model(inputs_embeds=embedded).last_hidden_state
        is_taught = wanted != IGNORED
        return self.model.lm_head(hidden[is_taught]), wanted[is_taught]

    def write(self, episode: Sequence[Turn]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return token ids as a prompt has them and what is taught behind each, shape [tokens].

        An answer that is taught ends with the end token; what stands there is the next line.
        """
        ids: list[int] = []
        wanted: list[int] = []
        for turn in episode:
            asked, told, ends = self.tokenizer([turn.question, turn.word, ANSWERER_FORM.between])[
                "input_ids"
            ]
            ids += [*asked, self.picture_id, *told, *ends]
            answer = [*told, self.tokenizer.eos_token_id]
            hidden = [IGNORED] * len(answer)
            wanted += [IGNORED] * len(asked) + (answer if turn.is_taught else hidden)
            wanted += [IGNORED] * len(ends)
        return torch.tensor(ids), torch.tensor(wanted)


def _take_step(
    optimizer: Any, schedule: Any, loss: torch.Tensor, parameters: list[torch.nn.Parameter]
) -> None:
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
    schedule.step()
