"""What an analysis is: the functions it needs, and what it concludes from a release."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from dpstats.answers import Answers
from dpstats.errors import RequestError
from dpstats.families.block import Block, Family
from dpstats.schema import Schema

if TYPE_CHECKING:
    from dpstats.privacy.budget import PureDP


class Answering(Protocol):
    """What an analysis may look at: a release, or the pretend release of a preview."""

    @property
    def schema(self) -> Schema:
        """The public schema."""

    @property
    def n(self) -> int:
        """Number of private rows."""

    @property
    def budget(self) -> PureDP:
        """The budget that was spent."""

    def answers(
        self, wanted: Family | Block | Sequence[Block], *, complements: bool = True
    ) -> Answers:
        """Noisy sums of functions, with the exact law of their noise."""


class Analysis(Protocol):
    """A frozen dataclass of the user's parameters, with the two halves."""

    kind: ClassVar[str]

    def family(self, schema: Schema) -> Family:
        """The test functions it needs, known before any row is read."""

    def infer(self, release: Answering) -> Any:
        """Conclusions, from functions that `family` asked for and nothing else."""


def registry() -> Mapping[str, type[Any]]:
    """The analyses of dpstats by the name they have in files."""
    from dpstats.analyses.marginals import Marginals
    from dpstats.analyses.proportion import Proportion

    return {analysis.kind: analysis for analysis in (Marginals, Proportion)}


def analysis_to_dict(analysis: Analysis) -> dict[str, Any]:
    """Plain data of an analysis: its kind and the parameters that differ from their defaults."""
    plain: dict[str, Any] = {"kind": analysis.kind}
    for field in dataclasses.fields(analysis):  # type: ignore[arg-type]
        value = getattr(analysis, field.name)
        if value != field.default:
            plain[field.name] = list(value) if isinstance(value, tuple) else value
    return plain


def analysis_from_dict(plain: Mapping[str, Any]) -> Analysis:
    """Build an analysis from plain data, such as an ``[[analysis]]`` table of a request.

    Raises
    ------
    RequestError
        For an unknown kind or unknown parameters.
    """
    parameters = dict(plain)
    kind = parameters.pop("kind", None)
    known = registry()
    if kind not in known:
        raise RequestError(f"unknown kind of analysis {kind!r}; known: {sorted(known)}")
    fields = {field.name: field for field in dataclasses.fields(known[kind])}
    unknown = sorted(set(parameters) - set(fields))
    lacking = [
        name
        for name, field in fields.items()
        if name not in parameters and field.default is dataclasses.MISSING
    ]
    if unknown or lacking:
        raise RequestError(
            f"analysis of kind {kind!r}: "
            + (f"unknown keys {unknown}; " if unknown else "")
            + (f"missing keys {lacking}; " if lacking else "")
            + f"it takes {list(fields)}"
        )
    analysis: Analysis = known[kind](**parameters)
    return analysis
