"""Releases for other software: rows as an Arrow table, and a description in Croissant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from dpstats import files
from dpstats.measured.measurements import Measurements
from dpstats.privacy.neighbours import Neighbours
from dpstats.schema import Category, Column, Number, Schema

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

CAUTION = (
    "Synthetic rows: intervals and tests that treat them as data are wrong, as they leave out the "
    "privacy noise, and there may be more or fewer rows than people. Use release.infer, or with "
    "the rows alone dps.corrected.infer with the radius of the analysis and n."
)
LIMITS = (
    "Guaranteed for any data: the privacy of one row, and the certificate. Intervals for a "
    "population assume rows drawn independently from it, one row per person, without survey "
    "weights."
)


def limits(neighbours: Neighbours) -> str:
    """What a release promises, and what its intervals assume."""
    if neighbours.rows_per_person == 1:
        return LIMITS
    return (
        f"Guaranteed for any data: the privacy of {neighbours.rows}, and the certificate. "
        "Intervals for a population assume rows drawn independently from it, which several rows "
        "of one person are not, unless they say that they allow for that; without survey weights."
    )


_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileObject": "cr:fileObject",
    "fileProperty": "cr:fileProperty",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}


class Described(Protocol):
    """What a description needs of a release."""

    @property
    def measurements(self) -> Measurements:
        """Noisy sums with the law of their noise."""

    @property
    def columns(self) -> Schema:
        """The columns of the rows."""

    @property
    def k(self) -> int:
        """Number of synthetic rows."""

    def to_frame(self) -> pd.DataFrame:
        """The synthetic rows."""

    def to_bytes(self) -> bytes:
        """The file of the release."""


class Interchange:
    """The methods of a release for other software."""

    def __arrow_c_stream__(self: Described, requested_schema: object = None) -> object:
        """The synthetic rows for Arrow, polars, DuckDB and others, as in `to_frame`.

        Dates are ``date32``, text levels dictionaries; the metadata say how the rows may be used.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> import pyarrow as pa
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> pa.table(dps.release(plan, rows)).shape
        (10000, 1)
        """
        return arrow_rows(self.to_frame(), CAUTION).__arrow_c_stream__(requested_schema)

    def to_croissant(
        self: Described, name: str, *, file: str | Path | None = None, **details: str
    ) -> dict[str, Any]:
        """A description of the release in Croissant 1.0 (JSON-LD), for catalogues of data sets.

        It holds the budget, the columns with their levels, and how the rows may be used; nothing
        that the release does not publish.

        Parameters
        ----------
        name : str
            Of the data set.
        file : path, optional
            The saved release, whose name and SHA-256 go into the description; by default those
            that `save` would write to ``{name}.zip``.
        **details : str
            Further properties of schema.org, such as ``license=``, ``url=``, ``creator=``,
            ``datePublished=`` and ``version=``.

        Returns
        -------
        dict
            Write it with `json.dump`; ``dpstats show survey.zip --croissant`` prints it.

        Examples
        --------
        >>> import dpstats as dps
        >>> import pandas as pd
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> rows = pd.DataFrame({"smoker": [True] * 3_000 + [False] * 7_000})
        >>> described = dps.release(plan, rows).to_croissant("survey", license="CC-BY-4.0")
        >>> described["recordSet"][0]["field"][0]["dataType"]
        'sc:Boolean'
        """
        data = self.to_bytes() if file is None else files.read_bytes(file)
        return croissant_of(
            self,
            name,
            archive=f"{name}.zip" if file is None else Path(file).name,
            digest=files.digest_of_bytes(data),
            limitations=[CAUTION, limits(self.measurements.neighbours)],
            details=details,
        )


def arrow_rows(frame: pd.DataFrame, caution: str) -> pa.Table:
    """Rows as an Arrow table, dates as such, with the caution among its metadata."""
    import pyarrow as pa

    table = pa.Table.from_pandas(frame, preserve_index=False)
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.date32()))
    return table.replace_schema_metadata({"dpstats": caution})


def croissant_of(
    release: Described,
    name: str,
    *,
    archive: str,
    digest: str,
    limitations: Sequence[str],
    details: Mapping[str, str],
) -> dict[str, Any]:
    """The description of a release in Croissant 1.0.

    Parameters
    ----------
    release : Release
    name : str
        Of the data set.
    archive, digest : str
        Name of the file of the release, and the SHA-256 of its bytes.
    limitations : sequence of str
        How the rows may be used.
    details : mapping
        Further properties of the data set, such as its license and url.

    References
    ----------
    MLCommons (2024). The Croissant format specification, version 1.0.
    """
    held, rows = release.measurements, "rows.csv"
    about = (
        f"Synthetic rows and noisy measurements under differential privacy: {held.budget}; "
        f"{held.neighbours}. {release.k} synthetic rows; {held.rows} private rows. "
        f"Analyses: {', '.join(held.requests)}."
    )
    levels = [column for column in release.columns if isinstance(column, Category)]
    return {
        "@context": _CONTEXT,
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
                "field": [_field(column, rows) for column in release.columns],
            },
            *(_levels(column) for column in levels),
        ],
    }


def _field(column: Column, file: str) -> dict[str, Any]:
    source = {"fileObject": {"@id": file}, "extract": {"column": column.name}}
    note = f"{column.note}. " if column.note else ""
    made: dict[str, Any] = {
        "@type": "cr:Field",
        "@id": f"rows/{quote(column.name, safe='')}",
        "name": column.name,
        "description": f"{note}{column.missing_rule()}",
        "dataType": _data_type(column),
        "source": source,
    }
    if isinstance(column, Category):
        made["references"] = {"field": {"@id": f"{_id_of_levels(column)}/level"}}
    return made


def _id_of_levels(column: Category) -> str:
    """An identifier: a space in it would end it."""
    return f"levels/{quote(column.name, safe='')}"


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
    """The declared levels of a column as an enumeration."""
    name = _id_of_levels(column)
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
        "data": [{f"{name}/level": label} for label in column.labels],
    }
