"""Data: screenshots, pairs, splits, and the audit that says what to trust."""

from groupwise.data.audit import DataAudit, SplitSummary, audit_data
from groupwise.data.audit_files import list_near_examples, render_audit, write_audit
from groupwise.data.augmentation import PictureAugmentation, augment_picture
from groupwise.data.drops import Drop, DropLog
from groupwise.data.example_files import read_examples, write_examples
from groupwise.data.few_shot import PUBLISHED_VQA, FewShotForm
from groupwise.data.joining import (
    drop_near,
    join_by_files,
    join_near_duplicates,
)
from groupwise.data.leakage import find_near_pictures, find_seen
from groupwise.data.lengths import LengthSummary, TokenBudget
from groupwise.data.near_texts import find_near_texts
from groupwise.data.ocr import TextReader, check_ocr, describe_ocr
from groupwise.data.pairs import Pair, make_pairs
from groupwise.data.perceptual import NearDuplicate, Sight, find_near_duplicates
from groupwise.data.problems import (
    SET_NAMES,
    LoadedProblems,
    MixedProblems,
    MixSettings,
    Problem,
    ProblemSource,
    ProblemType,
    SetName,
    fetch_problems,
    letter_options,
    load_problems,
    mix_problems,
    read_problems,
    report_test_parts,
    write_mix,
)
from groupwise.data.rated import RatedFormat, RatedItem, RatedItems, find_rated, load_rated
from groupwise.data.screenshots import (
    PICTURE_COLUMNS,
    LoadedScreens,
    Screenshot,
    digest_screenshots,
    load_screenshots,
    read_moment,
    read_screen,
)
from groupwise.data.splits import (
    KEEPING_ORDER,
    NearDuplicates,
    drop_shared,
    split_by_fold,
    split_by_session,
    split_by_shares,
    split_clusters,
)
from groupwise.data.tables.asked import AskedRow, ask_about_row, read_asked_rows
from groupwise.data.tables.files import read_table_rows
from groupwise.data.tables.loading import LoadedTable, digest_table, load_labelled, load_table
from groupwise.data.tables.settings import ALLOWED, SPLITS, TableColumns, TableSettings
from groupwise.data.tables.templates import fill_template, find_place_problem
from groupwise.data.vqa import (
    LoadedVqa,
    VqaRow,
    digest_vqa_pictures,
    load_vqa,
    make_vqa_example,
    measure_agreement,
    name_coco_picture,
)

__all__ = [
    "ALLOWED",
    "KEEPING_ORDER",
    "PICTURE_COLUMNS",
    "PUBLISHED_VQA",
    "SET_NAMES",
    "SPLITS",
    "AskedRow",
    "DataAudit",
    "Drop",
    "DropLog",
    "FewShotForm",
    "LengthSummary",
    "LoadedProblems",
    "LoadedScreens",
    "LoadedTable",
    "LoadedVqa",
    "MixSettings",
    "MixedProblems",
    "NearDuplicate",
    "NearDuplicates",
    "Pair",
    "PictureAugmentation",
    "Problem",
    "ProblemSource",
    "ProblemType",
    "RatedFormat",
    "RatedItem",
    "RatedItems",
    "Screenshot",
    "SetName",
    "Sight",
    "SplitSummary",
    "TableColumns",
    "TableSettings",
    "TextReader",
    "TokenBudget",
    "VqaRow",
    "ask_about_row",
    "audit_data",
    "augment_picture",
    "check_ocr",
    "describe_ocr",
    "digest_screenshots",
    "digest_table",
    "digest_vqa_pictures",
    "drop_near",
    "drop_shared",
    "fetch_problems",
    "fill_template",
    "find_near_duplicates",
    "find_near_pictures",
    "find_near_texts",
    "find_place_problem",
    "find_rated",
    "find_seen",
    "join_by_files",
    "join_near_duplicates",
    "letter_options",
    "list_near_examples",
    "load_labelled",
    "load_problems",
    "load_rated",
    "load_screenshots",
    "load_table",
    "load_vqa",
    "make_pairs",
    "make_vqa_example",
    "measure_agreement",
    "mix_problems",
    "name_coco_picture",
    "read_asked_rows",
    "read_examples",
    "read_moment",
    "read_problems",
    "read_screen",
    "read_table_rows",
    "render_audit",
    "report_test_parts",
    "split_by_fold",
    "split_by_session",
    "split_by_shares",
    "split_clusters",
    "write_audit",
    "write_examples",
    "write_mix",
]
