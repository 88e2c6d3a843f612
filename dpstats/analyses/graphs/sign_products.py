"""The moment matrix of signs and of products of signs, as separator sets need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpstats.analyses.moments.noisy_covariance import NoisyCovariance, weights_within
from dpstats.arrays import Codes, Floats
from dpstats.families.features import SIGN, Feature, Term, indicator, product
from dpstats.families.moments import Moments
from dpstats.families.separators import moments_of_products
from dpstats.families.subgroups import Subgroup
from dpstats.inference.moment_matrix import ONE, ZERO, MomentMatrix

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema


def products_block(
    schema: Schema, products: Sequence[Term], given: Subgroup | None = None
) -> Moments:
    """All means that the moment matrix of some products of signs needs; with `given`, the count."""
    count: list[Term] = [] if given is None else [()]
    return Moments.of_terms(schema, [*moments_of_products(products), *count], given=given)


@dataclass(frozen=True)
class ProductMatrix(MomentMatrix):
    """Noisy mean products of q - 1 products of signs, the constant first."""

    products: tuple[Term, ...] = ()  # its features are named after them, and count as signs

    @classmethod
    def of_products(
        cls, release: ReleaseView, products: Sequence[Term], given: Subgroup | None = None
    ) -> ProductMatrix:
        """Ask a release for the means of all products of two of some products of signs."""
        block = products_block(release.schema, products, given)
        answers = release.answers(block, with_count=given is None)
        if given is not None:
            answers = answers.of_counted_rows()
        at = {term: i for i, term in enumerate(block.terms)}
        one = ONE if answers.rows.public else len(answers.sums) - 1
        every: list[Term] = [(), *products]
        place = np.full((len(every), len(every)), ZERO, dtype=np.int64)
        for i, a in enumerate(every):
            for j, b in enumerate(every):
                both = product(a, b)
                assert both is not None  # signs exclude nothing
                place[i, j] = at[both] if both else one
        features: list[Feature] = [("*".join(name for name, _ in t), SIGN) for t in products]
        return cls(answers, place, release.schema, tuple(features), None, given, tuple(products))

    def unit_rows(self, codes: Mapping[str, Codes]) -> Floats:
        """Rows (m, q - 1) of the products, given as column name -> (m,) codes."""
        signs = {
            name: indicator(SIGN, self.schema[name].bins_of(codes[name]))
            for term in self.products
            for name, _ in term
        }
        return np.stack(
            [np.prod([signs[name] for name, _ in term], axis=0) for term in self.products], axis=1
        ).astype(np.float64)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The distinct columns of the products."""
        return tuple(dict.fromkeys(name for term in self.products for name, _ in term))

    @property
    def names(self) -> list[str]:
        """Names of the products, the constant first."""
        return ["Intercept", *(name for name, _ in self.features)]


def covariance_of_products(
    release: ReleaseView, products: Sequence[Term], given: Subgroup | None = None
) -> NoisyCovariance:
    """The noisy covariance matrix of some products of signs."""
    moments = ProductMatrix.of_products(release, products, given)
    weights = weights_within(release, given)
    powers, noise = np.full((len(products), 2), np.nan), np.zeros((len(products), 2))
    return NoisyCovariance(moments, moments.unit_rows(release.candidates), weights, powers, noise)
