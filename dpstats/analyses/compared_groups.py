"""Two groups to compare, named by levels or bins of a column."""

from __future__ import annotations

from collections.abc import Sequence

from dpstats.checks import listed, short
from dpstats.errors import RequestError, SchemaError
from dpstats.inference.counts.group_counts import GroupCounts
from dpstats.inference.moments.noisy_mean import NoisyMean
from dpstats.schema import MISSING_LABEL, Boolean, Column, Schema

Groups = Sequence[str | int | float | bool]


class ComparesGroups:
    """An analysis with the parameters `by` and `groups`, as `Difference` documents them."""

    by: str
    groups: Groups | None

    def __post_init__(self) -> None:
        """Keep the pair as a tuple; its levels are checked once there is a schema."""
        groups = listed(self.groups)
        if groups is None:
            return
        if isinstance(groups, str) or not isinstance(groups, Sequence):
            raise RequestError(f"groups must be a pair of levels, got {short(groups)}")
        if len(groups) != 2:
            raise RequestError(f"groups must be two different levels, got {short(groups)}")
        object.__setattr__(self, "groups", tuple(groups))

    def _chosen(self, schema: Schema) -> tuple[int, int]:
        """Indices of the two bins of `by` to compare, in order; RequestError if there are none."""
        return _pair_of(schema[self.by], self.groups)

    def _labels(self, schema: Schema) -> list[str]:
        """Labels of the two."""
        return [schema[self.by].bin_labels[i] for i in self._chosen(schema)]


def small_groups(names: Sequence[str], groups: Sequence[GroupCounts | NoisyMean]) -> list[str]:
    """A note on each group that is small relative to the noise on its size."""
    return [
        f"group {name} is empty or small relative to the noise (sd {group.size_noise:.2g} rows): "
        "ignore the estimate, use the intervals"
        for name, group in zip(names, groups, strict=True)
        if group.hidden_by_noise
    ]


def _pair_of(column: Column, groups: Groups | None) -> tuple[int, int]:
    labels = column.bin_labels
    if groups is None:
        known = [i for i, label in enumerate(labels) if label != MISSING_LABEL]
        if len(known) != 2:
            raise RequestError(
                f"{column.name!r} has {len(known)} levels or bins, {list(labels)}; name two of "
                "them, as in groups=(first, second)"
            )
        return (known[1], known[0]) if isinstance(column, Boolean) else (known[0], known[1])
    try:
        bins = [column.index(level) for level in groups]
    except SchemaError as error:
        raise RequestError(f"groups: {error}") from None
    if len(bins) != 2 or bins[0] == bins[1]:
        raise RequestError(f"groups must be two different levels, got {short(groups)}")
    return bins[0], bins[1]
