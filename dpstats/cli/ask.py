"""The commands explain and bound: what a release knows of a question that nobody planned for."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from dpstats.cli.arguments import Commands, a_path
from dpstats.terminal import show

if TYPE_CHECKING:
    from dpstats.analyses.base import Analysis
    from dpstats.results.base import Result


def add_commands(commands: Commands) -> None:
    """Add explain and bound."""
    explain = commands.add_parser(
        "explain", help="say whether a release answers a question, from what, and how surely"
    )
    _add_question(explain)
    explain.set_defaults(run=_explain)
    bound = commands.add_parser(
        "bound", help="certified intervals for a question, measured or not, from a release"
    )
    _add_question(bound)
    bound.add_argument(
        "--target",
        choices=("table", "population"),
        default="table",
        help="what the intervals cover: the private table (default) or the population",
    )
    bound.set_defaults(run=_bound)


def _add_question(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("release", type=a_path, help="release.zip")
    parser.add_argument(
        "query",
        help="a condition such as \"smoker == 'yes' and age >= 65\", the name of a planned "
        "analysis, or an analysis such as \"Mean('age', given=\"smoker == 'yes'\")\"",
    )
    parser.add_argument("--given", metavar="CONDITION", help="the share among the rows with it")
    parser.add_argument("--minus", metavar="CONDITION", help="the difference of the two shares")
    parser.add_argument("--over", metavar="CONDITION", help="the ratio of the two shares")
    parser.add_argument(
        "--alpha", type=float, default=0.05, help="error probability (default: 0.05)"
    )


def _query(text: str) -> str | Analysis[Result]:
    """An analysis where the text is a call such as ``Mean('age')``; else the text itself."""
    from dpstats.analyses.spelled_text import analysis_from_text, is_call

    return analysis_from_text(text) if is_call(text) else text


def _explain(options: argparse.Namespace) -> None:
    from dpstats.releases.opening import open_release

    release = open_release(options.release)
    show(
        release.explain(
            _query(options.query), given=options.given, minus=options.minus, over=options.over,
            alpha=options.alpha,
        )
    )  # fmt: skip


def _bound(options: argparse.Namespace) -> None:
    from dpstats.releases.opening import open_release

    release = open_release(options.release)
    found = release.bound(
        _query(options.query), given=options.given, minus=options.minus, over=options.over,
        alpha=options.alpha, target=options.target,
    )  # fmt: skip
    show(found)
