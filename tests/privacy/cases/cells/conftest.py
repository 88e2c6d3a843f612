"""The same cells on every route into a release, and the check that all give the same codes."""

import csv
import logging

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dpstats as dps
from dpstats.private.tables import open_source


class Sources:
    """Tables with a column ``v`` of given cells."""

    def __init__(self, folder, caplog):
        self.folder, self.caplog = folder, caplog

    def objects(self, cells):
        """A pandas table of Python objects, each as it is."""
        series = pd.Series([None] * len(cells), dtype=object)
        for i, cell in enumerate(cells):
            series.iat[i] = cell
        return pd.DataFrame({"v": series})

    def csv(self, cells):
        """A file; cells that are missing are empty."""
        path = self.folder / "cells.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["v", "row"])  # two columns: readers skip lines that are empty
            for i, cell in enumerate(cells):
                absent = cell is None or cell != cell
                writer.writerow(["" if absent else cell, i])
        return path

    def _common(self, array, cells):
        """Tables that hold the same column, from one Arrow array."""
        table = pa.table({"v": array})
        pieces = pa.chunked_array([array.slice(i, 1) for i in range(len(array))], array.type)
        path = self.folder / "plain.parquet"
        pq.write_table(table, path, use_dictionary=False)
        coded = self.folder / "dictionary.parquet"
        pq.write_table(pa.table({"v": array.dictionary_encode()}), coded, row_group_size=1)
        return {
            "arrow": table,
            "chunks": pa.table({"v": pieces}),
            "reader": table.to_reader(),
            "dictionary": pa.table({"v": array.dictionary_encode()}),
            "polars": pl.from_arrow(table),
            "duckdb": duckdb.arrow(table).project("v"),
            "parquet": path,
            "parquet dictionary": coded,
            "csv": self.csv(cells),
            "pandas objects": self.objects(cells),
            "pandas arrow": table.to_pandas(types_mapper=pd.ArrowDtype),
        }

    def texts(self, cells):
        """Every route of texts."""
        array = pa.array(cells, pa.string())
        routes = self._common(array, cells)
        routes["large"] = pa.table({"v": array.cast(pa.large_string())})
        routes["view"] = pa.table({"v": array.cast(pa.string_view())})
        routes["bytes"] = pa.table({"v": array.cast(pa.binary())})
        routes["pandas bytes"] = self.objects(
            [None if cell is None else cell.encode() for cell in cells]
        )
        routes["pandas"] = pd.DataFrame({"v": pd.Series(cells, dtype="str")})
        routes["pandas category"] = routes["pandas"].astype("category")
        return routes

    def numbers(self, cells):
        """Every route of numbers."""
        array = pa.array([None if c is None else float(c) for c in cells], pa.float64())
        routes = self._common(array, cells)
        routes["pandas"] = pd.DataFrame({"v": array.to_numpy(zero_copy_only=False)})
        routes["pandas category"] = routes["pandas"].astype("category")
        routes["big-endian"] = routes["pandas"].astype(">f8")
        return routes

    def codes(self, column, data):
        """Codes of the column, by the way that `measure` takes."""
        schema = dps.Schema([column])
        source = open_source(data, schema)
        return np.concatenate([schema.encode(b)["v"] for b in source.batches(["v"])]).tolist()

    def check(self, column, routes, expected):
        """The same codes on every route, and not a word about any cell (warnings are errors)."""
        with self.caplog.at_level(logging.DEBUG):
            for route, data in routes.items():
                assert self.codes(column, data) == expected, route
        assert self.caplog.records == []
        low, high = column.code_range
        assert all(low <= code <= high for code in expected)


@pytest.fixture
def sources(tmp_path, caplog):
    return Sources(tmp_path, caplog)
