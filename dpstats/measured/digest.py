"""The digest of a plan: one text for what was approved and for what ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpstats import files
from dpstats.measured.strategy import Strategy


def plan_digest(
    strategy: Strategy, analyses: Mapping[str, Any], reference: Mapping[str, Any]
) -> str:
    """SHA-256 of all that decides what is measured and released; not the number of rows.

    Parameters
    ----------
    strategy : Strategy
    analyses, reference : mappings
        As plain data.
    """
    plain = {**strategy.to_dict(), "analyses": dict(analyses), "reference": dict(reference)}
    del plain["rows"]
    return files.digest(plain)
