"""Settings of the group_qc recipe, as written in its YAML files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, cast, get_args

from pydantic import Field, model_validator

from groupwise.core import BUDGET, Config, Source, dump_config
from groupwise.inference.settings import RaySettings, Sampling, ServerSettings, StreamSettings
from groupwise.run.settings import DataSettings, FlowConfig
from groupwise.training.settings import GrpoSettings, SftSettings
from groupwise_recipes.group_qc.missions import Mission, MissionTable, load_missions
from groupwise_recipes.group_qc.photos import LabelFolders
from groupwise_recipes.group_qc.rewards import GroupRewards
from groupwise_recipes.group_qc.words import Language, Line, Prompts, Words, load_words


class DrawnSettings(Config):
    """Cabinets drawn by the generator.

    Attributes:
        num_groups: of all missions together; 0 draws none.
        width, height: of a photo, in pixels.
        variety: in [0, 1]; how much places, colours, view and light stray.
    """

    retired: ClassVar = {"pass_share": (0.5,), "language": ("zh", "en")}

    num_groups: int = Field(default=0, ge=0, le=10_000_000)
    width: int = Field(default=224, ge=112, le=4096)
    height: int = Field(default=168, ge=84, le=4096)
    variety: float = Field(default=0.5, ge=0, le=1)


class PhotoLabels(Config):
    """A table that says what photos show, to teach Stage A from and to measure its lines by.

    Attributes:
        file: CSV or JSONL below the root with the columns ``photo`` (path below the root) and
            ``column``.
        column: holds the word for what the photo shows, or the description itself.
        texts: what Stage A is to say for each word; None: what stands in the column.
    """

    file: str = "photo_labels.csv"
    column: str = "defect"
    texts: dict[str, str] | None = Field(default=None, min_length=1)


class GroupData(DataSettings):
    """Where the photo groups come from and how they are split; a group id is never divided.

    Attributes:
        root: ``<root>/<mission>/{审核通过|审核不通过}/<group>/*.jpg``; None: groups are drawn.
        pass_folder, fail_folder: names of the folders of photo groups that were judged.
        drawn: groups to draw; with a root none are drawn.
        summaries: JSONL files of Stage A, to begin with Stage B; with a root the photos are there.
        missions: a file that adds missions to the built-in table, or a table that stands instead.
        photo_labels: what photos of a root show: Stage A is taught from it, and its lines measured.
        teach_share: of the group ids, whose photos teach Stage A. 0: those of the warm-up and GRPO
            groups do.
        warmup_share, validation_share, test_share: of the group ids; the rest is for GRPO. A
            warm-up share of 0 uses the GRPO groups for the warm-up, too.
        budget: of Stage B prompts.
        mirror_invariant: off, because left and right may matter.
    """

    root: Annotated[Path | None, Source("data")] = None
    pass_folder: Line = "审核通过"
    fail_folder: Line = "审核不通过"
    drawn: DrawnSettings = DrawnSettings()
    summaries: Annotated[tuple[Path, ...], Source("data")] = ()
    missions: Path | dict[str, Mission] | None = None
    photo_labels: PhotoLabels | None = None
    teach_share: float = Field(default=0.0, ge=0, lt=1)
    warmup_share: float = Field(default=0.1, ge=0, lt=1)
    validation_share: float = Field(default=0.1, gt=0, lt=1)
    test_share: float = Field(default=0.2, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if self.root is None and self.drawn.num_groups == 0 and not self.summaries:
            raise ValueError(
                "there is no data: set data.root, data.drawn.num_groups or data.summaries"
            )
        if self.summaries and self.teach_share:
            raise ValueError("data.summaries: Stage A is not taught; leave out data.teach_share")
        needs_photos = {
            "near_duplicates": self.near_duplicates != "warn",
            "photo_labels": self.photo_labels is not None,
        }
        for name, is_given in needs_photos.items():
            if is_given and self.summaries and self.root is None:
                raise ValueError(f"data.{name} needs the photos: set data.root, too")
        folders = (self.pass_folder, self.fail_folder)
        if len(set(folders)) < 2 or any("/" in one or one.startswith(".") for one in folders):
            raise ValueError("data.pass_folder and data.fail_folder need two names of folders")
        if sum(share for name, share in self.list_shares().items() if name != "train") >= 1:
            raise ValueError("the shares of data leave no groups for GRPO")
        return self

    @property
    def folders(self) -> LabelFolders:
        """The folders of photo groups that were judged, and what they were judged."""
        return {self.pass_folder: "pass", self.fail_folder: "fail"}

    def list_shares(self) -> Mapping[str, float]:
        """Return the share of the group ids by split, without splits that have none."""
        given = {
            "teach": self.teach_share,
            "warmup": self.warmup_share,
            "validation": self.validation_share,
            "test": self.test_share,
        }
        shares = {name: share for name, share in given.items() if share}
        return {**shares, "train": 1 - sum(shares.values())}

    def load_missions(self) -> MissionTable:
        """Return the table that both stages use."""
        return load_missions(self.missions)


class TeachSettings(SftSettings):
    """Stage A taught from photos and, to a tiny random-init model, lessons in reading.

    What LoRA trains is merged into the base, which Stage B then gets an adapter of its own on.

    Attributes:
        photos_per_epoch: drawn anew in every epoch; None: as many as there are.
        balance: in [0, 1]; how far rare descriptions are drawn as often as frequent ones, with
            repetitions. 0: every photo as often as any other.
        reading_per_epoch: questions about lists of descriptions, which have no verdicts.
    """

    photos_per_epoch: Annotated[int | None, BUDGET] = Field(default=None, ge=1)
    balance: float = Field(default=0.0, ge=0, le=1)
    reading_per_epoch: Annotated[int, BUDGET] = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check_validation(self) -> Self:
        if self.validation is not None:
            raise ValueError("Stage A has no measure to look at: leave teach.validation out")
        return self


class SummarySettings(Config):
    """How and where Stage A runs: in this process, unless a server or workers are given.

    Attributes:
        sampling: of descriptions.
        stream: batches.
        server: where the base model is served, without the adapter.
        ray: workers that have a copy of the base model each.
    """

    sampling: Sampling = Sampling(max_new_tokens=1024, repetition_penalty=1.1)
    stream: StreamSettings = StreamSettings(batch_size=16)
    server: ServerSettings | None = None
    ray: RaySettings | None = None

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        if self.server is not None and self.ray is not None:
            raise ValueError("summaries run on a server or on Ray's workers: set one of them")
        return self

    def describe(self) -> dict[str, Any]:
        """Return the JSON values that summaries depend on: what describes, not where it runs."""
        values = self.model_dump(mode="json", exclude={"server", "ray"})
        if self.server is not None:
            values["server"] = {"model": self.server.model, "revision": self.server.revision}
        return values


class WarmupSettings(SftSettings):
    """SFT of Stage B on few labelled groups, with reasons made from their summaries.

    Attributes:
        num_groups: at most so many, drawn by the seed; None: all of the warm-up split.
    """

    num_groups: Annotated[int | None, BUDGET] = Field(default=None, ge=1, le=10_000_000)


class GroupQcConfig(FlowConfig):
    """The whole job.

    Attributes:
        language: of what is asked, answered, taught and drawn.
        teach: Stage A is taught from descriptions of photos; None: the base knows it.
        summaries: Stage A over all groups.
        sft: the warm-up of Stage B; None: GRPO starts from the base.
        grpo: Stage B from verdicts; its ``trainable`` must be what the warm-up trained.
    """

    retired: ClassVar = {"prediction": ({"min_confidence": 0.8},)}
    data: GroupData
    language: Language = "zh"
    teach: TeachSettings | None = None
    summaries: SummarySettings = SummarySettings()
    rewards: GroupRewards = GroupRewards()
    sft: WarmupSettings | None

    @model_validator(mode="before")
    @classmethod
    def _read_words(cls, values: Any) -> Any:
        """Return the settings with the language for the words that finished runs say."""
        if not isinstance(values, Mapping):
            return values
        given = cast("Mapping[str, Any]", values)
        rest = {key: one for key, one in given.items() if key not in ("words", "prompts")}
        for language in get_args(Language) if "words" in given and "language" not in given else ():
            words, prompts = (dump_config(one) for one in load_words(language))
            if (given["words"], given.get("prompts", prompts)) == (words, prompts):
                given = {**rest, "language": language}
                break
        data = given.get("data")
        drawn: Any = (
            cast("Mapping[str, Any]", data).get("drawn") if isinstance(data, Mapping) else 0
        )
        if isinstance(drawn, Mapping):
            told, own = cast("Mapping[str, Any]", drawn), given.get("language", "zh")
            if told.get("num_groups") and told.get("language", own) != own:
                raise ValueError(f"data.drawn.language is gone: set language={told['language']}")
        return given

    @property
    def words(self) -> Words:
        """What is written and read in the language."""
        return load_words(self.language)[0]

    @property
    def prompts(self) -> Prompts:
        """What is asked in the language."""
        return load_words(self.language)[1]

    @model_validator(mode="after")
    def _check_stages(self) -> Self:
        problem = self._find_problem()
        if problem:
            raise ValueError(problem)
        for name, stage in (("sft", self.sft), ("grpo", self.grpo)):
            if stage is not None and stage.trainable.method != "lora":
                raise ValueError(
                    f"{name}.trainable.method must be lora: Stage A runs on the same model with "
                    "the adapter off"
                )
        return self

    def list_trainings(self) -> dict[str, SftSettings | GrpoSettings]:
        """Return those of the flow behind what teaches Stage A."""
        trainings = super().list_trainings()
        return trainings if self.teach is None else {"teach": self.teach, **trainings}

    def _find_problem(self) -> str:
        """Return what is wrong about Stage A or a missing warm-up, or an empty text."""
        if self.sft is None and self.data.warmup_share:
            return "data.warmup_share must be 0 where sft is null: nothing warms up"
        if self.teach is None:
            if self.model.is_tiny and not self.data.summaries:
                return (
                    "a tiny random-init model knows nothing of photos: set teach, data.summaries "
                    "or another model.base"
                )
            return ""
        if self.model.quantization is not None:
            return "teach makes a base, which 4 bits would round again; set model.quantization null"
        if self.data.summaries:
            return "teach and data.summaries: Stage A is not run, nor taught; leave one out"
        if self.summaries.server is not None:
            return "summaries.server is for published bases: no server has what is taught here"
        if self.data.root is not None and self.data.photo_labels is None:
            return "teach needs to know what photos of data.root show: set data.photo_labels"
        return ""
