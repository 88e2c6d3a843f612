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

    Nor the pilots of second stages, which follow from the first and are not known beforehand.

    Parameters
    ----------
    strategy : Strategy
    analyses, reference : mappings
        As plain data.
    """
    plain = {**strategy.to_dict(), "analyses": dict(analyses), "reference": dict(reference)}
    del plain["rows"]
    plain["blocks"] = [{**b, "pilot": None} if "pilot" in b else b for b in plain["blocks"]]
    return files.digest(plain)
