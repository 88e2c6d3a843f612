"""Products with the matrix of function values equal those with the matrix written down."""

import numpy as np

import dpstats as dps
from dpstats.families.moments import Moments
from dpstats.families.tables.cells import Cells, tables_of_degree
from dpstats.rows.products import Products
from dpstats.rows.uniform import Uniform

SCHEMA = dps.Schema([
    dps.Category("a", list("xyz")),
    dps.Boolean("b"),
    dps.Number("u", -1, 1, points=9, missing=0),
])  # fmt: skip
TABLES = (Cells.table(SCHEMA, ["a"]), Cells.table(SCHEMA, ["a", "b"]))
OTHERS = (Moments.of(SCHEMA, ["u"], ["b"]), Cells.condition(SCHEMA, "b and a == 'x'"))


def test_products_variances_and_second_moments(monkeypatch):
    for blocks in [TABLES, OTHERS, (TABLES[0], OTHERS[0], TABLES[1], OTHERS[1])]:
        for limit in [0, 10**6]:
            monkeypatch.setattr("dpstats.rows.products.SMALL", limit)
            monkeypatch.setattr("dpstats.rows.products.CHUNK", 7 + limit)  # several pieces, or one
            rng = np.random.default_rng(0)
            codes = {
                "a": rng.integers(3, size=50),
                "b": rng.integers(2, size=50),
                "u": rng.integers(-4, 5, size=50),
            }
            family = dps.Family(blocks)
            scales = rng.uniform(0.5, 3, family.size)
            values = family.evaluate(codes)
            matrix = values.matrix().toarray() * scales[:, None]
            products = Products(values, scales)
            y, density = rng.normal(size=family.size), rng.dirichlet(np.ones(50))
            np.testing.assert_allclose(products.combine(y), y @ matrix, atol=1e-12)
            np.testing.assert_allclose(products.average(density), matrix @ density, atol=1e-12)
            variances = matrix**2 @ density - (matrix @ density) ** 2
            np.testing.assert_allclose(products.variances(density), variances, atol=1e-12)


def test_many_points_make_joint_tables():
    """Fewer entries per point than tables, the same products; also at some of the points."""
    for dense in [False, True]:
        schema = dps.Schema([
            dps.Category("a", list("xyz")),
            dps.Boolean("b"),
            dps.Category("c", list("wxyz")),
            dps.Category("d", list("vwxyz")),
            dps.Number("u", -1, 1, points=9, missing=0, edges=[0]),
        ])  # fmt: skip
        family = dps.Family((
            *tables_of_degree(schema, schema.names, 2),
            *((OTHERS[0],) if dense else ()),
            Cells.table(schema, ["d", "a", "c"]),
        ))  # fmt: skip
        rng = np.random.default_rng(1)
        points = Uniform().draw(1500, schema, None, rng)
        values = family.evaluate(points)
        scales = rng.uniform(0.5, 3, family.size)
        products = Products(values, scales)
        tables = len(family.blocks) - dense
        assert products._cells.nnz == 1500 * 3 < 1500 * tables
        few = np.sort(rng.choice(1500, 40, replace=False))
        rows = np.sort(rng.choice(family.size, 25, replace=False))
        for found, at in ((products, np.arange(1500)), (Products(values.at(few), scales), few)):
            matrix = values.matrix().toarray()[:, at] * scales[:, None]
            y, density = rng.normal(size=family.size), rng.dirichlet(np.ones(len(at)))
            np.testing.assert_allclose(found.combine(y), y @ matrix, atol=1e-12)
            np.testing.assert_allclose(found.average(density), matrix @ density, atol=1e-12)
            np.testing.assert_allclose(found.array(), matrix, atol=1e-12)
            whole = (matrix * density) @ matrix.T
            np.testing.assert_allclose(found.gram(density), whole, atol=1e-12)
            np.testing.assert_allclose(
                found.gram(density, rows), whole[np.ix_(rows, rows)], atol=1e-12
            )
            variances = matrix**2 @ density - (matrix @ density) ** 2
            np.testing.assert_allclose(found.variances(density), variances, atol=1e-12)
