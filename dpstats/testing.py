"""The contract of an analysis, for authors of new ones: ``check_analysis``."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats.analyses.base import Analysis, possible_blocks
from dpstats.analyses.registry import check_readable
from dpstats.analyses.second_stage import needs
from dpstats.arrays import Codes, Floats
from dpstats.checks import Alternative, Method, Target
from dpstats.errors import DpstatsError, RequestError
from dpstats.families import is_library_block
from dpstats.families.block import Block, Family
from dpstats.families.contrasts import Contrasts
from dpstats.families.tables.cells import ROWS
from dpstats.measured.answers import Answers, blocks_of
from dpstats.planning.plan import plan
from dpstats.privacy.budget import ZCDP, Budget, PureDP
from dpstats.privacy.neighbours import Unit
from dpstats.privacy.noise import _noise_from
from dpstats.private.measure import measure
from dpstats.releases import Release, load
from dpstats.results.base import INTERVAL_COLUMNS, Result
from dpstats.results.estimates import EstimateResult
from dpstats.rows.uniform import Uniform
from dpstats.schema import Schema
from dpstats.synthesis import synthesize

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ContractError", "check_analysis"]


def __dir__() -> list[str]:
    return sorted(__all__)  # not what this module imports


_OF_INTERVALS = ("conf_int", "pvalues", "simultaneous", "subset")  # see `dps.Intervals`
_INSTANCE = "an analysis must be an instance of a frozen dataclass, whose fields are its parameters"


class ContractError(AssertionError):
    """An analysis breaks the contract; the message says where.

    Examples
    --------
    >>> import dpstats as dps
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> dps.testing.check_analysis(dps.Proportion, schema, data=None)
    Traceback (most recent call last):
        ...
    dpstats.testing.ContractError: an analysis must be an instance of a frozen dataclass,
    whose fields are its parameters
    """


def check_analysis(analysis: Analysis[Result], schema: Schema, data: pd.DataFrame) -> None:
    """Check that an analysis keeps the contract of `dpstats.analyses.base.Analysis`.

    The analysis must be a registered, frozen dataclass whose parameters survive saving and reading.
    Its `family` must return the same blocks of dpstats every time, and its `infer` may use no other
    functions. It must work in a preview and on releases without noise, with noise and with nothing
    but noise, Laplace or Gaussian, whether the number of rows is public or measured. On a release
    that was saved and loaded it must give the same result again. Results must print; intervals
    must be ordered and nested in alpha; p-values must lie in [0, 1], and those of one-sided tests
    must be monotone in the hypothesis. What either of them raises of itself, other than an error
    of dpstats, breaks the contract too.

    Parameters
    ----------
    analysis : Analysis
    schema : Schema
    data : pandas.DataFrame
        Any table that fits the schema; public data, since the noise here is not private.

    Raises
    ------
    ContractError

    Examples
    --------
    >>> import dpstats as dps
    >>> import pandas as pd
    >>> schema = dps.Schema([dps.Boolean("smoker")])
    >>> rows = pd.DataFrame({"smoker": [True] * 30 + [False] * 70})
    >>> dps.testing.check_analysis(dps.Proportion("smoker"), schema, rows)  # silent if all is well
    """
    _check_declaration(analysis)
    with _running("family(schema)"):
        family, again = analysis.family(schema), analysis.family(schema)
    _require(isinstance(family, Family), f"family() must return a Family, got {family!r}")
    _require(family == again, "family() must give the same blocks every time")
    own = [type(block).__name__ for block in family.blocks if not is_library_block(block)]
    _require(not own, f"family() must return blocks of dpstats; no sensitivity is proven for {own}")
    # Budget, neighbours, and whether there is noise. A preview runs the same code on three pretend
    # releases, so two are enough: usual noise with a measured count, and nothing but noise. Results
    # follow from the measurements, so that the usual reference is needed but once.
    usual = ZCDP(0.1)
    cases: list[tuple[Budget, Unit, bool]] = [
        (PureDP(1e6), "replace", False),
        (PureDP(1e-5), "replace", True),
        (usual, "replace", True),
        (PureDP(0.5), "add_remove", True),
    ]
    previewed = [(PureDP(1e-5), "replace"), (PureDP(0.5), "add_remove")]
    reloaded = [(PureDP(1e6), "replace"), (PureDP(0.5), "add_remove")]
    for budget, unit, noisy in cases:
        public = unit == "replace"  # the number of rows is; otherwise every plan measures it
        n = len(data) if public else None
        reference = None if budget == usual else Uniform()
        planned = plan(schema, {"it": analysis}, budget=budget, n=n, unit=unit, reference=reference)
        with nullcontext() if noisy else _noise_from(_Silent()):
            measured = measure(planned, data)
        release = synthesize(measured, m=200, k=50, rng=0)
        whole = (*needs(analysis, schema).blocks, *possible_blocks(analysis, schema))
        asked = whole if public else (*whole, ROWS)
        at = f"at {budget}, {unit}"
        with _running(f"infer(release) {at}"):
            found = analysis.infer(_Guarded(release, asked))
        _check_result(found, at)
        if (budget, unit) in reloaded:
            _check_same(found, _saved_and_loaded(release).infer("it"), at)
        _check_tests(found, at, ordered=not noisy)
        if (budget, unit) not in previewed:
            continue
        with _running(f"a preview {at}"):
            preview = str(planned.preview(n=len(data)))
        _require("it" in preview and not _holds_nan(preview), "preview() must work and hold no NaN")


def _saved_and_loaded(release: Release) -> Release:
    with tempfile.TemporaryDirectory() as folder:
        release.save(Path(folder) / "release.zip")
        return load(Path(folder) / "release.zip")


@contextmanager
def _running(what: str) -> Iterator[None]:
    """Code of the analysis or its result, whose own errors break the contract.

    Raises
    ------
    ContractError
    DpstatsError
        As it is: it says what to do.
    """
    try:
        yield
    except (ContractError, DpstatsError):
        raise
    except Exception as error:
        raise ContractError(f"{what} raised {type(error).__name__}: {error}") from error


def _holds_nan(text: str) -> bool:
    """True if a number in a text is NaN; a name such as "tenant" is none."""
    return re.search(r"\bnan\b", text, re.IGNORECASE) is not None


def _require(holds: object, message: str) -> None:
    if not holds:
        raise ContractError(message)


def _check_declaration(analysis: Analysis[Result]) -> None:
    parameters = getattr(type(analysis), "__dataclass_params__", None)
    is_frozen = parameters is not None and parameters.frozen
    _require(is_frozen, _INSTANCE)
    kind = getattr(type(analysis), "kind", None)
    _require(isinstance(kind, str) and kind, "an analysis needs a kind: ClassVar[str] = '...'")
    for half in ("family", "infer"):
        _require(callable(getattr(analysis, half, None)), f"an analysis needs a method {half}()")
    _require(type(analysis).__doc__, "an analysis needs a docstring: what it estimates")
    try:
        hash(analysis)
    except TypeError:
        raise ContractError("the parameters of an analysis must be hashable: use tuples") from None
    try:
        check_readable(analysis)
    except RequestError as error:
        raise ContractError(str(error)) from None


def _check_same(found: Result, again: Result, at: str) -> None:
    """The result of a release that was saved and loaded."""
    _require(found == again, f"the same release must give equal results {at}: use eq=False")
    _require(hash(found) == hash(again), f"equal results must have the same hash {at}")
    same = found.summary() == again.summary()
    _require(same, f"the same release must give the same result {at}")


def _check_result(found: Result, at: str) -> None:
    _require(
        issubclass(type(found), Result),
        "infer() must return a dps.Result, with summary(), to_frame() and headline, "
        f"got {type(found).__name__}",
    )
    title = found.title
    _require(
        isinstance(title, str) and title.strip() and "\n" not in title,
        f"title must be one line of text {at}, got {title!r}",
    )
    if isinstance(found, EstimateResult):
        _check_estimates(found, at)
    with _running(f"to_frame() {at}"):
        frame = found.to_frame()
    columns = getattr(frame, "columns", None)
    _require(columns is not None, f"to_frame() must give a DataFrame {at}, got {_kind(frame)}")
    _require(len(frame) > 0, f"to_frame() must have rows {at}")
    with _running(f"headline {at}"):
        line = found.headline
    _require(
        isinstance(line, str) and line and "\n" not in line,
        f"headline must be one line of text {at}",
    )
    with _running(f"summary(alpha=, target=) {at}"):
        text = found.summary()
        other = found.summary(alpha=0.2, target="table")
    texts = all(isinstance(one, str) and one for one in (text, other))
    _require(texts, f"summary() must be text {at}")
    _require(not _holds_nan(text), f"summary() shows NaN {at}:\n{text}")
    for shown in (repr(found), getattr(found, "_repr_html_", found.summary)()):
        _require(isinstance(shown, str) and shown, f"a result must print {at}")
    if found.has_intervals:
        with _running(f"intervals_frame(alpha=, method=, target=) {at}"):
            _check_intervals(found, at)
    with _running(f"pvalues {at}"):
        _check_pvalues(found.pvalues, f"p-values {at}")


def _kind(value: object) -> str:
    return type(value).__name__


def _check_estimates(found: EstimateResult, at: str) -> None:
    """The parts from which an `EstimateResult` makes its texts, frames and intervals."""
    terms, d = found.terms, len(found.terms)
    names = all(isinstance(term, str) and term for term in terms) and len(set(terms)) == d
    _require(d and names, f"terms must be different names, one per parameter {at}, got {terms!r}")
    _require(not found.scalar or d == 1, f"scalar=True is for one parameter {at}, got {d}")
    for name in ("sampling_variance", "privacy_variance"):
        variances = np.asarray(getattr(found, name), dtype=np.float64)
        _require((variances >= 0).all(), f"{name} must be 0 or more, or inf, {at}, got {variances}")
    unknown = np.isnan(np.asarray(found.params, dtype=np.float64))
    _require(
        np.isinf(np.asarray(found.bse)[unknown]).all(),
        f"params hold NaN {at} for {[t for t, odd in zip(terms, unknown, strict=True) if odd]}; "
        "an estimate that is not known has infinite variances",
    )
    lacking = [one for one in _OF_INTERVALS if not callable(getattr(found.intervals, one, None))]
    _require(
        not lacking,
        f"intervals must be like dps.Intervals {at}; {_kind(found.intervals)} lacks {lacking}",
    )
    for name in ("conf_int", "simultaneous"):
        with _running(f"intervals.{name}(alpha, method, target) {at}"):
            ends = getattr(found.intervals, name)(0.05, "noise_aware", "population")
            shapes = [np.shape(end) for end in ends]
        _require(
            shapes == [(d,)] * 2,
            f"intervals.{name}() must give two arrays of shape ({d},) {at}, got {shapes}",
        )
    if d > 1:
        with _running(f"intervals.subset(chosen).conf_int(alpha, method, target) {at}"):
            whole, last = (
                np.array(some.conf_int(0.05, "noise_aware", "population"), dtype=np.float64)
                for some in (found.intervals, found.intervals.subset(slice(d - 1, d)))
            )
        _require(
            last.shape == (2, 1) and np.allclose(last, whole[:, -1:], equal_nan=True),
            f"intervals.subset(slice({d - 1}, {d})) must be the intervals of {terms[-1]!r} alone "
            f"{at}: with limits {whole[:, -1]}, got {last.T}",
        )


def _check_tests(found: Result, at: str, *, ordered: bool) -> None:
    """P-values of the tests that a single estimate offers, at its value and near it.

    With noise they need not be ordered: each hypothesis has a test of its own.
    """
    if not found.testable:
        return
    with _running(f"test(value, alternative) {at}"):
        _check_alternatives(found, at, ordered=ordered)


def _check_alternatives(found: Result, at: str, *, ordered: bool) -> None:
    frame = found.intervals_frame(alpha=0.1)
    low, high = (frame[end].to_numpy(dtype=np.float64) for end in ("conf_low", "conf_high"))
    inside = np.clip(frame["estimate"].to_numpy(dtype=np.float64), low, high)  # a possible value
    values = np.unique(np.concatenate([inside, low, high]))
    values = values[np.isfinite(values)]
    if not len(values) or np.ptp(values) < 1e-9:
        return  # all at the edge, perhaps, where a value may be refused
    values = (values + values.mean()) / 2  # away from the edge
    for alternative in get_args(Alternative):
        pvalues = [float(found.test(float(value), alternative).pvalues[0]) for value in values]
        what = f"p-values of {alternative!r} {at}"
        _check_pvalues(pvalues, what)
        sign = {"larger": 1, "smaller": -1, "two-sided": 0}[alternative]
        steps = np.diff(pvalues) * sign * ordered
        _require(
            (steps >= -1e-6).all(), f"{what} must be monotone in the hypothesis, got {pvalues}"
        )
        str(found.test(float(values[0]), alternative))


def _check_pvalues(pvalues: Any, what: str) -> None:
    array = np.asarray(pvalues, dtype=np.float64)
    _require(((array >= 0) & (array <= 1)).all(), f"{what} must lie in [0, 1], got {pvalues}")


def _check_intervals(result: Result, at: str) -> None:
    columns = list(result.intervals_frame())
    _require(
        columns == list(INTERVAL_COLUMNS),
        f"intervals_frame() must have the columns {list(INTERVAL_COLUMNS)} {at}, got {columns}",
    )
    for method in get_args(Method):
        for target in get_args(Target):
            wide, ends = (
                result.intervals_frame(alpha=alpha, method=method, target=target)[
                    ["conf_low", "conf_high"]
                ].to_numpy(dtype=np.float64)
                for alpha in (0.05, 0.2)
            )
            what = f"{method} intervals for the {target} {at}"
            _require(not np.isnan(wide).any(), f"{what} hold NaN; use -inf and inf")
            _require((ends[:, 0] <= ends[:, 1]).all(), f"{what} have low above high")
            lower_is_wider = (wide[:, 0] <= ends[:, 0] + 1e-9).all()
            upper_is_wider = (wide[:, 1] >= ends[:, 1] - 1e-9).all()
            _require(lower_is_wider and upper_is_wider, f"{what} are not nested in alpha")


class _Silent:
    """No noise, for tests."""

    def __call__(self, scale: float, size: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        return np.zeros(size, dtype=np.int64)


class _Guarded:
    """A release that answers only what an analysis asked for beforehand."""

    def __init__(self, release: Release, asked: Sequence[Block]) -> None:
        self._release, self._asked = release, asked
        self.schema, self.n, self.budget = release.schema, release.n, release.budget

    @property
    def candidates(self) -> Mapping[str, Codes]:
        return self._release._view.candidates

    @property
    def weights(self) -> Floats:
        return self._release._view.weights

    @property
    def contrasts(self) -> Sequence[Contrasts]:
        return self._release.contrasts

    def answers(
        self,
        wanted: Family | Block | Sequence[Block],
        *,
        disjoint: bool = False,
        with_count: bool = False,
    ) -> Answers:
        for block in blocks_of(wanted, self.schema):
            follows = any(known.derive(block) is not None for known in self._asked)
            _require(follows, f"infer() asked for {block.names[0]!r}, which family() did not")
        return self._release.answers(wanted, disjoint=disjoint, with_count=with_count)
