"""An end-to-end example on a public data set: ``dpstats demo``."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from dpstats import files
from dpstats.analyses.counts.marginals import Marginals
from dpstats.analyses.counts.proportion import Proportion
from dpstats.planning.plan import Plan, plan
from dpstats.planning.requests import load_request
from dpstats.releases import Release, load
from dpstats.reports.report import report
from dpstats.synthesis import release

if TYPE_CHECKING:
    import pandas as pd

    from dpstats.checks import Progress


PROPORTIONS = ("affair", "affair, good marriage", "affair, poor marriage", "religious")
TABLE = "religion by marriage"


def fair_plan() -> Plan:
    """The bundled request for the survey of Fair (1978)."""
    with resources.as_file(resources.files("dpstats.datasets") / "fair.request.toml") as path:
        return load_request(path)


def fair_data() -> pd.DataFrame:
    """The survey of Fair (1978) from statsmodels: 6,366 rows, 9 columns, public."""
    from statsmodels.datasets import fair

    frame: pd.DataFrame = fair.load_pandas().data
    return frame


def run_demo(
    output: Path, *, seed: int | None = 1, progress: Progress | None = None, overwrite: bool = False
) -> None:
    """Run the example, print every step, save the release at `output` and a report beside it."""
    page = output.with_name(f"{output.stem}-report.html")
    for place in (output, page):
        files.check_place(place, overwrite=overwrite)
    planned, data = fair_plan(), fair_data()
    _say("1. The data", _DATA.format(rows=len(data), columns=len(data.columns)))
    _say("2. The schema: declared, never derived from the rows", str(planned.schema))
    _say(
        "3. The request: five small analyses",
        "\n".join(f"{name}: {analysis}" for name, analysis in planned.analyses.items()),
    )
    _say("4. The preview: expected interval widths, before any row is read", str(planned.preview()))
    _say("5. The cost of asking for everything", _everything(planned))

    made = release(planned, data, rng=seed, progress=progress)
    _say("6. The release: the only step that reads private rows", str(made))
    made.save(output, overwrite=overwrite)
    opened = load(output)
    _say(
        f"7. Saved as {output} and loaded: all results below come from this file",
        f"The first of {opened.k} synthetic rows:\n{opened.to_frame().head().to_string()}",
    )
    _say("8. The certificate", str(opened.accuracy()))
    _say("9. The results", _answers(opened, data))
    report(opened, page, title="Report of the demo: Fair (1978)", overwrite=overwrite)
    print(f"\nThe release is in {output}; open it with dps.load({str(output)!r}).")
    print(f"Its report is in {page}; open it with a browser.")


_DATA = (
    "Fair (1978) surveyed {rows} married women; {columns} columns, bundled with statsmodels. The\n"
    "data are public: this example may show the non-private results beside the private ones."
)


def _say(title: str, text: str) -> None:
    print(f"\n{title}\n{'=' * len(title)}\n{text}")


def _everything(planned: Plan) -> str:
    names = list(planned.schema.names)
    pairs = plan(
        planned.schema, {"pairs": Marginals(names)}, budget=planned.budget, n=planned.n,
        weights="equal",
    )  # fmt: skip
    n = planned.n or 1
    here, there = (
        float(np.sqrt(p.budget.law(p.budget.natural_scale(p.blocks[0].multiplier)).variance)) / n
        for p in (planned, pairs)
    )
    return (
        f"All {len(pairs.blocks)} tables of two columns at the same epsilon: "
        f"{pairs.family.size} functions, equal noise of sd {there:.4f} on each,\n"
        f"instead of {planned.family.size} functions with noise sd {here:.4f}: "
        f"{there / here:.0f} times the noise. Ask for what you need."
    )


def _answers(opened: Release, data: pd.DataFrame) -> str:
    rows = opened.to_frame()
    header = (
        f"{'analysis':<22}  {'non-private':>11}  {'estimate':>8}  {'95% noise-aware':>16}  "
        f"{'95% certified':>16}  {'naive on rows':>16}"
    )
    lines = [header, "-" * len(header)]
    for name in PROPORTIONS:
        analysis = cast(Proportion, opened.analyses[name])
        result = opened.infer(analysis)
        lines.append(
            f"{name:<22}  {_share(data, analysis):>11.4f}  {float(result):>8.4f}  "
            f"{_interval(result.conf_int())}  {_interval(result.conf_int(method='certified'))}  "
            f"{_interval(_naive(rows, analysis))}"
        )
    return "\n".join(
        [
            *lines,
            "",
            "Target: the population. The naive interval treats synthetic rows as data: it ignores",
            "the privacy noise and is too short. It is shown only as a warning.",
            "",
            opened.infer(TABLE).summary(),
        ]
    )


def _held(frame: pd.DataFrame, condition: str) -> np.ndarray:
    """Which rows, public or synthetic, satisfy a condition of the example."""
    labels = {"rate_marriage": ["very poor", "poor", "fair", "good", "very good"]}
    labels["religious"] = ["not", "mildly", "fairly", "strongly"]
    named = frame.assign(
        **{
            name: frame[name].map(dict(enumerate(texts, start=1))).astype(str)
            for name, texts in labels.items()
            if frame[name].dtype.kind == "f"
        }
    )
    return np.asarray(named.eval(condition), dtype=bool)


def _share(frame: pd.DataFrame, analysis: Proportion) -> float:
    inside = slice(None) if analysis.given is None else _held(frame, analysis.given)
    return float(_held(frame, analysis.condition)[inside].mean())


def _naive(rows: pd.DataFrame, analysis: Proportion) -> np.ndarray:
    inside = np.ones(len(rows), bool) if analysis.given is None else _held(rows, analysis.given)
    share = _held(rows, analysis.condition)[inside].mean()
    half = 1.96 * np.sqrt(share * (1 - share) / inside.sum())
    return np.array([share - half, share + half])


def _interval(ends: np.ndarray) -> str:
    return f"[{ends[0]:.4f}, {ends[1]:.4f}]"
