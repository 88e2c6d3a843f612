"""Whether an analysis is weighted: where the schema has a survey design."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from dpstats.families.block import Family

if TYPE_CHECKING:
    from dpstats.measured.view import ReleaseView
    from dpstats.schema import Schema

T = TypeVar("T", bound=type[Any])


def weighted_by_design(analysis: T) -> T:
    """Let an analysis be weighted where the schema has a design: a decorator of its class.

    Its family is then that of its `estimands`, and its result a `SurveyResult`.
    """
    plain_family, plain_infer = analysis.family, analysis.infer

    @wraps(plain_family)
    def family(self: Any, schema: Schema) -> Family:
        if schema.design is None:
            return plain_family(self, schema)  # type: ignore[no-any-return]
        return Family(tuple(dict.fromkeys(e.block for e in self.estimands(schema))))

    @wraps(plain_infer)
    def infer(self: Any, release: ReleaseView) -> Any:
        if release.schema.design is None:
            return plain_infer(self, release)
        if hasattr(self, "infer_weighted"):
            return self.infer_weighted(release)
        from dpstats.analyses.survey.weighted import infer_weighted

        return infer_weighted(self, release)

    analysis.family, analysis.infer = family, infer
    return analysis
