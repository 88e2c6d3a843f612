"""What follows from a plan: its blocks, what it spends, its digest and its text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpstats import files
from dpstats.analyses.base import Analysis
from dpstats.analyses.person_totals import person_blocks
from dpstats.analyses.registry import analysis_to_dict
from dpstats.analyses.second_stage import second_stages
from dpstats.checks import counted
from dpstats.display import wrapped
from dpstats.measured.digest import plan_digest
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import HasStrategy, PlannedBlock
from dpstats.planning.allocation import Split
from dpstats.planning.asked import blocks_asked
from dpstats.planning.division import split_stages, weights_of
from dpstats.planning.person_totals import planned_for
from dpstats.planning.table_split import WEIGHTS, Weights
from dpstats.privacy.budget import Budget
from dpstats.privacy.cautions import cautions
from dpstats.references.base import Reference
from dpstats.results.base import Result
from dpstats.schema import Number


class Described(HasStrategy):
    """The attributes of a plan that follow from its fields; see `Plan`."""

    analyses: Mapping[str, Analysis[Result]]
    reference: Reference
    start: Measurements | None

    @property
    def blocks(self) -> tuple[PlannedBlock, ...]:
        """The blocks of the family: what the analyses share is merged."""
        return self.strategy.measured

    @property
    def reference_block(self) -> PlannedBlock | None:
        """What the reference itself measures, paid by its own share."""
        return self.strategy.own_block("reference")

    @property
    def spends(self) -> Budget:
        """The part of the budget that is still to be spent: all of it, without a `start`."""
        if self.start is None:
            return self.budget
        return self.budget.of_total(self.budget.total - self.start.budget.total)

    @property
    def weights(self) -> Weights | None:
        """How tables with common columns share the budget, as their noise shows; see `plan`.

        None where no tables share, or where shares or a release to start from were given.
        """

        def found() -> Weights | None:
            if self.start is not None:
                return None
            asked = {name: blocks_asked(a, self.schema) for name, a in self.analyses.items()}
            for name in planned_for(self.strategy, self.analyses):
                asked[name] += person_blocks(self.analyses[name], self.schema)
            amount = self.budget.total * (1 - self.reference.share)
            rule = Split(asked, self.budget, amount, self.neighbours, "equal", None)
            rule, _ = split_stages(rule, second_stages(self.analyses, self.schema))
            measured = (*self.blocks, *self.strategy.of_persons)
            return weights_of(measured, rule, self.analyses, self.schema)

        return self._once("weights", found)

    @property
    def requests(self) -> dict[str, Any]:
        """The analyses as plain data."""
        plain = {name: analysis_to_dict(a) for name, a in self.analyses.items()}
        made: dict[str, Any] = json.loads(json.dumps(plain))  # inner tuples as lists
        return made

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what is measured and released, 64 hexadecimal digits.

        It covers the schema, the blocks with their noise, the budget, the neighbour relation, the
        analyses and the reference; not `n`, which decides neither. The ledger and the release keep
        it, so that what ran can be compared with what was approved.
        """
        return plan_digest(self.strategy, self.requests, self.reference.to_dict())

    def __str__(self) -> str:
        return "\n".join(line for one in self._lines for line in wrapped(one))

    @property
    def _lines(self) -> list[str]:
        columns = self.columns.names
        noise = sorted({self.budget.natural_scale(p.multiplier) for p in self.blocks})
        scales = f"{noise[0]:.4g}" + (f" to {noise[-1]:.4g}" if len(noise) > 1 else "")
        share = self.reference.share
        own = self.reference_block
        already = "" if self.start is None else f". Still to be spent: {self.spends}"
        paid = "" if own is None else f" for {counted(own.block.size, 'sum')} to place candidates"
        public = self.neighbours.counts_are_public
        shared = [] if self.weights is None else [f"Overlapping tables: {WEIGHTS[self.weights]}"]
        return [
            f"Plan: {counted(len(self.analyses), 'analysis', 'analyses')}, "
            f"{counted(self.published.size, 'test function')} "
            f"{self._measured_as} {counted(len(self.blocks), 'block')}, on "
            f"{'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}",
            f"Budget: {self.budget}; {self.neighbours.stated}{already}",
            *filter(None, [public and f"Note: {public}"]),
            *cautions(self.budget, self.strategy.n, self.neighbours.whom),
            f"Noise: discrete {self.budget.noise.capitalize()} of scale {scales} rows on every "
            "function in [-1, 1]",
            *self._second_stages,
            *self._person_totals,
            f"Reference: {self.reference.to_dict()['kind']}, share of the budget {share}{paid}",
            *shared,
            *(
                f"Bins of {column.name}, which declares no edges: {' '.join(column.bin_labels)}; "
                "conditions cannot use them"
                for column in self.columns
                if isinstance(column, Number) and column.even_edges
            ),
            self.columns.missing_rules(),
            f"Digest: {files.short_digest(self.digest)}",
        ]

    @property
    def _second_stages(self) -> list[str]:
        """A line on each."""
        return [
            f"Second stage: {counted(planned.block.size, 'sum')} of the score at a pilot, noise of "
            f"scale {self.budget.natural_scale(planned.multiplier):.4g} rows"
            + ("; the pilot comes from the first stage, and the rows are read twice"
               if planned.pending else "")
            for planned in self.strategy.scores
        ]  # fmt: skip

    @property
    def _person_totals(self) -> list[str]:
        """A line on the products of person totals, if there are any."""
        held = self.strategy.of_persons
        if not held:
            return []
        noise = sorted({self.budget.natural_scale(planned.multiplier) for planned in held})
        scales = f"{noise[0]:.4g}" + (f" to {noise[-1]:.4g}" if len(noise) > 1 else "")
        names = ", ".join(planned_for(self.strategy, self.analyses))
        return [
            f"Person totals: {counted(sum(p.block.size for p in held), 'sum')} of squares and "
            f"products over persons, noise of scale {scales}, for the intervals of {names}"
        ]

    @property
    def _measured_as(self) -> str:
        tables = self.strategy.tables
        return f"from {counted(self.family.size, 'sum')} in" if tables else "in"
