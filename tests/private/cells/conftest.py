"""The same cells in every kind of table, and the check that all give the same codes."""

import logging

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpstats as dps
from dpstats.private.tables import open_source


class Sources:
    """Tables with a column ``v`` of given cells."""

    def __init__(self, folder, caplog, routes):
        self.folder, self.caplog, self.routes = folder, caplog, routes

    def objects(self, cells):
        """A pandas table of Python objects, each as it is."""
        series = pd.Series([None] * len(cells), dtype=object)
        for i, cell in enumerate(cells):
            series.iat[i] = cell
        return pd.DataFrame({"v": series})

    def csv(self, cells):
        """A file; cells that are missing are empty."""
        return self.routes["csv"](None, self.objects(cells).assign(row=1), self.folder)

    def texts(self, cells):
        return self._every(pa.array(cells, pa.string()), cells)

    def numbers(self, cells):
        return self._every(pa.array([c and float(c) for c in cells], pa.float64()), cells)

    def _every(self, array, cells):
        """Every route, made when its turn comes: files have the same names."""
        table, objects = pa.table({"v": array}), self.objects(cells)
        return {
            name: lambda make=make: make(table, objects, self.folder)
            for name, make in self.routes.items()
        }

    def codes(self, column, data):
        """Codes of the column, by the way that `measure` takes."""
        schema = dps.Schema([column])
        found = [
            np.repeat(schema.encode(batch)["v"], batch.column(1) if batch.num_columns > 1 else 1)
            for batch in open_source(data() if callable(data) else data, schema).batches(["v"])
        ]
        return np.concatenate([np.zeros(0, np.int64), *found]).tolist()

    def check(self, column, routes, expected):
        """The same codes on every route, and not a word about any cell (warnings are errors)."""
        routes = routes if isinstance(routes, dict) else {"": routes}
        with self.caplog.at_level(logging.DEBUG):
            for route, data in routes.items():
                assert self.codes(column, data) == expected, route
        assert self.caplog.records == []
        low, high = column.code_range
        assert all(low <= code <= high for code in expected)


@pytest.fixture
def sources(tmp_path, caplog, one_of_every_kind):
    """Tables of every kind but those without an order of rows."""
    routes = {n: make for n, make in one_of_every_kind.items() if not n.startswith("ibis")}
    return Sources(tmp_path, caplog, routes)
