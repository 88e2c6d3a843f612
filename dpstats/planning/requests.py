"""Requests: schema, analyses and budget in one reviewable TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from dpstats import files
from dpstats.analyses.base import Analysis
from dpstats.analyses.registry import analysis_from_dict
from dpstats.checks import did_you_mean, first_few, short
from dpstats.errors import BudgetError, RequestError
from dpstats.measured.view import ReleaseView
from dpstats.planning.plan import Plan, plan
from dpstats.privacy.budget import ZCDP, ApproxDP, Budget, PureDP
from dpstats.privacy.rationals import parse_fraction
from dpstats.results.base import Result
from dpstats.rows import reference_from_dict
from dpstats.schema import Guesses, Schema
from dpstats.schema.toml_files import KEYS, check_keys, read_toml

_AMOUNTS = {"epsilon", "delta", "rho"}
_OPTIONS = ("unit", "rows_per_person", "person", "person_totals", "allocation", "weights")


def load_request(
    path: str | Path,
    *,
    rows: int | None = None,
    rows_per_person: int | None = None,
    person: str | None = None,
    person_totals: bool | None = None,
    start: ReleaseView | None = None,
) -> Plan:
    """Plan of the request in a TOML file, of which options replace some keys; reads no data.

    The keys are in ``docs/reference/request-file.md``. RequestError names the one that is missing,
    unknown or wrong.
    """
    path = files.as_path(path)
    document = read_toml(path, "request")
    options = {
        "rows": rows, "rows_per_person": rows_per_person, "person": person,
        "person_totals": person_totals,
    }  # fmt: skip
    with files.named_in_errors(path):
        document |= {key: value for key, value in options.items() if value is not None}
        return _plan(document, path.parent, start)


def _plan(document: Mapping[str, Any], folder: Path, start: ReleaseView | None) -> Plan:
    check_keys(document)
    if "column" in document and not {"analysis", "budget"} & document.keys():
        raise RequestError(
            "this is a schema, not a request; write a request with schema = 'FILE', [budget] and "
            "[[analysis]] tables"
        )
    if ("column" in document) == ("schema" in document):
        raise RequestError("give [[column]] tables, or schema = 'file.toml'")
    guesses, file = document.get("guesses"), document.get("file")
    if "schema" in document:
        schema = Schema.load(folder / files.as_path(document["schema"]))
        if guesses is not None:
            schema = replace(schema, guesses=Guesses.from_dict(guesses))
        if file is not None:
            schema = replace(schema, file=file)
        for key, table in (("rule", "[[rule]]"), ("total", "[[total]]"), ("design", "[design]")):
            if key in document:
                raise RequestError(
                    f"{table} tables belong in the file of the schema, with its columns"
                )
    else:
        between = document.get("rule", ()), document.get("total", ())
        schema = Schema.from_dict(
            document["column"], guesses, file, *between, folder=folder,
            design=document.get("design"),
        )  # fmt: skip
    analyses, shares = _analyses(document.get("analysis"))
    reference = document.get("reference")
    return plan(
        schema, analyses, budget=_budget(document.get("budget")), n=document.get("rows"),
        reference=None if reference is None else reference_from_dict(reference),
        shares=shares or None, start=start,
        **{key: document[key] for key in _OPTIONS if key in document},
    )  # fmt: skip


def _budget(table: Any) -> Budget:
    try:
        return _read_budget(table if isinstance(table, Mapping) else {})
    except BudgetError as error:  # no budget is exceeded
        raise RequestError(f"[budget]: {error}") from None


def _read_budget(plain: Mapping[str, Any]) -> Budget:
    if unknown := sorted(set(plain) - _AMOUNTS):
        above = sorted(set(unknown) & KEYS)
        remedy = f"put {above} above the first [table]" if above else "correct or remove them"
        raise RequestError(
            f"[budget] has unknown keys {first_few(unknown)}{did_you_mean(unknown, _AMOUNTS)}; it "
            f"takes epsilon, epsilon and delta, or rho; {remedy}"
        )
    amounts = {key: parse_fraction(value) or value for key, value in plain.items()}  # as "1/3"
    for key, value in amounts.items():
        if isinstance(value, str):
            raise RequestError(
                f"[budget]: {key} = {short(value)} is text; write a number without quotes, such as "
                f'{key} = 0.5, or a fraction with them, such as {key} = "1/3"'
            )
    if set(amounts) == {"epsilon"}:
        return PureDP(amounts["epsilon"])
    if set(amounts) == {"rho"}:
        return ZCDP(amounts["rho"])
    if set(amounts) == {"epsilon", "delta"}:
        return ApproxDP(amounts["epsilon"], amounts["delta"])
    raise RequestError(
        "needs [budget] with epsilon = ... (pure privacy, Laplace noise), with epsilon = "
        "... and delta = ... (approximate privacy, Gaussian noise), or with rho = ... "
        "(zero-concentrated privacy, Gaussian noise), and nothing else"
    )


def _analyses(tables: Any) -> tuple[dict[str, Analysis[Result]], dict[str, Any]]:
    if not isinstance(tables, list) or not tables:
        raise RequestError("needs [[analysis]] tables, each with a name and a kind")
    analyses: dict[str, Analysis[Result]] = {}
    shares: dict[str, Any] = {}
    for table in tables:
        plain = dict(table) if isinstance(table, Mapping) else {}
        label = plain.pop("name", None)
        if not isinstance(label, str) or not label.strip():
            raise RequestError("every [[analysis]] needs a name")
        if label in analyses:
            raise RequestError(f"two analyses are named {label!r}; give each a name of its own")
        if "share" in plain:
            shares[label] = plain.pop("share")
        try:
            analyses[label] = analysis_from_dict(plain)
        except RequestError as error:
            raise RequestError(f"[[analysis]] {label!r}: {error}") from None
    return analyses, shares
