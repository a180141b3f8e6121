"""What published models see of examples, for the joint baseline to learn on; none is trained.

These are the base's own hidden states, sentence embeddings, and features of pictures, each where
its model is here. What was computed is kept in a folder, and an interrupted stage goes on with it.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from groupwise.core import Example, ProgressLine, digest_json, open_picture, write_json
from groupwise.evaluation.baselines import Candidate, read_text
from groupwise.inference.local import LocalModel
from groupwise.models.base_model import find_num_blocks
from groupwise.models.embedders import SENTENCES, TOWER, embed_pictures, embed_texts, find_embedder
from groupwise.run.asking import RANKED, open_policy
from groupwise.run.steps import StepContext

MAX_STATES = 1000
"""Examples, asked and learned from, whose hidden states are read: a pass of the base for each."""
MAX_EMBEDDED = 4000
"""Examples that are embedded: their models are small."""
_SHARES = (0.25, 0.5, 0.75, 1.0)
_POOLINGS = ("mean", "last token")
Rows = NDArray[np.float32]


class Probes:
    """Features of examples, as ``predict_joint`` takes them; kept in the folder of the step.

    ``base`` is the untrained policy, ``train`` what is learned from, ``test`` what is asked.
    """

    def __init__(
        self,
        config: Any,
        base: str | Path,
        context: StepContext,
        train: Sequence[Example],
        test: Sequence[Example] = (),
    ) -> None:
        self._config, self._base, self._context = config, base, context
        self._num_pictures = max(len(example.pictures) for example in train)
        num = len(train) + len(test)
        self.left_out: dict[str, str] = {}  # what the joint baseline does not see, with the reason
        if config.model.is_tiny:
            self.left_out["hidden states"] = "the base is tiny and random"
        elif num > MAX_STATES:
            self.left_out["hidden states"] = f"{num:,} examples are more than {MAX_STATES:,}"
        for title, name in (("sentence embeddings", SENTENCES), ("picture features", TOWER)):
            if name == TOWER and not self._num_pictures:
                self.left_out[title] = "there are no pictures"
            elif name == SENTENCES and len({read_text(example) for example in train}) == 1:
                self.left_out[title] = "the texts do not differ"
            elif num > MAX_EMBEDDED:
                self.left_out[title] = f"{num:,} examples are more than {MAX_EMBEDDED:,}"
            elif find_embedder(name) is None:
                self.left_out[title] = f"{name} is not here: groupwise models fetch {name}"

    def __call__(self, examples: Sequence[Example]) -> dict[str, Rows]:
        """Return features (examples, width) by what they are."""
        found: dict[str, Rows] = {}
        if "hidden states" not in self.left_out:
            num_blocks = find_num_blocks(str(self._base)) or 1
            blocks = sorted({max(1, int(share * num_blocks)) for share in _SHARES})
            states = self._keep("states", examples, partial(self._read_states, blocks=blocks))
            found |= {
                f"hidden states of block {block}, {pooling}": states[:, i, j]
                for i, block in enumerate(blocks)
                for j, pooling in enumerate(_POOLINGS)
            }
        if "sentence embeddings" not in self.left_out:
            found["sentence embeddings"] = self._keep("sentences", examples, self._embed_texts)
        if "picture features" not in self.left_out:
            found["picture features"] = self._keep("pictures", examples, self._embed_pictures)
        if {"sentence embeddings", "picture features"} <= found.keys():
            both = (found["picture features"], found["sentence embeddings"])
            found["picture features and sentence embeddings"] = np.hstack(both)
        return found

    def record(self, candidates: Sequence[Candidate]) -> None:
        """Write how the candidates were ranked, and what none of them saw."""
        ranked = [{"name": one.name, "accuracy": one.accuracy} for one in candidates]
        write_json(self._context.folder / RANKED, {"ranked": ranked, "left_out": self.left_out})

    def _keep(
        self, name: str, examples: Sequence[Example], read: Callable[[Sequence[Example]], Rows]
    ) -> Rows:
        """Return what is kept, or what is read now."""
        digest = digest_json([example.id for example in examples])
        path = self._context.folder / "probes" / f"{name}-{digest}.npy"
        if not path.is_file():
            path.parent.mkdir(exist_ok=True)
            part = path.with_suffix(".part.npy")
            np.save(part, read(examples))
            part.replace(path)
        return np.load(path)

    def _read_states(self, examples: Sequence[Example], *, blocks: Sequence[int]) -> Rows:
        policy = open_policy(self._config, self._base)
        engine = LocalModel(policy, batch_size=self._config.evaluation.batch_size)
        # Rows of one batch are padded to the longest of them.
        order = sorted(range(len(examples)), key=lambda i: len(read_text(examples[i])))
        found = engine.hidden_states(
            [examples[i] for i in order],
            blocks=blocks,
            report_progress=ProgressLine("prompts read for the joint baseline", self._context.say),
        ).numpy()
        rows = np.empty_like(found)
        rows[order] = found
        return rows

    def _embed_texts(self, examples: Sequence[Example]) -> Rows:
        report = ProgressLine("texts embedded", self._context.say)
        return embed_texts(_find(SENTENCES), [read_text(one) for one in examples], report)

    def _embed_pictures(self, examples: Sequence[Example]) -> Rows:
        """Return the mean over an example's pictures; of several mean, lowest and highest."""
        paths = {one.digest: one.path for example in examples for one in example.pictures}
        opened = (open_picture(Path(path)) for path in paths.values())
        report = ProgressLine("pictures embedded", self._context.say)
        rows = embed_pictures(_find(TOWER), opened, report, num_pictures=len(paths))
        known = dict(zip(paths, rows, strict=True))
        own = [np.stack([known[p.digest] for p in e.pictures] or [0 * rows[0]]) for e in examples]
        num_parts = 1 if self._num_pictures == 1 else 3
        return np.stack([np.hstack((o.mean(0), o.min(0), o.max(0))[:num_parts]) for o in own])


def _find(name: str) -> Path:
    folder = find_embedder(name)
    if folder is None:  # it was there when the stage began
        raise FileNotFoundError(name)
    return folder
