"""The words every other layer speaks: examples, pictures, scores, errors, configs, runs.

Nothing here knows about models, training or any task.
"""

from groupwise.core.allocation import keep_freed_memory
from groupwise.core.child_processes import (
    ChildProcess,
    make_dependent,
    start_child,
    stop_children,
)
from groupwise.core.config import (
    Config,
    dump_config,
    flatten_settings,
    load_config,
)
from groupwise.core.config_files import read_config
from groupwise.core.digests import digest_bytes, digest_file, digest_json
from groupwise.core.disks import describe_disk, explain_disk
from groupwise.core.effects import (
    BUDGET,
    Effect,
    Harmless,
    Place,
    Source,
    find_effect,
    list_effects,
)
from groupwise.core.errors import (
    ConfigError,
    DataError,
    EvaluationError,
    GroupwiseError,
    JudgeError,
    ModelError,
    RewardError,
    RunError,
    SandboxError,
    ScoreRangeError,
    ServingError,
    TrainingError,
)
from groupwise.core.example import (
    ROW_FIELD,
    Completion,
    Example,
    Fact,
    Message,
    Picture,
    Score,
    make_example,
    read_picture,
    split_opening,
)
from groupwise.core.findings import MAX_PLACES, Finding, FindingLevel, report_places
from groupwise.core.hints import describe_unknown, find_nearest, suggest_name
from groupwise.core.jsonl import (
    append_jsonl,
    read_json,
    read_jsonl,
    replace_file,
    write_json,
    write_jsonl,
    write_text,
)
from groupwise.core.locks import is_locked, take_lock
from groupwise.core.memory import read_free_memory, read_total_memory
from groupwise.core.outputs import (
    STEP_DONE,
    check_folder,
    check_records,
    check_sealed,
    find_unlike,
    read_manifest,
    seal,
    write_digests,
)
from groupwise.core.paths import drop_folders, is_below
from groupwise.core.pictures import (
    LARGE_PIXELS,
    convert_picture,
    open_lazily,
    open_picture,
    shows_as_it_is,
    shrink_picture,
    store_picture,
    wait_to_decode,
)
from groupwise.core.progress import ProgressLine, Say, describe_duration, hush, keep_telling
from groupwise.core.python_source import parse_python
from groupwise.core.result_file import ResultFile
from groupwise.core.runs import RunFolder, describe_machine, list_gpus, list_packages
from groupwise.core.seeds import Seed, derive_seed, seed_everything
from groupwise.core.shapes import parse_value
from groupwise.core.yaml_loader import parse_yaml

__all__ = [
    "BUDGET",
    "LARGE_PIXELS",
    "MAX_PLACES",
    "ROW_FIELD",
    "STEP_DONE",
    "ChildProcess",
    "Completion",
    "Config",
    "ConfigError",
    "DataError",
    "Effect",
    "EvaluationError",
    "Example",
    "Fact",
    "Finding",
    "FindingLevel",
    "GroupwiseError",
    "Harmless",
    "JudgeError",
    "Message",
    "ModelError",
    "Picture",
    "Place",
    "ProgressLine",
    "ResultFile",
    "RewardError",
    "RunError",
    "RunFolder",
    "SandboxError",
    "Say",
    "Score",
    "ScoreRangeError",
    "Seed",
    "ServingError",
    "Source",
    "TrainingError",
    "append_jsonl",
    "check_folder",
    "check_records",
    "check_sealed",
    "convert_picture",
    "derive_seed",
    "describe_disk",
    "describe_duration",
    "describe_machine",
    "describe_unknown",
    "digest_bytes",
    "digest_file",
    "digest_json",
    "drop_folders",
    "dump_config",
    "explain_disk",
    "find_effect",
    "find_nearest",
    "find_unlike",
    "flatten_settings",
    "hush",
    "is_below",
    "is_locked",
    "keep_freed_memory",
    "keep_telling",
    "list_effects",
    "list_gpus",
    "list_packages",
    "load_config",
    "make_dependent",
    "make_example",
    "open_lazily",
    "open_picture",
    "parse_python",
    "parse_value",
    "parse_yaml",
    "read_config",
    "read_free_memory",
    "read_json",
    "read_jsonl",
    "read_manifest",
    "read_picture",
    "read_total_memory",
    "replace_file",
    "report_places",
    "seal",
    "seed_everything",
    "shows_as_it_is",
    "shrink_picture",
    "split_opening",
    "start_child",
    "stop_children",
    "store_picture",
    "suggest_name",
    "take_lock",
    "wait_to_decode",
    "write_digests",
    "write_json",
    "write_jsonl",
    "write_text",
]
