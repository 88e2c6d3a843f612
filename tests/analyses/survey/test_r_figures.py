"""Figures of R's survey package in tests/data, by linearisation and by contrasts of units."""

import itertools
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

DATA = Path(__file__).parents[2] / "data"
FIGURES = json.loads((DATA / "survey.json").read_text("utf-8"))
SURVEY, NHANES, LONELY = (FIGURES[x] for x in ("survey", "nhanes", "lonely"))


class Rows:
    """Rows of a data set with their coded weights, strata and units."""

    def __init__(self, frame, stratum, unit, cap):
        self.frame, self.u = frame, frame["u"].to_numpy() / 4096 * cap
        self.keys = [frame[stratum].to_numpy(), frame[unit].to_numpy()]

    def columns(self, *names):
        return self.frame[list(names)].to_numpy(float).T

    def levels(self, name):
        """Indicators of the levels of a column, in the order of R's."""
        column = self.frame[name].to_numpy()
        return (column == np.unique(column)[:, None]).astype(float)

    def totals(self, z):
        """Totals of columns of linearised values by unit, an array for each stratum."""
        sums = pd.DataFrame(z).groupby(self.keys).sum()
        return [x.to_numpy() for _, x in sums.groupby(level=0)]

    def variance(self, z):
        """With replacement: m / (m - 1) times squares about the mean of the stratum."""
        strata = [(len(x), x - x.mean(0)) for x in self.totals(z)]
        return sum(m / (m - 1) * x.T @ x for m, x in strata)

    def ratios(self, above, below=1.0):
        """Ratios of totals of rows of `above` to those of `below`, and their linearised values."""
        below = np.broadcast_to(below, above.shape)
        size = below @ self.u
        params = above @ self.u / size
        return params, (self.u * (above - params[:, None] * below) / size[:, None]).T


@pytest.fixture(scope="module")
def survey():
    return Rows(pd.read_csv(DATA / "survey.csv"), "stratum", "psu", SURVEY["about"]["cap"])


@pytest.fixture(scope="module")
def nhanes():
    return Rows(pd.read_csv(DATA / "nhanes.csv"), "SDMVSTRA", "SDMVPSU", NHANES["about"]["cap"])


def same(figure, params, cov):
    params, cov = np.atleast_1d(params), np.atleast_2d(cov)
    np.testing.assert_allclose(params, figure["params"], rtol=1e-10)
    se = np.sqrt(np.diag(figure["cov"]))
    np.testing.assert_allclose(cov / np.outer(se, se), figure["cov"] / np.outer(se, se), atol=1e-10)


def test_weights_are_cut_and_rounded_half_to_even(survey, nhanes):
    for rows, name, about in (
        (survey, "w", SURVEY["about"]),
        (nhanes, "WTMEC2YR", NHANES["about"]),
    ):
        share = np.minimum(rows.frame[name], about["cap"]) / about["cap"]
        np.testing.assert_array_equal(np.rint(share * 4096), rows.frame["u"])
        assert (rows.frame["u"] == 4096).sum() == about["capped"]
        assert rows.u.mean() == pytest.approx(about["mean_weight"], rel=1e-12)
        units = [len(x) for x in rows.totals(rows.u)]
        assert (len(rows.u), sum(units) - len(units)) == (about["rows"], about["degf"])


def test_means_and_totals(survey, nhanes):
    edges = np.arange(10, 91, 10)[:, None]
    below = (survey.frame["income"].to_numpy() <= edges).astype(float)
    for rows, figure, values in [
        (survey, SURVEY["means"], survey.columns("ill", "income", "age", "visits")),
        (survey, SURVEY["region"], survey.levels("region")),
        (survey, SURVEY["income_below"], below),
        (nhanes, NHANES["means"], nhanes.columns("HI_CHOL")),
        (nhanes, NHANES["race"], nhanes.levels("race")),
    ]:
        params, z = rows.ratios(values)
        same(figure, params, rows.variance(z))
    ill, income = survey.columns("ill", "income")
    z = survey.u[:, None] * np.array([ill, 1 - ill, income]).T
    same(SURVEY["totals"], z.sum(0), survey.variance(z))


