"""Releases for other software: rows as an Arrow table, and a description in Croissant."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from dpstats.arrays import Codes
from dpstats.measured.measurements import Measurements
from dpstats.privacy.neighbours import Neighbours
from dpstats.rows.drawing import random_order
from dpstats.schema import Category, Column, Number, Schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


_ROW_GROUP = 2**18  # rows
CAUTION = (
    "Synthetic rows: intervals and tests that treat them as data are wrong, as they leave out the "
    "privacy noise, and there may be more or fewer rows than people. Use release.infer, or with "
    "the rows alone dps.corrected.infer with the radius of the analysis and n."
)


def limits(neighbours: Neighbours) -> str:
    """State what a release promises, and what its intervals assume."""
    one = ", one row per person, without survey weights."
    several = (
        ", which several rows of one person are not, unless they say that they allow for that; "
        "without survey weights."
    )
    guaranteed = f"Guaranteed for any data: the privacy of {neighbours.rows}, and the certificate. "
    if neighbours.copies > 1:
        return (
            f"{guaranteed}Intervals for a population follow from the declared survey design: units "
            "drawn independently within strata, and weights taken as given."
        )
    return (
        f"{guaranteed}Intervals for a population assume rows drawn independently from it"
        f"{one if neighbours.rows_per_person == 1 else several}"
    )


def row_batches(
    columns: Schema, candidates: Mapping[str, Codes], counts: Codes, row_seed: int
) -> pa.RecordBatchReader:
    """The synthetic rows in their order, some at a time."""
    import pyarrow as pa

    distinct = arrow_rows(columns.to_frame(candidates), CAUTION)
    order = random_order(counts, row_seed)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, len(order), _ROW_GROUP):
            chosen = distinct.take(order[start : start + _ROW_GROUP])
            yield from chosen.combine_chunks().to_batches()

    return pa.RecordBatchReader.from_batches(distinct.schema, batches())


def arrow_rows(frame: pd.DataFrame, caution: str) -> pa.Table:
    """Rows as an Arrow table, dates as such, with the caution among its metadata."""
    import pyarrow as pa

    from dpstats.schema import arrow

    table = arrow.public_table(frame)
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.date32()))
    return table.replace_schema_metadata({"dpstats": caution})


def croissant_of(
    measurements: Measurements,
    columns: Schema,
    k: int,
    name: str,
    *,
    archive: str,
    digest: str,
    limitations: Sequence[str],
    details: Mapping[str, str],
) -> dict[str, Any]:
    """Describe a release with k rows in Croissant 1.0 (MLCommons 2024)."""
    held, rows = measurements, "rows.csv"
    context = resources.files("dpstats.releases").joinpath("croissant.json").read_text("utf-8")
    about = (
        f"Synthetic rows and noisy measurements under differential privacy: {held.budget}; "
        f"{held.neighbours}. {k} synthetic rows; {held.rows} private rows. "
        f"Analyses: {', '.join(held.requests)}."
    )
    levels = [column for column in columns if isinstance(column, Category)]
    return {
        "@context": json.loads(context),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": name,
        "description": about,
        **details,
        "rai:dataLimitations": list(limitations),
        "rai:personalSensitiveInformation": [
            f"Measured from private rows under {held.budget}; no private row is in the files."
        ],
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": quote(archive),
                "name": archive,
                "description": "The release; dpstats infers from it.",
                "contentUrl": archive,  # a path beside the description
                "encodingFormat": "application/zip",
                "sha256": digest,
            },
            {
                "@type": "cr:FileObject",
                "@id": rows,
                "name": rows,
                "description": "The synthetic rows in original units.",
                "contentUrl": rows,
                "containedIn": {"@id": quote(archive)},
                "encodingFormat": "text/csv",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "description": "The synthetic rows, in random order.",
                "field": [_field(column, rows) for column in columns],
            },
            *(_levels(column) for column in levels),
        ],
    }


def _field(column: Column, file: str) -> dict[str, Any]:
    source = {"fileObject": {"@id": file}, "extract": {"column": column.name}}
    note = f"{column.note}. " if column.note else ""
    description: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"rows/{_quoted(column)}",
        "name": column.name,
        "description": f"{note}{column.missing_rule()}",
        "dataType": _data_type(column),
        "source": source,
    }
    if isinstance(column, Category):
        description["references"] = {"field": {"@id": f"levels/{_quoted(column)}/level"}}
    return description


def _quoted(column: Column) -> str:
    """The name of a column in an identifier, which a space would end."""
    return quote(column.name, safe="")


def _data_type(column: Column) -> str:
    """The type of a column of ``rows.csv``; of labels, text."""
    if isinstance(column, Number):
        if column.dates:
            return "sc:Date"
        whole = column.decode(column.codes_in_use).dtype.kind == "i"
        return "sc:Integer" if whole else "sc:Float"
    if column.allow_missing or any(isinstance(label, str) for label in column.labels):
        return "sc:Text"
    if isinstance(column.labels[0], bool):
        return "sc:Boolean"
    whole = all(float(label).is_integer() for label in column.labels)
    return "sc:Integer" if whole else "sc:Float"


def _levels(column: Category) -> dict[str, Any]:
    name, text = f"levels/{_quoted(column)}", _data_type(column) == "sc:Text"
    levels = column.bin_labels if text else column.labels
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": f"levels of {column.name}",
        "dataType": "sc:Enumeration",
        "key": {"@id": f"{name}/level"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/level",
                "name": "level",
                "dataType": _data_type(column),
            }
        ],
        "data": [{f"{name}/level": level} for level in levels],
    }
