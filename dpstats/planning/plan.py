"""From analyses to a plan: families merged, the budget split, and a preview; reads no data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from dpstats import files
from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import analysis_from_dict, analysis_to_dict, check_readable
from dpstats.analyses.second_stage import second_stages
from dpstats.checks import Method, check_alpha, check_method, counted, did_you_mean, listed, short
from dpstats.display import Shown, as_html, shown_progress, wrapped
from dpstats.errors import FileFormatError, RequestError
from dpstats.families.block import Family
from dpstats.families.contrasts import Contrasts
from dpstats.families.persons import PersonProducts
from dpstats.families.tables.cells import ROWS
from dpstats.measured.measurements import Measurements
from dpstats.measured.strategy import (
    HasStrategy,
    PlannedBlock,
    Strategy,
    check_rows,
    edited,
    plan_digest,
    with_conditions,
)
from dpstats.measured.view import ReleaseView
from dpstats.planning.asked import (
    PersonTotals,
    asked_by_name,
    check_arguments,
    check_measured,
    check_start,
    person_totals_asked,
    refuse_needless_norms,
    with_even_edges,
    with_person_totals,
)
from dpstats.planning.curve import Curve, curve_of
from dpstats.planning.division import (
    Allocation,
    Split,
    continued,
    divide,
    read_shares,
    split_stages,
)
from dpstats.planning.measures import Delta, Effect, Measure, Power, Subject, Width
from dpstats.planning.previews.likeness import likeness
from dpstats.planning.previews.preview import Preview, preview_strategy
from dpstats.planning.solve import Problem, Solution, check_reference, target_of, with_budget
from dpstats.planning.survey import (
    check_design,
    check_totals_of_persons,
    divide_again,
    with_cap,
    with_contrasts,
)
from dpstats.planning.table_split import Weights, check_weights
from dpstats.privacy.budget import Budget, check_budget
from dpstats.privacy.cautions import cautions
from dpstats.privacy.neighbours import Neighbours, Unit
from dpstats.results.base import Result
from dpstats.rows import default_reference, reference_from_dict
from dpstats.rows.base import Reference
from dpstats.schema import Guesses, Number, Schema
from dpstats.schema.design import STEPS
from dpstats.schema.totals import check_totals


@dataclass(frozen=True, repr=False)
class Plan(HasStrategy):
    """Plan of what is measured and how the budget is split, made before any row is read.

    Attributes
    ----------
    strategy : Strategy
        The blocks that are measured with their noise; also as `schema`, `budget`, `unit`, `n`,
        `family`, `columns` and `blocks`.
    analyses : mapping of name to Analysis
    reference : Reference
        The density that candidates are drawn from.
    start : Measurements or None
        What an earlier release measured, to which this plan adds: see ``start=`` of `dps.plan`.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
    >>> plan.family.names, plan.cost()
    (['smoker'], Fraction(1, 1))
    >>> preview = plan.preview(n=10_000)  # print it for noise, sizes and advice
    >>> print(preview.widths().round(3))
      analysis    term  width  unbounded
    0  smoking  smoker   0.02        0.0
    >>> plan.save("plan.json")
    >>> dps.Plan.load("plan.json").digest == plan.digest
    True
    """

    strategy: Strategy
    analyses: Mapping[str, Analysis[Result]]
    reference: Reference
    start: Measurements | None = None

    @property
    def blocks(self) -> tuple[PlannedBlock, ...]:
        """The blocks of the family: what the analyses share is merged."""
        return self.strategy.measured

    @property
    def reference_block(self) -> PlannedBlock | None:
        """Block that the reference itself measures, paid by its own share."""
        return self.strategy.own_block("reference")

    @property
    def spends(self) -> Budget:
        """The part of the budget that is still to be spent: all of it, without a `start`."""
        if self.start is None:
            return self.budget
        return self.budget.of_total(self.budget.total - self.start.budget.total)

    @property
    def requests(self) -> dict[str, Any]:
        """The analyses as plain data."""
        plain = {name: analysis_to_dict(a) for name, a in self.analyses.items()}
        as_lists: dict[str, Any] = json.loads(json.dumps(plain))  # inner tuples
        return as_lists

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides what is measured and released, 64 hexadecimal digits.

        It covers the schema, the blocks with their noise, the budget, the neighbour relation, the
        analyses and the reference; not `n`, which decides neither. The ledger and the release keep
        it, so that what ran can be compared with what was approved.
        """
        return plan_digest(self.strategy, self.requests, self.reference.to_dict())

    @property
    def n(self) -> int | None:
        """The public number of rows; under add/remove a declared one that sizes are planned for."""
        return self.strategy.n

    @property
    def count(self) -> PlannedBlock | None:
        """The number of rows, which is measured where neighbours add or remove a row."""
        return self.strategy.own_block("count")

    @property
    def in_two_stages(self) -> bool:
        """True if something is measured at a pilot that comes first: the rows are read twice."""
        return any(planned.pending for planned in self.strategy.blocks)

    def cost(self) -> Fraction:
        """Exact amount of the budget that the noise spends, recomputed from sensitivities.

        Returns
        -------
        Fraction
            Of epsilon, or of rho for Gaussian noise.
        """
        return self.strategy.cost()

    def check(self, n: int | None = None) -> None:
        """Refuse a plan that overspends, or whose reference would be mostly noise at n rows.

        Also one that does not measure what its reference needs: the rows could not be drawn once
        the budget is spent.

        Raises
        ------
        BudgetError, RequestError
        """
        self.strategy.check()
        check_start(self.strategy, self.start)
        own = self.reference_block
        if self.reference.block(self.columns, self.n) != (None if own is None else own.block):
            raise edited("does not measure what its reference needs")
        if n is not None:
            if self.unit == "replace":
                check_totals(self.schema, n)
            self.check_reference(n)

    def check_kept(self, *, not_private: bool = False) -> None:
        """Refuse a plan whose measurements a file could not hold and give back.

        Raises
        ------
        RequestError
        """
        self._once("kept", lambda: self._unmeasured(not_private).check_kept())

    @property
    def most_bytes(self) -> int:
        """Bound on the size of the file of its measurements."""
        return self._unmeasured(not_private=False).most_bytes

    def _unmeasured(self, not_private: bool) -> Measurements:
        """Measurements as they will be kept, with zeros for the noisy sums."""
        n = (self.n or 1) if self.strategy.count_is_public else None
        size = sum(planned.block.size for planned in self.strategy.blocks)
        widest = tuple(planned.at(-np.inf) for planned in self.strategy.blocks)
        return Measurements(
            strategy=replace(self.strategy, blocks=widest, n=n),
            noisy_sums=np.zeros(size, dtype=np.int64),
            uniforms=np.zeros(size),
            reference_spec=self.reference.to_dict(),
            requests=self.requests,
            not_private=not_private,
        )

    def check_reference(self, n: int) -> None:
        """Refuse a reference whose own measurement would be mostly noise at n rows.

        Raises
        ------
        RequestError
        """
        check_reference(self.strategy, self.reference, n)

    def costing(self, budget: Budget) -> Plan:
        """Change the budget to another of its kind, and every noise in proportion.

        With a survey design the parts of contrasts are planned again.

        Raises
        ------
        RequestError
            For a budget of another kind.
        """
        self._check_kind(budget)
        strategy = with_budget(self.strategy, self.reference, budget)
        return replace(self, strategy=divide_again(strategy, self.analyses))

    def _check_kind(self, budget: object) -> None:
        """Refuse a budget of another kind than the plan's."""
        if type(check_budget(budget)) is not type(self.budget):
            raise RequestError(
                "budget= must be of the plan's own kind, whose split it follows: a "
                f"dps.{type(self.budget).__name__}; make the plan again for another kind"
            )

    def _assumed_rows(self, n: int | None) -> int:
        rows = self.n if n is None else n
        if rows is None:
            raise RequestError("preview needs a number of rows: give n=")
        check_rows(rows)
        check_totals(self.schema, rows)
        self.check_reference(rows)
        return rows

    def _check_asked(self, names: Sequence[object]) -> None:
        """Refuse to search where a start has spent its budget, and names of no analysis."""
        if self.start is not None:
            raise RequestError("a plan with start= adds to a budget that is spent: use preview")
        for name in names:
            if not isinstance(name, str) or name not in self.analyses:
                raise RequestError(
                    f"of= must name an analysis of the plan, one of {list(self.analyses)}; got "
                    f"{short(name)}{did_you_mean(name, self.analyses)}"
                )

    def preview(self, n: int | None = None, *, like: Any = None, progress: Shown = None) -> Preview:
        """Functions, noise and expected interval widths, from public numbers alone.

        Every analysis runs on simulated releases of n rows, which come from the guesses of the
        schema where it states some. Without, they spread evenly over the levels and bins, which is
        too optimistic where real rows concentrate: the coefficients of a number that varies over a
        tenth of its bounds are 10 to 100 times less certain. The preview says which rows it used.

        There are three releases, and up to 30 of an analysis whose intervals may have no ends:
        those beyond three have new noise over the same rows. Widths are medians over them.

        Parameters
        ----------
        n : int, optional
            Assumed number of rows; the plan's own n if not given.
        like : Release, Guesses or data frame, optional
            What rows are drawn from instead: the fitted density of a release of an earlier year
            that declares the plan's columns as the plan does; other guesses, where
            ``dps.Guesses()`` means even rows; or a frame (pandas, polars, Arrow) of invented or
            public rows, such as those of `dps.pretend`. Never the private rows: widths that were
            computed from them are not private.
        progress : callable, optional
            Called with a text, the number of analyses so far, and that of all. By default a bar,
            as in `measure`.

        Returns
        -------
        Preview

        Raises
        ------
        RequestError
            Without a number of rows; if `like` is a path, lacks a column, or declares it otherwise.
        """
        rows = self._assumed_rows(n)
        rows_like = likeness(like, self.strategy)
        with shown_progress(progress) as say:
            return preview_strategy(
                self.strategy, self.analyses, rows, rows_like, heading=str(self), progress=say
            )

    def curve(
        self,
        n: int | None = None,
        *,
        of: str | Sequence[str] | None = None,
        budgets: float | Fraction | Sequence[float | Fraction] | None = None,
        method: Method = "noise_aware",
        alpha: float = 0.05,
        like: Any = None,
        progress: Shown = None,
    ) -> Curve:
        """Expected widths of the intervals of each analysis, against the budget of the whole plan.

        By previews at several budgets, on the same rows and noise; reads no data.

        Parameters
        ----------
        n : int, optional
            Number of rows; the plan's own n if not given.
        of : str or sequence of str, optional
            Names of analyses; default: all that have intervals.
        budgets : number or sequence of numbers, optional
            Epsilon, or rho of `ZCDP`, at the delta of the plan; default: an eighth of the plan's to
            eight times as much.
        method : {"noise_aware", "certified"}
        alpha : float
            Error probability of each interval.
        like : Release, Guesses or data frame, optional
            As in `preview`.
        progress : callable, optional
            Called with a text, the number of previews so far, and that of all. By default a bar.

        Returns
        -------
        Curve

        Raises
        ------
        RequestError
            Without a number of rows, or for an analysis or option that is not known.

        Examples
        --------
        >>> import dpstats as dps
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> print(plan.curve(500, budgets=[0.1, 1, 10]))
        Median width of noise-aware 0.95 intervals at n = 500, rows drawn evenly over the cells
        epsilon  smoking: proportion
            0.1               0.1443
              1              0.08814
             10               0.0875
        """
        rows = self._assumed_rows(n)
        check_alpha(alpha)
        check_method(method)
        names = _several(self.analyses if of is None else of)
        self._check_asked(names)
        parameter, value = self.budget.stated
        usual = [value * Fraction(2) ** k for k in range(-3, 4)]
        chosen = map(self.budget.restated, _several(usual if budgets is None else budgets))
        at = {
            budget.stated[1]: self.costing(budget).strategy
            for budget in sorted(chosen, key=lambda budget: budget.total)
        }
        if not at:
            raise RequestError("give at least one budget, or none for the usual ones")
        rows_like = likeness(like, self.strategy)
        strategy = replace(self.strategy, n=rows)
        subjects = [
            Subject(strategy, self.analyses[name], name, rows_like, alpha) for name in names
        ]
        with shown_progress(progress) as say:
            return curve_of(
                subjects, parameter, at, rows, method, required=of is not None, progress=say
            )

    def solve(
        self,
        *,
        of: str,
        width: float | None = None,
        delta: float | None = None,
        power: float | None = None,
        n: int | None = None,
        budget: Budget | None = None,
        alpha: float = 0.05,
        method: Method | None = None,
        alternative: Effect | None = None,
        null: float | None = None,
        term: str | None = None,
        like: Any = None,
        progress: Shown = None,
    ) -> Solution[Plan]:
        """The least budget, or the least number of rows, that reaches a target for one analysis.

        From public numbers alone, by previews of that analysis within the whole plan, to 2%, or
        5% for a power. The whole plan is given the budget; the analysis keeps its share. The search
        assumes that more budget, or more rows, never hurt; what it returns reaches the target in
        any case.

        Parameters
        ----------
        of : str
            Name of the analysis.
        width : float, optional
            Wanted width of its interval. Of several, the median, or that of the coefficient or
            mean whose width `preview` shows first; `details` says which, `note` names the others.
        delta : float, optional
            Wanted error of the rows over its functions, in unit scale, as `Release.radius` bounds
            it with probability 1 - alpha where the rows match the noisy answers.
        power : float, optional
            Wanted power of its two-sided noise-aware test at level alpha (of a partial correlation:
            with Holm's adjustment): the share of 400 simulated releases, s.e. at most 2.5%. At most
            0.99.
            Give exactly one of the three.
        n : int, optional
            Number of rows, for which to find the least budget. Without it and without `budget`,
            the plan's own n if it declares one.
        budget : PureDP, ZCDP or ApproxDP, optional
            For which to find the least n, of the plan's kind; without a number of rows, the plan's
            own.
        alpha : float
        method : {"noise_aware", "certified"}, optional
            Of the interval; default: noise-aware. Certified intervals of a `GoodnessOfFit` or
            `Independence` are for the private table, and `details` says so.
        alternative : number or numbers, optional
            Effect size for `power`: the proportion; the difference of two proportions, around one
            half, or both; the probabilities of a goodness of fit. Otherwise rows are as in
            `preview`.
        null : float, optional
            For `power`: the value of the null hypothesis, where the analysis has none.
        term : str, optional
            For `power` and `width`: the coefficient, pair or cell that is meant, where there are
            several.
        like : Release, Guesses or data frame, optional
            What rows are drawn from; see `preview`.
        progress : callable, optional
            Called with a text, the number of previews so far, and None.
            By default a bar, as in `measure`.

        Returns
        -------
        Solution

        Raises
        ------
        RequestError
            If the target is out of reach, with the n that would do; or for an argument that does
            not fit the analysis.

        Examples
        --------
        >>> import dpstats as dps
        >>> schema = dps.Schema([dps.Boolean("smoker")])
        >>> plan = dps.plan(schema, {"smoking": dps.Proportion("smoker")}, budget=dps.PureDP(1))
        >>> plan.solve(width=0.05, of="smoking", n=2_000)
        smoking: width of at most 0.05 (noise-aware 0.95 interval)
        least epsilon = 0.117 at n = 2000: width 0.04995; at epsilon = 0.116 it is 0.05005
        >>> plan.solve(width=0.05, of="smoking", budget=dps.PureDP(1)).found
        'n'
        """
        self._check_asked([of])
        quantity, target = target_of({"width": width, "delta": delta, "power": power}, alpha)
        if term is not None and quantity == "delta":
            raise RequestError(
                "term= belongs to width= and power=; drop it for delta=, which holds for all "
                "functions of the analysis"
            )
        for name, value, belongs in (
            ("method", method, "width"),
            ("alternative", alternative, "power"),
            ("null", null, "power"),
        ):
            if value is not None and belongs != quantity:
                raise RequestError(f"{name}= belongs to {belongs}=; drop it for {quantity}=")
        if n is not None and budget is not None:
            raise RequestError(
                "give n= for the least budget, or budget= for the least n, not both; to see the "
                "widths of both given, use preview"
            )
        if n is not None:
            check_rows(n)
        if budget is not None:
            self._check_kind(budget)
        if budget is None and n is None:
            n = self.n
        rows_like = likeness(like, self.strategy)
        strategy = self.strategy if n is None else replace(self.strategy, n=n)
        subject = Subject(strategy, self.analyses[of], of, rows_like, alpha)
        measure: Measure
        if quantity == "width":
            measure = Width(subject, method or "noise_aware", term)
        elif quantity == "delta":
            measure = Delta(subject)
        else:
            measure = Power(subject, alternative, null, term)

        def planned(strategy: Strategy) -> Plan:
            return replace(self, strategy=strategy)

        with shown_progress(progress) as say:
            solution = Problem(
                self.strategy, self.reference, self.analyses, planned, of, quantity, target,
                measure, say, self.budget if budget is None else budget, n,
            ).solve()  # fmt: skip
            if say is not None:
                say("done", 1, 1)
        return solution

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the plan as JSON: the approved plan is the plan that runs.

        Parameters
        ----------
        path : str or Path
        overwrite : bool
            Replace an existing file, but never a ledger or measurements without their release.

        Raises
        ------
        RequestError
            If the file exists or cannot be written.
        """
        text = files.to_json(self.to_dict())
        files.write_atomically(path, text.encode(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Plan:
        """Read a plan from a file; one that was edited since it was saved is refused.

        Parameters
        ----------
        path : str or Path
            File that `save` wrote.

        Returns
        -------
        Plan

        Raises
        ------
        FileFormatError
            If the file is not a plan, or holds what `save` would not write.
        BudgetError, RequestError
            If its noise does not spend its budget, or its blocks are not those that its analyses
            ask for.
        """
        path = files.as_path(path)
        files.check_kind(path, "a plan")
        return cls.from_dict(files.from_json(files.read_bytes(path), "plan", path.name))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "dpstats": "plan",
            "version": files.VERSION,
            **self.strategy.to_dict(),
            "analyses": self.requests,
            "reference": self.reference.to_dict(),
            **({} if self.start is None else {"start": self.start.to_members()}),
            **({"guesses": self.schema.guesses.to_dict()} if self.schema.guesses else {}),
            **({"file": written} if (written := self.schema.written.to_dict()) else {}),
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Plan:
        """Inverse of `to_dict`, checked; the blocks are those of the file, not merged again."""
        with files.reading("the plan", RequestError):
            strategy = Strategy.from_dict(plain)
            if "guesses" in plain:
                guesses = Guesses.from_dict(plain["guesses"])
                strategy = replace(strategy, schema=replace(strategy.schema, guesses=guesses))
            if "file" in plain:
                strategy = replace(strategy, schema=replace(strategy.schema, file=plain["file"]))
            loaded = cls(
                strategy=strategy,
                analyses={name: analysis_from_dict(p) for name, p in plain["analyses"].items()},
                reference=reference_from_dict(plain["reference"]),
                start=Measurements.from_members(plain["start"]) if "start" in plain else None,
            )
            loaded.check()
            check_measured(loaded.strategy, loaded.analyses)
            changed = files.difference(plain, loaded.to_dict())
            if changed is not None:
                raise FileFormatError(
                    f"{changed.lstrip('.')} is not as dps.plan writes it; the file was edited by "
                    "hand: make it again with dps.plan"
                )
        return loaded

    def __str__(self) -> str:
        return "\n".join(line for one in self._lines for line in wrapped(one))

    @property
    def _lines(self) -> list[str]:
        columns = self.columns.names
        reference, own = self.reference, self.reference_block
        already = "" if self.start is None else f". Still to be spent: {self.spends}"
        paid = "" if own is None else f" for {counted(own.block.size, 'sum')} to place candidates"
        derived = self.strategy.tables or self.family.size > self.published.size
        summed = f"from {counted(self.family.size, 'sum')} " if derived else ""
        public, design = self.neighbours.counts_are_public, self.schema.design
        whole = design is not None and design.unit == self.person
        units = design.number_of_units if design is not None and whole else None
        return [
            f"Plan: {counted(len(self.analyses), 'analysis', 'analyses')}, "
            f"{counted(self.published.size, 'test function')} {summed}in "
            f"{counted(len(self.blocks), 'block')}, on "
            f"{'column' if len(columns) == 1 else 'columns'} {', '.join(columns)}",
            f"Budget: {self.budget}; {self.neighbours.stated}{already}",
            *([f"Note: {public}"] if public else []),
            *cautions(self.budget, self.strategy.n, self.neighbours.whom, units),
            f"Noise: discrete {self.budget.noise.capitalize()} of {self._scales(self.blocks)} rows "
            "on every function in [-1, 1]",
            *(
                f"Second stage: {counted(score.block.size, 'sum')} of the score at a pilot, noise "
                f"of {self._scales([score])} rows"
                + ("; the pilot comes from the first stage, and the rows are read twice"
                   if score.pending else "")
                for score in self.strategy.scores
            ),
            *self._person_totals,
            *self._contrasts,
            f"Reference: {reference.to_dict()['kind']}, share of the budget {reference.share}"
            + paid,
            *(
                f"Bins of {column.name}, which declares no edges: {' '.join(column.bin_labels)}; "
                "conditions cannot use them"
                for column in self.columns
                if isinstance(column, Number) and column.even_edges
            ),
            self.columns.missing_rules(),
            *(line[0].upper() + line[1:] for line in self.read_columns.rule_lines),
            *(["Rules hold within each row, not between the rows of a person"]
              if self.read_columns.rules and self.neighbours.rows_per_person > 1 else []),
            f"Digest: {files.short_digest(self.digest)}",
        ]  # fmt: skip

    @property
    def _person_totals(self) -> list[str]:
        totals = self.strategy.of_persons
        if not totals:
            return []
        names = ", ".join(with_person_totals(self.strategy, self.analyses))
        return [
            f"Person totals: {counted(sum(p.block.size for p in totals), 'sum')} of squares and "
            f"products over persons, noise of {self._scales(totals)}, for the intervals of {names}"
        ]

    @property
    def _contrasts(self) -> list[str]:
        contrasts = self.strategy.contrasts
        if not contrasts:
            return []
        counts = sorted({p.block.count for p in contrasts if isinstance(p.block, Contrasts)})
        costs = (p.block.cost(self.budget, self.neighbours, p.multiplier) for p in contrasts)
        several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
        each = " of each block" if len(self.blocks) > 1 else ""
        return [
            f"Contrasts between units: {several}{each}, noise of {self._scales(contrasts)} rows, "
            f"{float(sum(costs) / self.budget.total):.0%} of the budget"
        ]

    def _scales(self, blocks: Sequence[PlannedBlock]) -> str:
        row = self.strategy.row_weight
        noise = sorted({self.budget.natural_scale(planned.multiplier) / row for planned in blocks})
        return f"scale {noise[0]:.4g}" + (f" to {noise[-1]:.4g}" if len(noise) > 1 else "")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html("dpstats plan", self._lines)


def _several(values: Any) -> list[Any]:
    """A list of what was given, or of it alone where it is one."""
    values = listed(values)
    one = isinstance(values, str) or not isinstance(values, Iterable)
    return [values] if one else list(values)


def plan(
    schema: Schema,
    analyses: Mapping[str, Analysis[Result]],
    budget: Budget,
    *,
    n: int | None = None,
    unit: Unit = "replace",
    rows_per_person: int = 1,
    person: str | None = None,
    person_totals: PersonTotals = False,
    reference: Reference | None = None,
    shares: Mapping[str, float | Fraction] | None = None,
    allocation: Allocation = "equal",
    weights: Weights | None = None,
    start: ReleaseView | None = None,
) -> Plan:
    """Plan a release: merge what the analyses need and split the budget. Reads no data.

    Parameters
    ----------
    schema : Schema
    analyses : mapping of name to Analysis
    budget : PureDP, ZCDP or ApproxDP
        For everything that is measured.
    n : int, optional
        The public number of rows; checked if given, needed where a bandwidth depends on it. Under
        ``unit="add_remove"`` it is a guess from public knowledge, and never checked.
    unit : {"replace", "add_remove"}
        Neighbours differ by replacing one row, so that n is public; or by one row more or less:
        then n is measured with noise, and its exact value appears nowhere.
    rows_per_person : int
        The most rows of any one person, k. Neighbours differ in all rows of a person: they are
        replaced, or come or go together. Every block then costs k times as much epsilon, or k^2
        times as much rho, exactly. Without `person` the table is not checked for it.
    person : str, optional
        The column of keys that tells persons apart, which is neither measured nor published. Of
        each person the first `rows_per_person` rows in the table's order are used; rows without a
        key are not, so public totals of the table are refused. In a survey all rows with a key are
        used instead, and the weights of a person are scaled to add up to at most `rows_per_person`
        times the cap. Neighbours then differ in all rows of one person: under ``"add_remove"`` they
        come or go, under ``"replace"`` their values change while keys stay. So under ``"replace"``
        it is public how many rows each person has, and `n` is the exact number of rows that are
        used; unless that is public anyway, take ``unit="add_remove"``, which needs none.
    person_totals : bool or sequence of str
        Measure squares and products of person totals too, for all analyses that use them or for
        those named: intervals then have the sampling variance of persons, as cluster-robust ones
        do, instead of `rows_per_person` times that of independent rows. They cost at most about a
        seventh of what the analyses cost otherwise, under pure DP sometimes more, and have up to 16
        times the noise. For ``person=`` and `rows_per_person` of at most 63.
    reference : Reference, optional
        Where candidate rows come from. If not given, `Uniform()` where the domain of the columns
        in use has at most 20,000 cells (grid points where moments are asked for), else
        `LogLinear()`; neither spends any budget.
    shares : mapping of name to number, optional
        Share of the budget for every analysis, normalised. An analysis spreads its share over its
        blocks in proportion to their sensitivity (squared for Gaussian noise); a block that
        several analyses need takes its largest part.
    allocation : {"equal", "optimal"}
        Without shares: equal noise on every test function in natural units, as in BL24, or the
        least sum of the noise variances, those of tables as in `weights`. A measured number of rows
        gets what it would in an equal split; less where it is the total of a table, or of
        conditions and all other rows, down to 1%.
    weights : {"balanced", "cells", "max", "equal"}
        How tables with common columns share what they get together, for the least noise in their
        combined answers: the sum of the variances of all cells, every table weighted by its number
        of cells to the power -1/2 ("balanced", the default without shares) or by one ("cells"), or
        the largest variance ("max"); or with equal noise on all cells, as in BL24 ("equal"). Under
        `ZCDP` all but the last measure residuals of the tables; see
        ``docs/explanation/inference/overlapping-tables.md``. Tables that an analysis needs as they
        were measured, such as those of a `Difference`, do not share.
    start : Release, optional
        Add to a release of the same table: the second stages of `analyses` (``stages=2``) are
        measured at its estimates, and nothing else. `budget` is for these alone. The new release
        holds what both measured, has both budgets together, and keeps the analyses, `n`, `unit`,
        `rows_per_person`, `person` and `reference` of the first.

    Returns
    -------
    Plan

    Raises
    ------
    RequestError
        For anything that cannot be measured as requested; the message says what to change.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker"), dps.Category("region", ["north", "south"])])
    >>> asked = {"smoking": dps.Proportion("smoker"), "link": dps.Independence("smoker", "region")}
    >>> print(dps.plan(schema, asked, budget=dps.PureDP(1)))
    Plan: 2 analyses, 4 test functions in 1 block, on columns smoker, region
    Budget: epsilon = 1 (pure differential privacy); neighbours differ by replacing one row
    Noise: discrete Laplace of scale 2 rows on every function in [-1, 1]
    Reference: uniform, share of the budget 0
    Cells outside the declaration: smoker: missing or undeclared: counted as False.
        region: missing or undeclared: counted as 'north'
    Digest: ...
    """
    n, rows_per_person = listed(n), listed(rows_per_person)
    check_arguments(schema, analyses, budget, n, reference)
    analyses, neighbours = dict(analyses), Neighbours(unit, rows_per_person, person)
    held_schema = getattr(start, "schema", None)
    if isinstance(held_schema, Schema) and held_schema.declared == schema:
        schema = replace(schema, columns=held_schema.columns)
    check_design(schema, analyses, person_totals=person_totals, start=start, weights=weights)
    schema = with_cap(with_even_edges(schema, analyses), budget, neighbours, n, len(analyses))
    check_totals_of_persons(schema, person)
    if schema.design is not None:
        neighbours, weights = replace(neighbours, copies=STEPS), "equal"
    asked = asked_by_name(analyses, schema)
    for blocks in asked.values():
        refuse_needless_norms(blocks)
    for analysis in analyses.values():
        check_readable(analysis)
    share = Fraction(0) if reference is None else reference.share
    given, weights = weights, check_weights(weights, shares)
    read = None if shares is None else read_shares(shares, list(analyses))
    if start is not None:
        if (reference, given, allocation, n, person_totals) != (None, None, "equal", None, False):
            raise RequestError(
                "start= keeps the reference, the tables, the number of rows and the person totals "
                "of the release: leave out reference=, weights=, allocation=, n= and person_totals="
            )
        strategy = continued(schema, analyses, budget, neighbours, start, read)
        old: Measurements = start.measurements  # type: ignore[attr-defined]
        every = {name: analysis_from_dict(plain) for name, plain in old.requests.items()}
        made = Plan(strategy, every | analyses, reference_from_dict(old.reference_spec), old)
        made.check(made.n)
        return made
    for name, more in person_totals_asked(person_totals, analyses, schema, neighbours).items():
        asked[name] = (*asked[name], *more)
    rule = Split(asked, budget, budget.total * (1 - share), neighbours, allocation, read)
    rule, scores = split_stages(rule, second_stages(analyses, schema))
    division = divide(rule, analyses, schema, weights)
    divided, products = division.blocks, PersonProducts
    measured = [p for p in divided if not isinstance(p.block, products)]
    of_persons = [replace(p, role="persons") for p in divided if isinstance(p.block, products)]
    contrasts: list[PlannedBlock] = []
    if schema.design is not None:
        measured, contrasts = with_contrasts(measured, analyses, schema, budget, neighbours, n)
    family = Family(tuple(planned.block for planned in measured))
    columns = schema.select(family.column_names)
    fitted = Family(tuple(with_conditions(family.blocks, schema)))
    reference = default_reference(columns, fitted) if reference is None else reference
    reference.check_family(fitted)
    planned = [*measured, *scores, *of_persons, *contrasts]
    own = reference.block(columns, n)
    if own is not None:
        multiplier = own.multiplier(budget, neighbours, budget.total * share)
        planned.append(PlannedBlock(own, multiplier, "reference"))
    if unit == "add_remove" or schema.design is not None:
        multiplier = ROWS.multiplier(budget, neighbours, division.count)
        planned.append(PlannedBlock(ROWS, multiplier, "count"))
    strategy = Strategy(
        schema, tuple(planned), budget, unit, n, division.tables, rows_per_person, person
    )
    made = Plan(strategy, analyses, reference)
    made.check(n)
    return made
