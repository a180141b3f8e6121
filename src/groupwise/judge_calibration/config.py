"""Which judge is calibrated: a rule, a model in this process, or one behind a server."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from groupwise.core import Config
from groupwise.inference.engine import Sampling
from groupwise.inference.server_settings import ServerSettings
from groupwise.judges import JudgeSettings

RuleName = Literal["always_first", "longer", "shorter"]


class JudgeConfig(Config):
    """A judge and how it is asked.

    Attributes:
        kind: ``rule``, ``logit`` (probability of the labels) or ``generative`` (a tagged verdict).
        name: in the report; None: the rule, or the model's name.
        rule: of a rule: ``always_first``, ``longer`` or ``shorter``.
        model: a model folder or hub id, run in this process.
        server: where a model is served instead.
        tokenizer: folder or hub id of the served model's tokenizer, if at hand: the first tokens
            of labels are then known.
        prompt: name of a prompt of this package, or the path of a ``.txt`` file; None: the one
            for this kind of judge and data.
        language: of the package's prompt and of the report.
        labels: of the verdicts; None: ``first`` and ``second`` for pairs (a generative judge may
            also say ``tie``), else ``True`` and ``False``.
        tag: of a generative judge's verdict; None: ``better`` for pairs, else ``true_false``.
        sampling: of a generative judge; at a temperature of 0 the same question is asked once.
        dtype: of a model in this process.
        batch_size: of a model in this process.
        device_map: of a model in this process; ``auto`` spreads it over all devices.
        settings: retries, and when too many questions without a verdict stop the run.
    """

    kind: Literal["rule", "logit", "generative"]
    name: str | None = Field(default=None, pattern="^[^/]+$")
    rule: RuleName | None = None
    model: str | None = None
    server: ServerSettings | None = None
    tokenizer: str | None = None
    prompt: str | None = None
    language: Literal["en", "zh"] = "en"
    labels: tuple[str, ...] | None = None
    tag: str | None = None
    sampling: Sampling = Sampling(max_new_tokens=512)
    dtype: Literal["float32", "bfloat16", "float16", "auto"] = "auto"
    batch_size: int = Field(default=16, ge=1, le=65_536)
    device_map: Literal["auto"] | None = None
    settings: JudgeSettings = JudgeSettings()

    @model_validator(mode="after")
    def _check_parts(self) -> Self:
        given = [name for name in ("rule", "model", "server") if getattr(self, name) is not None]
        if self.kind == "rule" and given != ["rule"]:
            raise ValueError(f"a rule judge needs rule and nothing else; got {given or 'none'}")
        if self.kind != "rule" and given not in (["model"], ["server"]):
            raise ValueError(f"a {self.kind} judge needs model or server; got {given or 'none'}")
        if self.device_map is not None and self.model is None:
            raise ValueError("device_map needs model: nothing else is in this process")
        return self

    @property
    def title(self) -> str:
        """The judge's name in reports."""
        if self.name is not None:
            return self.name
        model = self.server.model if self.server is not None else self.model
        return str(self.rule) if model is None else Path(model).name

    @property
    def is_deterministic(self) -> bool:
        """Whether the same question always gets the same verdict."""
        return self.kind != "generative" or self.sampling.temperature == 0
