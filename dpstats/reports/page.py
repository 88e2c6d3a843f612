"""HTML of a report, a page that loads nothing; and the privacy guarantee in plain words."""

from __future__ import annotations

import math
from typing import Any

from dpstats import files
from dpstats.checks import counted
from dpstats.display import html_table
from dpstats.privacy.budget import Budget, PureDP
from dpstats.privacy.cautions import pair_of
from dpstats.privacy.neighbours import Neighbours
from dpstats.releases.release import Release
from dpstats.results.rendering import significant

ALARMS = 0.05  # of the test that a guarantee bounds
PEOPLE = (1, 2, 5)  # times the rows of one person


def most_power(epsilon: float, delta: float, alarms: float = ALARMS) -> float:
    """Bound on the power of any test between two neighbours, at a rate of false alarms.

    Under (epsilon, delta)-privacy P(S) <= exp(epsilon) Q(S) + delta for every event S, so for the
    event that the test rejects, and with the tables exchanged for the event that it does not
    (Wasserman and Zhou 2010, JASA 105, 375-389, Theorem 2.4).
    """
    above = math.exp(min(epsilon, 700.0)) * alarms + delta
    below = 1 - math.exp(-epsilon) * (1 - alarms - delta)
    return min(above, below, 1.0)


def most_power_under(budget: Budget, alarms: float = ALARMS) -> float:
    """Bound on the power for a budget; of rho it uses the whole curve, not one (epsilon, delta).

    With rho-zCDP the Renyi divergence of order a between neighbours is at most a rho. For the event
    that a test rejects this gives log P <= (1 - 1/a) log Q + (a - 1) rho for every a > 1 (van Erven
    and Harremoes 2014, Theorem 9), least at a^2 = log(1/Q) / rho: sqrt(log(1/Q)) <= sqrt(log(1/P))
    + sqrt(rho) (eq. power-under-rho of docs/explanation/privacy/privacy-promise.md). The same holds
    with the tables exchanged for the event that it does not reject.
    """
    bound = most_power(*pair_of(budget), alarms)
    if isinstance(budget, PureDP):
        return bound
    root = math.sqrt(budget.total)  # rho
    above = math.exp(-(max(math.sqrt(-math.log(alarms)) - root, 0.0) ** 2))
    below = -math.expm1(-((math.sqrt(-math.log1p(-alarms)) + root) ** 2))
    return min(bound, above, below)


def percent_up(value: float) -> str:
    """Bound in per cent, rounded up to three digits."""
    return f"{min(math.ceil(value * 1000 - 1e-9) / 10, 100):g}%"


def promise(budget: Budget, neighbours: Neighbours) -> list[str]:
    """State what the budget promises to a person, in sentences."""
    epsilon, delta = pair_of(budget)
    public, one = neighbours.unit == "replace", neighbours.rows == "one row"
    content = "content" if neighbours.person is None else "values, except the key,"
    what = (
        f"differ in the {content} of {neighbours.rows}"
        if public
        else f"differ by {neighbours.rows} that {'is' if one else 'are'} there or not"
    )
    if public:
        several = "which of two sets of values the rows of a given person have"
        tested = "which of two values a given row has" if one else several
    else:
        given = "a given row is" if one else "the rows of a given person are"
        tested = f"whether {given} in the table"
    apart = f"probabilities within a factor of {_factor(epsilon)}"
    apart += f", up to an additional probability of at most {delta:.3g}" if delta else ""
    said = [
        f"The noise was fixed before any row was read. Whatever the rows are, two tables that "
        f"{what} lead to any given release with {apart}.",
        f"Someone who knows all other rows, and tests {tested} with {ALARMS:.0%} false alarms, "
        f"detects it with probability at most {percent_up(most_power_under(budget))}; a test "
        f"that ignores the release detects it with {ALARMS:.0%}.",
        "This holds against any computing power and any other knowledge, now and later. "
        "Nothing that is computed from this file can weaken it.",
    ]
    if public:
        said.append(
            "The number of rows is public and is not protected."
            if neighbours.person is None
            else "The number of rows that are used is public. It and how many rows each person has "
            "are not protected."
        )
    return said


def of_several(budget: Budget, rows_per_person: int) -> tuple[list[str], list[list[str]]]:
    """Header and rows of a table: the guarantee for a person with more rows than were stated."""
    rows = []
    for k in PEOPLE:
        times = k if isinstance(budget, PureDP) else k**2
        whole = budget if k == 1 else budget.of_total(budget.total * times)
        power = percent_up(most_power_under(whole))
        rows.append([counted(k * rows_per_person, "row"), str(whole), power])
    return ["rows of one person", "guarantee", f"most power at {ALARMS:.0%} false alarms"], rows


def _factor(epsilon: float) -> str:
    if epsilon > 20:
        return f"exp({epsilon:g})"
    return f"{math.ceil(math.exp(epsilon) * 100 - 1e-9) / 100:g}"


def render(template: str, release: Release, title: str, **values: Any) -> str:
    """Fill a template; a content policy in the page forbids scripts and all from elsewhere."""
    import jinja2  # late: it takes a tenth of a second

    pages = jinja2.Environment(
        loader=jinja2.PackageLoader("dpstats.reports"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    pages.globals |= {
        "counted": counted,
        "html_table": html_table,
        "repr": repr,
        "short_digest": files.short_digest,
        "significant": significant,
    }
    measurements = release.measurements
    return pages.get_template(template).render(
        title=title,
        release=release,
        measurements=measurements,
        promises=promise(measurements.budget, measurements.neighbours),
        several=of_several(measurements.budget, measurements.rows_per_person),
        **values,
    )
