"""The analyses of a plan, as they are written beside its measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import analysis_from_dict, family_of, spelled
from dpstats.checks import did_you_mean, first_few
from dpstats.errors import NotMeasuredError, RequestError
from dpstats.families.block import Family
from dpstats.measured.contents import unasked
from dpstats.results.base import Result
from dpstats.schema import Schema


@dataclass(frozen=True)
class PlannedAnalyses:
    """Requests by name, read when they are asked for: their kind may have been registered since.

    Attributes
    ----------
    requests : mapping of name to plain data
    schema : Schema
    """

    requests: Mapping[str, Mapping[str, Any]]
    schema: Schema

    def named(self, name: str) -> Analysis[Result]:
        """One of them."""
        if name not in self.requests:
            raise NotMeasuredError(
                f"this release has no analysis {name!r}{did_you_mean(name, self.requests)}; it has "
                f"{list(self.requests)}"
            )
        return analysis_from_dict(self.requests[name])

    def read(self) -> tuple[dict[str, Analysis[Result]], dict[str, str]]:
        """Those that can be read, and the reasons for the others."""
        analyses, unread = {}, {}
        for name in self.requests:
            try:
                analysis = self.named(name)
                family_of(analysis, self.schema)
                analyses[name] = analysis
            except RequestError as error:
                unread[name] = f"analysis {name!r} cannot be read here: {error}"
        return analyses, unread

    def about(self, columns: frozenset[str]) -> list[str]:
        """Those of exactly these columns, each by its name and as it was asked."""
        return [
            f"{name!r} ({spelled(one)})"
            for name, one in self.read()[0].items()
            if one.family(self.schema).column_names == columns
        ]

    def notes(self, measured: Family) -> list[str]:
        """A note where blocks were measured that no analysis asks for, as it is read here."""
        analyses, unread = self.read()
        wanted = [b for one in analyses.values() for b in family_of(one, self.schema).blocks]
        found = [block.names[0] for block in unasked(measured.blocks, wanted)]
        if not found:
            return []
        why = "an analysis that cannot be read here" if unread else "an earlier version"
        return [
            f"{first_few(found, 4)} were measured, and no analysis asks for them as it is read "
            f"here; {why} may have"
        ]
