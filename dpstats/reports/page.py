"""The HTML of a report: a single page that loads nothing, with every text escaped."""

from __future__ import annotations

from typing import Any

from dpstats import files
from dpstats.checks import counted
from dpstats.display import html_table
from dpstats.releases.release import Release
from dpstats.reports.words import of_several, promise
from dpstats.results.rendering import significant


def render(template: str, release: Release, title: str, **values: Any) -> str:
    """Fill a template with what all pages hold, and with `values`.

    A content policy in the page forbids scripts and everything from elsewhere.
    """
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