def test_domains_and_ratios(survey, nhanes):
    women = survey.levels("sex")[0]
    coast = women * survey.levels("region")[0]
    both, ratio = survey.columns("ill", "income"), survey.columns("income", "visits")
    age = survey.frame["age"].to_numpy()
    sexes, regions = survey.levels("sex"), survey.levels("region")
    races, ages = nhanes.levels("race"), nhanes.levels("agecat")
    high = nhanes.columns("HI_CHOL")
    for rows, figure, above, below in [
        (survey, SURVEY["women"], both * women, women),
        (survey, SURVEY["women_on_the_coast"], both * coast, coast),
        (survey, SURVEY["ill_by_sex"], both[0] * sexes, sexes),
        (survey, SURVEY["income_by_region"], both[1] * regions, regions),
        (survey, SURVEY["region_of_women"], regions * women, women),
        (survey, SURVEY["ratios_to_age"], ratio, age),
        (survey, SURVEY["ratios_to_age_of_women"], ratio * women, age * women),
        (nhanes, NHANES["by_race"], high * races, races),
        (nhanes, NHANES["by_agecat"], high * ages, ages),
    ]:
        params, z = rows.ratios(above, below)
        same(figure, params, rows.variance(z))
    params, z = survey.ratios(both[0] * sexes, sexes)
    signs = np.array([1, -1])
    same(SURVEY["difference_of_sexes"], params @ signs, signs @ survey.variance(z) @ signs)


@pytest.mark.parametrize("rule", ["certainty", "adjust", "average", "collapse"])
def test_lonely_units(survey, rule):
    frame = survey.frame[(survey.frame["stratum"] != "a") | (survey.frame["psu"] != 2)]
    if rule == "collapse":
        frame = frame.assign(psu=frame["psu"] + 10 * (frame["stratum"] == "a"))
        frame = frame.assign(stratum=frame["stratum"].replace("a", "b"))
    rows = Rows(frame, "stratum", "psu", SURVEY["about"]["cap"])
    params, z = rows.ratios(rows.columns("ill", "income"))
    strata = rows.totals(z)
    cov = sum(len(x) / (len(x) - 1) * np.cov(x.T, ddof=0) * len(x) for x in strata if len(x) > 1)
    if rule == "adjust":  # about the mean of all, which is 0
        cov = cov + strata[0].T @ strata[0]
    if rule == "average":
        cov = cov * 6 / 5
    same(LONELY[rule], params, cov)


@pytest.mark.parametrize("kind", ["mean", "xlogit"])
def test_quantiles_are_those_of_woodruff(survey, kind):
    figure, t = SURVEY["income_quantiles"][kind], stats.t.ppf(0.975, SURVEY["about"]["degf"])
    income = survey.frame["income"].to_numpy()
    values = np.unique(income)
    shares = (income <= values[:, None]) @ survey.u / survey.u.sum()
    for k, probability in enumerate(figure["probabilities"]):
        quantile = values[shares >= probability][0]
        (share,), z = survey.ratios((income <= quantile)[None].astype(float))
        limits = t * np.sqrt(survey.variance(z)[0, 0]) * np.array([-1, 1])
        if kind == "mean":
            limits = share + limits
        else:
            limits = stats.logistic.cdf(stats.logistic.ppf(share) + limits / share / (1 - share))
        lower, upper = (values[shares >= x][0] for x in limits)
        expected = [figure[x][k] for x in ("params", "lower", "upper", "se")]
        np.testing.assert_allclose([quantile, lower, upper, (upper - lower) / 2 / t], expected)


def regression(rows, figure, x, y, mean, weight):
    """Scores and linearised values at the coefficients of R, with the mean and its derivative."""
    b = np.array(figure["params"])
    bread = np.linalg.inv((rows.u * weight(x.T @ b) * x) @ x.T)
    scores = (rows.u * (y - mean(x.T @ b)) * x).T
    same(figure, b + bread @ scores.sum(0), rows.variance(scores @ bread))


def test_regressions(survey):
    one = np.ones(len(survey.u))
    ill, income, age, visits = survey.columns("ill", "income", "age", "visits")
    men, regions = survey.levels("sex")[1], survey.levels("region")[1:]
    women = 1 - men

    x = np.array([one, age, men, *regions])
    regression(survey, SURVEY["ols"], x, income, lambda eta: eta, np.ones_like)
    x = np.array([one, age, *regions]) * women
    regression(survey, SURVEY["ols_of_women"], x, income * women, lambda eta: eta, np.ones_like)
    x, slope = np.array([one, age / 10, men]), stats.logistic.pdf
    regression(survey, SURVEY["logistic"], x, ill, stats.logistic.cdf, slope)
    x = np.array([one, men, *regions])
    regression(survey, SURVEY["poisson"], x, visits, np.exp, np.exp)


