"""The report for analysts: results first, then the certificate, the plan, privacy and limits."""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from dpstats import files
from dpstats.analyses.registry import spelled
from dpstats.caching import Cached
from dpstats.checks import Method, counted
from dpstats.error_rates import USUAL_BETA, percent
from dpstats.measured.certificate import Accuracy
from dpstats.planning.previews.expected_accuracy import SCALED
from dpstats.planning.previews.preview import (
    FOR_TABLE,
    WITHOUT,
    certified_text,
    preview_strategy,
    previewed_width,
    width_text,
)
from dpstats.releases.interchange import CAUTION, limits
from dpstats.releases.release import Release
from dpstats.reports import figures
from dpstats.reports.answerable import answerable
from dpstats.reports.page import (
    Section,
    bullets,
    facts,
    heading,
    page,
    paragraph,
    prose,
    scrolling,
    table,
)
from dpstats.reports.pictures import Picture, can_draw
from dpstats.reports.words import of_several, promise
from dpstats.results.base import Result
from dpstats.results.rendering import significant

if TYPE_CHECKING:
    from dpstats.checks import Progress

_NO_PICTURES = "This page has no figures: matplotlib was not installed where it was written."


@dataclass(frozen=True)
class AnalystReport(Cached):
    """The report of one release.

    Attributes
    ----------
    release : Release
    title : str
    progress : callable, optional
        Called with a text, the number of analyses so far, and that of all.
    like : Release, Guesses, data frame or Likeness, optional
        What the rows of the expected widths resemble; without it the page expects no widths.
    """

    release: Release
    title: str
    progress: Progress | None = None
    like: Any = None

    def html(self) -> str:
        """The page."""
        sections = (
            self._results(),
            self._certificate(),
            self._margins(),
            self._asked(),
            self._privacy(),
            *(() if self.like is None else (self._reached(),)),
            self._rules(),
            self._limits(),
            self._further(),
        )
        return page(self.title, self._lead(), sections)

    @cached_property
    def _keys(self) -> Iterator[int]:
        """Numbers of the figures."""
        return itertools.count(1)

    @cached_property
    def _inferred(self) -> tuple[Mapping[str, Result], Mapping[str, str]]:
        """Results by name, and why the others have none."""
        results, failed = {}, dict(self.release.unread)
        analyses = self.release.analyses
        for done, name in enumerate(analyses):
            if self.progress is not None:
                self.progress("inferring", done, len(analyses))
            try:
                results[name] = self.release.infer(name)
            except Exception as error:  # one of another package may raise anything
                failed[name] = f"no result: {error}"
        return results, failed

    @cached_property
    def _accuracies(self) -> Mapping[str, Accuracy]:
        """Certificates of the analyses, each at its own level."""
        found = {}
        for name in self._inferred[0]:
            try:
                found[name] = self.release.accuracy(name, alpha=USUAL_BETA)
            except Exception:  # as above; the section names those that have none
                continue
        return found

    def _pictures(self, pictures: Iterator[Picture]) -> str:
        if not can_draw():
            return ""
        return "\n".join(self._picture(one) for one in pictures)

    def _picture(self, picture: Picture) -> str:
        try:
            return picture.html(f"figure{next(self._keys)}")
        except Exception as error:  # the rest of the page does not depend on it
            return paragraph(f"{picture.title}: no figure could be drawn: {error}", "warn")

    def _lead(self) -> Iterator[str]:
        release = self.release
        held = release.measurements
        if held.not_private:
            yield paragraph(
                "NOT PRIVATE: the noise came from a source for testing; do not publish.", "warn"
            )
        yield paragraph(
            f"Answers to {counted(len(held.requests), 'planned analysis', 'planned analyses')} on "
            f"a private table, under differential privacy, with synthetic rows. All of this page "
            "follows from the published release; no private row was read to write it.",
            "lead",
        )
        about = "" if held.rows.public else "about "
        yield facts([
            ("Private rows", f"{about}{release.n:,}"),
            ("Synthetic rows", f"{release.k:,}"),
            ("Noisy answers", f"{len(held.noisy_sums):,}"),
            ("Privacy budget", str(release.budget)),
            ("Digest of the plan", files.short_digest(held.plan_digest)),
            ("Columns", ", ".join(release.columns.names)),
        ])  # fmt: skip
        if not can_draw():
            yield paragraph(_NO_PICTURES, "note")

    def _asked(self) -> Section:
        analyses = self.release.analyses
        rows = [
            [name, spelled(one), f"{one.family(self.release.schema).size:,}"]
            for name, one in analyses.items()
        ]
        rows += [[name, reason, ""] for name, reason in self.release.unread.items()]
        asked = table("Planned analyses", ["analysis", "as it was asked", "functions"], rows)
        return Section("asked", "What was asked", (prose(asked),))

    def _privacy(self) -> Section:
        held = self.release.measurements
        header, rows = of_several(held.budget, held.rows_per_person)
        return Section(
            "privacy",
            "Privacy: spent and promised",
            (
                paragraph(f"Spent: {held.budget}. {held.neighbours.persons.capitalize()}."),
                bullets(promise(held.budget, held.neighbours)),
                *(
                    [prose(table("Guarantee for several rows of one person", header, rows))]
                    if held.person is None
                    else []
                ),
                paragraph(
                    f"The plan with the digest {held.plan_digest} was measured once. Compare the "
                    "digest with that of the approved plan and of the custodian's ledger.",
                    "note",
                ),
            ),
        )

    def _reached(self) -> Section:
        """Widths expected from the plan, beside those of the release."""
        release, (results, _) = self.release, self._inferred
        held = release.measurements
        parts = []
        chosen = {name: release.analyses[name] for name in results}
        try:
            expected = preview_strategy(
                held.strategy, chosen, release.n, self.like, progress=self.progress,
                fixed=held.reference_spec.get("kind") == "uniform",
            )  # fmt: skip
        except Exception as error:  # as above
            parts.append(paragraph(f"The plan cannot be previewed here: {error}"))
        else:
            rows = []
            for outlook in expected.outlooks:
                reached = [previewed_width(results[outlook.name], m) for m in get_args(Method)]
                most = outlook.whole
                rows.append([
                    outlook.name, significant(outlook.noise),
                    *(width_text(width, most) for width in (outlook.width, reached[0])),
                    *(
                        certified_text(width, most, outlook.certified_target)
                        for width in (outlook.certified_width, reached[1])
                    ),
                    outlook.of or WITHOUT,
                ])  # fmt: skip
            header = [
                "analysis", "noise sd", "expected width", "reached", "expected, certified",
                "reached, certified", "intervals of",
            ]  # fmt: skip
            parts += [
                paragraph(
                    "Median widths of 95% intervals: as expected from the plan, and as reached. "
                    f"Expected widths are from simulated releases of {expected.said}."
                ),
                prose(table("Widths expected and reached", header, rows), last=True),
            ]
            if any(one.certified_target == "table" for one in expected.outlooks):
                parts.append(paragraph(f"{FOR_TABLE[0].upper()}{FOR_TABLE[1:]}.", "note"))
            whole = release.accuracy()
            parts.append(
                paragraph(
                    f"Synthetic rows: the largest noise on "
                    f"{counted(expected.accuracy.functions, 'function')} was expected to be about "
                    f"{significant(expected.accuracy.delta)} (the median; {SCALED}"
                    f"{expected.accuracy.whose and '; ' + expected.accuracy.whose}). The rows "
                    f"came within {significant(_misfit(whole))} of the noisy answers."
                )
            )
        return Section("reached", "The plan against what was reached", tuple(parts))

    def _certificate(self) -> Section:
        accuracies = self._accuracies
        rows = [
            [name, significant(_misfit(one)), significant(float(one.joint_radius.max())),
             significant(one.delta), one.worst]
            for name, one in accuracies.items()
        ]  # fmt: skip
        header = ["analysis", "misfit to the answers", "noise", "bound", "largest for"]
        whole = self.release.accuracy()
        left = self.release.measurements.published.size - len(whole.names)
        others = f" It leaves out {counted(left, 'function')} that only sampling variances need."
        return Section(
            "certificate",
            "The certificate",
            (
                paragraph(" ".join(str(whole).splitlines()) + (others if left else "")),
                self._pictures(figures.of_certificate(whole)),
                heading("Per analysis"),
                paragraph(
                    f"Each bound holds with probability {percent(USUAL_BETA)} by itself, for all "
                    f"functions that its analysis uses jointly; {SCALED}."
                ),
                prose(table("Certificate of each analysis", header, rows), last=True),
            ),
        )

    def _results(self) -> Section:
        results, failed = self._inferred
        parts = [
            paragraph(
                "Noise-aware intervals account for sampling and for the known law of the privacy "
                "noise. Certified ones hold for any data, in the worst case. Levels are 95%, each "
                "interval by itself."
            )
        ]
        for name, result in results.items():
            shown = _shown(name, result)
            drawn = figures.of_result(self.release, name, self.release.analyses[name], result)
            parts += [heading(name), paragraph(result.headline), shown, self._pictures(drawn)]
        for name, reason in failed.items():
            parts += [heading(name), paragraph(reason, "warn")]
        return Section("results", "Results", tuple(parts))

    def _margins(self) -> Section:
        columns = self.release.columns.names
        found = [self._pictures(figures.of_margin(self.release, name)) for name in columns]
        without = [name for name, drawn in zip(columns, found, strict=True) if not drawn]
        parts = [paragraph(CAUTION), *found]
        if without and can_draw():
            parts.append(
                paragraph(
                    f"Not drawn, since their levels were not counted or are too many: "
                    f"{', '.join(without)}."
                )
            )
        return Section("rows", "Synthetic rows against noisy answers", tuple(parts))

    def _rules(self) -> Section:
        rows = [
            [column.name, column.missing_rule(), column.note] for column in self.release.columns
        ]
        header = ["column", "missing and undeclared cells", "note of the custodian"]
        return Section(
            "missing",
            "Missing and undeclared cells",
            (prose(table("Rules for missing and undeclared cells", header, rows)),),
        )

    def _limits(self) -> Section:
        release = self.release
        said = [limits(release.measurements.neighbours), *release.notes, *release.unread.values()]
        said.append(
            "Values outside the declared bounds were clamped to them, and results are for the "
            "clamped values."
        )
        return Section("limits", "Limits", (bullets(said),))

    def _further(self) -> Section:
        measured = self.release.measured()
        rows = [
            [kind, columns, f"{functions:,}", significant(noise), analyses]
            for kind, columns, functions, noise, analyses in measured[
                ["kind", "columns", "functions", "noise_sd", "analyses"]
            ].itertuples(index=False)
        ]
        header = ["measured", "columns", "functions", "noise sd", "serves"]
        asking = answerable(self.release)
        return Section(
            "further",
            "What else this release can answer",
            (
                paragraph(
                    "Further questions cost no privacy. Open the release with dps.load and ask."
                ),
                prose(table("Questions", ["question", "about", "example"], asking)),
                heading("What was measured"),
                prose(table("Measured blocks", header, rows), last=True),
            ),
        )


def _shown(name: str, result: Result) -> str:
    """The text and the table of a result."""
    if type(result).__module__.startswith("dpstats."):
        label = f"Table of {name}"
        start, end = scrolling(label, "\n").split("\n")
        shown: str = result._repr_html_()
        return shown.replace("<table>", f"{start}<table>").replace("</table>", f"</table>{end}")
    return scrolling(f"Result of {name}", f"<pre>{html.escape(result.summary())}</pre>")


def _misfit(accuracy: Accuracy) -> float:
    """Largest difference of the rows from the noisy answers, without rounding errors."""
    return round(float(np.abs(accuracy.synthetic - accuracy.noisy).max()), 12)
