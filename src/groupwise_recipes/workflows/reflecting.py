"""The model that reflects on programs: asked one text at a time, and what it said is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from groupwise.core import (
    Message,
    ModelError,
    append_jsonl,
    derive_seed,
    digest_json,
    make_example,
    read_jsonl,
)
from groupwise.inference.model import (
    Model,
    RequestError,
    Usage,
    ask_until_whole,
    run_on_shared_loop,
)
from groupwise.judges import Asker
from groupwise_recipes.workflows.config import GepaSettings


class Reflector:
    """Asks a model, each time under a seed of its own.

    A search that is begun again with the same seed asks the same; what was said then is in the
    file and is not asked for again.

    Args:
        responder: the model.
        settings: sampling and retries.
        path: of the file.
        seed: of the run.
    """

    def __init__(self, responder: Model, settings: GepaSettings, *, path: Path, seed: int) -> None:
        self.num_asked = 0
        self._responder = responder
        self._sampling = settings.sampling
        self._asker = Asker(cache=None, settings=settings.retry)
        self._path = path
        self._seed = seed
        rows = read_jsonl(path) if path.exists() else []
        self._kept = {(row["number"], row["asked"]): str(row["said"]) for row in rows}

    def __call__(self, text: str) -> str:
        """Return what the model says."""
        number, asked = self.num_asked, digest_json(text)
        self.num_asked += 1
        said = self._kept.get((number, asked))
        if said is None:
            said = self._ask(text, derive_seed(self._seed, "reflection", number))
            append_jsonl(self._path, {"number": number, "asked": asked, "said": said})
        return said

    def _ask(self, text: str, seed: int) -> str:
        example = make_example([Message("user", text)], cluster="reflection")
        sampling = self._sampling.model_copy(update={"seed": seed})
        ask = ask_until_whole(self._responder, example, sampling)

        async def attempt() -> tuple[Mapping[str, Any], Usage]:
            said, used = await ask()
            return {"text": said}, used

        outcome = run_on_shared_loop(self._asker.ask(f"{seed}", attempt))
        if isinstance(outcome.result, RequestError):
            raise ModelError(
                f"the reflecting model does not answer ({str(outcome.result).rstrip('.')})",
                fix="look after it and run again: what was tried so far is kept",
            )
        return str(outcome.result["text"])