def test_survival_curves(survey):
    """A curve is a product of ratios, so log(1 - hazard) is linearised at each time."""
    time, event = survey.columns("time", "event")
    now, risk = (time == np.arange(1, 11)[:, None]), (time >= np.arange(1, 11)[:, None])
    for name, groups in (("survival", [1]), ("survival_by_sex", survey.levels("sex"))):
        params, z = [], []
        for group in groups:
            hazards, own = survey.ratios(now * event * group, risk * group)
            curve = (1 - hazards).cumprod()
            params.append(curve)
            z.append(-(own / (1 - hazards)).cumsum(1) * curve)
        same(SURVEY[name], np.concatenate(params), survey.variance(np.hstack(z)))


@pytest.mark.parametrize("name", ["region", "sex"])
def test_log_rank(survey, name):
    """Scores of the events of a group less its share of the rows at risk times all events."""
    figure = SURVEY[f"log_rank_by_{name}"]
    time, event = survey.columns("time", "event")
    now, risk = (time == np.arange(1, 11)[:, None]), (time >= np.arange(1, 11)[:, None])
    hazards = (now * event @ survey.u) / (risk @ survey.u)
    residuals = now * event - hazards[:, None] * risk
    groups = survey.levels(name)[1:]
    shares = [(risk * x @ survey.u) / (risk @ survey.u) for x in groups]
    z = [((x - y[:, None]) * residuals).sum(0) for x, y in zip(groups, shares, strict=True)]
    z = survey.u[:, None] * np.array(z).T
    cov, scores = survey.variance(z), z.sum(0)
    np.testing.assert_allclose(scores, figure["scores"], rtol=1e-9)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), figure["se"], rtol=1e-10)
    statistic = scores @ np.linalg.solve(cov, scores)
    assert statistic == pytest.approx(figure["statistic"], rel=1e-9)


@pytest.mark.parametrize("outer", ["region", "sex"])
def test_rao_scott(survey, outer):
    """Traces of V0^-1 V of the contrasts of independence, linearised on the log scale."""
    figure = SURVEY[f"{outer}_by_ill"]
    rows, columns = survey.levels(outer), survey.levels("ill")
    cells = np.array([r * c for c in columns for r in rows])
    p, z = survey.ratios(cells)
    same(figure["cells"], p, survey.variance(z))
    others = len(rows) - 1
    contrasts = np.kron([-1, 1], np.column_stack([-np.ones(others), np.eye(others)]))
    log = contrasts / p
    v0 = log @ (np.diag(p) - np.outer(p, p)) @ log.T / len(survey.u)
    delta = np.linalg.solve(v0, log @ survey.variance(z) @ log.T)
    effects = np.sort(np.linalg.eigvals(delta).real)[::-1]
    np.testing.assert_allclose(effects, figure["design_effects"], rtol=1e-9)
    table = p.reshape(2, -1)
    fit = np.outer(table.sum(1), table.sum(0))
    pearson = len(survey.u) * ((table - fit) ** 2 / fit).sum()
    assert pearson == pytest.approx(figure["pearson"], rel=1e-10)
    statistic, ndf = pearson / effects.sum(), effects.sum() ** 2 / (effects**2).sum()
    test = stats.f.sf(statistic, ndf, ndf * SURVEY["about"]["degf"])
    expected = [figure["f"][x] for x in ("statistic", "ndf", "pvalue")]
    np.testing.assert_allclose([statistic, ndf, test], expected, rtol=1e-9)


def pairings(units):
    """Every way to pair units, the last three of an odd number as a pair and one left out."""
    if len(units) % 2:
        for three in itertools.combinations(units, 3):
            others = [x for x in units if x not in three]
            for pair in itertools.combinations(three, 2):
                for rest in pairings(others):
                    yield [*rest, (1.5, pair)]
    elif not units:
        yield []
    else:
        first, *others = units
        for second in others:
            for rest in pairings([x for x in others if x != second]):
                yield [(1.0, (first, second)), *rest]


def test_contrasts_averaged_over_all_pairings_are_the_linearised_variance(survey):
    """Of m units: 3 choices for m = 3, 3 for 4, 30 for 5, 105 for 8."""
    params, z = survey.ratios(survey.columns("ill", "income", "age", "visits"))
    cov, counts = 0, []
    for x in survey.totals(z):
        every = list(pairings(range(len(x))))
        squares = [f * np.outer(x[i] - x[j], x[i] - x[j]) for p in every for f, (i, j) in p]
        cov, counts = cov + sum(squares) / len(every), [*counts, len(every)]
    assert counts == [1, 1, 3, 3, 30, 105]
    same(SURVEY["means"], params, cov)
