"""Evaluation records for others: Parquet and CSV of every item, and harness-style results."""

from groupwise.evaluation.interchange.lm_eval import write_lm_eval
from groupwise.evaluation.interchange.source import RunRecords, read_records
from groupwise.evaluation.interchange.tables import (
    FORMAT_VERSION,
    METADATA_KEY,
    SCHEMA,
    describe_records,
    read_parquet,
    write_csv,
    write_parquet,
)

__all__ = [
    "FORMAT_VERSION",
    "METADATA_KEY",
    "SCHEMA",
    "RunRecords",
    "describe_records",
    "read_parquet",
    "read_records",
    "write_csv",
    "write_lm_eval",
    "write_parquet",
]
