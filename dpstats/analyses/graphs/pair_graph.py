"""What results on all pairs of some columns share: names of pairs, edges and the graph of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpstats.arrays import Floats
from dpstats.checks import Target
from dpstats.errors import RequestError

if TYPE_CHECKING:
    import networkx
    import pandas as pd

_ATTRIBUTES = ("p_value", "certified", "verdict", "tested")  # of an edge, besides its weight


class PairGraph(ABC):
    """The pairs of p columns, row by row of the upper triangle, and those that are edges.

    Attributes
    ----------
    columns : tuple of str
    """

    figures: ClassVar[tuple[str, ...]] = ("network",)
    measure: ClassVar[str] = "partial correlation"  # of a pair, as `dps.plots.matrix` names it

    columns: tuple[str, ...]

    @abstractmethod
    def pairs(self) -> pd.DataFrame:
        """All pairs, edges or not: columns first, second, estimate."""

    @abstractmethod
    def edges(self) -> pd.DataFrame:
        """The edges, strongest first: columns first, second, estimate and further ones."""

    @abstractmethod
    def _network(
        self, *, alpha: float, adjust: Any, target: Target, penalty: float | None = None
    ) -> tuple[pd.DataFrame, str]:
        """The lines and the title of `dps.plots.network`, from its options.

        A frame with columns first, second, estimate, and basis: what a line rests on.
        """

    def joined(self, **options: Any) -> pd.DataFrame:
        """The edges of `to_networkx`."""
        return self.edges(**options)

    @property
    def matrix(self) -> pd.DataFrame:
        """Estimates of all pairs as a symmetric (p, p) frame, ones on the diagonal."""
        import pandas as pd

        values = symmetric(self.pairs()["estimate"].to_numpy(), len(self.columns))
        return pd.DataFrame(values, index=self.columns, columns=self.columns)

    def to_networkx(self, **options: Any) -> networkx.Graph[str]:
        """The edges as a networkx graph of the columns.

        Every edge has the attribute ``weight``, the estimate, and where the result has them
        ``p_value``, ``certified``, ``verdict`` and ``tested``: False for a pair of a declared graph
        (``separators=``) that is certified present.

        Parameters
        ----------
        **options
            Those of `edges`.

        Raises
        ------
        RequestError
            If networkx is not installed, or as `edges` does.
        """
        try:
            import networkx
        except ImportError:
            raise RequestError(
                "to_networkx() needs networkx; install it with: pip install 'dpstats[graphs]'"
            ) from None
        graph: networkx.Graph[str] = networkx.Graph()
        graph.add_nodes_from(self.columns)
        for row in self.joined(**options).to_dict("records"):
            found = {name: row[name] for name in _ATTRIBUTES if name in row}
            kept = {name: value for name, value in found.items() if value == value}  # no nan
            graph.add_edge(row["first"], row["second"], weight=row["estimate"], **kept)
        return graph


def pair_names(columns: tuple[str, ...], *, own: bool = False) -> dict[str, np.ndarray[Any, Any]]:
    """Columns first and second (d,) of a frame of pairs; with `own` also every column with itself.

    Examples
    --------
    >>> {side: names.tolist() for side, names in pair_names(("a", "b", "c")).items()}
    {'first': ['a', 'a', 'b'], 'second': ['b', 'c', 'c']}
    """
    names = np.array(columns, dtype=object)
    first, second = np.triu_indices(len(columns), 0 if own else 1)
    return {"first": names[first], "second": names[second]}


def symmetric(values: Floats, p: int) -> Floats:
    """The (p, p) matrix with these entries above and below a diagonal of ones."""
    matrix, upper = np.eye(p), np.triu_indices(p, 1)
    matrix[upper] = matrix.T[upper] = values
    return matrix


def strongest_first(pairs: pd.DataFrame) -> pd.DataFrame:
    """The rows by the size of their estimates."""
    order = pairs["estimate"].abs().sort_values(ascending=False, kind="stable").index
    return pairs.loc[order]
