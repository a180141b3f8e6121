"""The words every other layer speaks: examples, pictures, scores, errors, configs, runs.

Nothing here knows about models, training or any task.
"""

from groupwise.core.child_processes import ChildProcess, make_dependent, start_child, stop_children
from groupwise.core.config import (
    BUDGET,
    Config,
    Effect,
    Harmless,
    Place,
    Source,
    describe_unknown,
    dump_config,
    find_effect,
    find_nearest,
    flatten_settings,
    list_effects,
    load_config,
    suggest_name,
)
from groupwise.core.config_files import parse_yaml, read_config
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
from groupwise.core.files import (
    append_jsonl,
    describe_disk,
    digest_bytes,
    digest_file,
    digest_json,
    drop_folders,
    explain_disk,
    find_state,
    is_below,
    is_locked,
    parse_value,
    read_json,
    read_jsonl,
    read_once,
    replace_file,
    take_lock,
    write_json,
    write_jsonl,
    write_text,
)
from groupwise.core.memory import keep_freed_memory, read_free_memory, read_total_memory
from groupwise.core.pictures import (
    LARGE_PIXELS,
    convert_picture,
    open_lazily,
    open_picture,
    shows_as_it_is,
    store_picture,
    wait_to_decode,
)
from groupwise.core.progress import ProgressLine, Say, describe_duration, hush, keep_telling
from groupwise.core.python_source import parse_python
from groupwise.core.result_file import ResultFile
from groupwise.core.runs import (
    STEP_DONE,
    RunFolder,
    check_folder,
    check_records,
    check_sealed,
    describe_machine,
    find_unlike,
    list_gpus,
    list_packages,
    read_manifest,
    seal,
    write_digests,
)
from groupwise.core.seeds import Seed, derive_seed, seed_everything
from groupwise.core.types import (
    MAX_PLACES,
    ROW_FIELD,
    Completion,
    Example,
    Fact,
    Finding,
    FindingLevel,
    Message,
    Picture,
    Score,
    make_example,
    read_picture,
    report_places,
    split_opening,
)

__all__ = [
    "BUDGET", "LARGE_PIXELS", "MAX_PLACES", "ROW_FIELD", "STEP_DONE", "ChildProcess",
    "Completion", "Config", "ConfigError", "DataError", "Effect", "EvaluationError",
    "Example", "Fact", "Finding", "FindingLevel", "GroupwiseError", "Harmless",
    "JudgeError", "Message", "ModelError", "Picture", "Place", "ProgressLine",
    "ResultFile", "RewardError", "RunError", "RunFolder", "SandboxError", "Say", "Score",
    "ScoreRangeError", "Seed", "ServingError", "Source", "TrainingError", "append_jsonl",
    "check_folder", "check_records", "check_sealed", "convert_picture", "derive_seed",
    "describe_disk", "describe_duration", "describe_machine", "describe_unknown",
    "digest_bytes", "digest_file", "digest_json", "drop_folders", "dump_config",
    "explain_disk", "find_effect", "find_nearest", "find_state", "find_unlike",
    "flatten_settings", "hush", "is_below", "is_locked", "keep_freed_memory",
    "keep_telling", "list_effects", "list_gpus", "list_packages", "load_config",
    "make_dependent", "make_example", "open_lazily", "open_picture", "parse_python",
    "parse_value", "parse_yaml", "read_config", "read_free_memory", "read_json",
    "read_jsonl", "read_manifest", "read_once", "read_picture", "read_total_memory",
    "replace_file", "report_places", "seal", "seed_everything", "shows_as_it_is",
    "split_opening", "start_child", "stop_children", "store_picture", "suggest_name",
    "take_lock", "wait_to_decode", "write_digests", "write_json", "write_jsonl",
    "write_text",
]  # fmt: skip
