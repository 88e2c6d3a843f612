"""Previews at a lower cost, where their number of releases is not the claim."""

from collections.abc import Iterator

import pytest

from dpstats.planning.previews import simulated


@pytest.fixture(scope="module")
def few_releases() -> Iterator[None]:
    """Previews simulate fewer releases than usual; those that are compared have as many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulated, "_MOST", 8)
        yield
