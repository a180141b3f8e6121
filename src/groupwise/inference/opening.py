"""Loading a model, or making ready to ask a server, as settings say."""

from pathlib import Path
from typing import Any

from groupwise.core import ModelError
from groupwise.inference.model import Model
from groupwise.inference.settings import ModelSource


def open_model(settings: ModelSource) -> Model:
    """Load the model, or make ready to ask the server.

    Raises:
        ModelError: if the model or the tokenizer cannot be loaded.
        ConfigError: if the server's key is not set.
    """
    max_pixels = settings.max_pixels
    if settings.server is not None:
        from groupwise.inference.server import ServerModel

        tokenizer: Any = None
        if settings.tokenizer is not None:
            from groupwise.models.processor import load_processor

            try:
                tokenizer = load_processor(settings.tokenizer, model_type="", has_vision=False)
            except (OSError, ValueError) as error:
                what = f"cannot load the tokenizer {settings.tokenizer}"
                raise ModelError(f"{what} ({str(error).splitlines()[0]})") from error
        return ServerModel(settings.server, tokenizer=tokenizer, max_pixels=max_pixels)
    # Behind the server's branch: another trainer's environment may lack what these need.
    from groupwise.inference.local import LocalModel
    from groupwise.models.policy import load_policy

    assert settings.model is not None
    policy = load_policy(settings.model, dtype=settings.dtype, max_pixels=max_pixels)
    name = Path(settings.model).name
    return LocalModel(policy, batch_size=settings.batch_size, name=name, max_pixels=max_pixels)
