"""What every analysis refuses before any data are read, and a part of the sentence that says so."""

from functools import partial

import numpy as np
import pytest

import dpstats as dps

SCHEMA = dps.Schema([
    dps.Category("smoker", ["no", "yes"]), dps.Category("region", ["north", "south", "west"]),
    dps.Number("age", 0, 120, points=241, edges=[18, 40, 65], missing=40),
    dps.Number("pay", -10, 30, points=401, missing=0), dps.Boolean("retired"),
    dps.Number("score", values=[17.5, 22, 27, 40], missing=22),
    dps.Number("rent", 0, 50, points=101, edges=[10, 25], allow_missing=True),
    dps.Number("gap", 0, 50, allow_missing=True), dps.Number("bare", 0, 1),
    dps.Number("wealth", 1, 1e4, points=401, scale="log", missing=10),
    dps.Number("little", 0.999, 100, points=11, scale="log", missing=1, edges=[2, 3, 5, 9, 30]),
])  # fmt: skip
YES, P0 = "smoker == 'yes'", [0.5, 0.3, 0.2]
THREE, BINS = ["age", "pay", "score"], {"Intercept": (-2, 2, 9), "pay": (-2, 2, 9)}
graph = partial(dps.GraphicalModel, THREE)
fit = partial(dps.GoodnessOfFit, "region")
gap = partial(dps.Difference, YES, by="region")
groups = partial(dps.GroupMeans, "pay", by="region")
grid = partial(dps.LossGrid, loss="logistic", formula="retired ~ pay", grid=BINS)
line = partial(dps.OLS, "pay ~ age")
pca = partial(dps.PCA, ["age", "pay"])
table = partial(dps.Marginals, ["smoker", "region"])


def curve(time="age", event="retired", **options):
    return dps.Survival(time, event, **options)


CASES = {
    "difference": [(partial(gap, **options), message) for options, message in [
        ({}, "3 levels"), ({"by": "smoker"}, "the column of the groups"),
        ({"groups": "north"}, "pair"), ({"groups": ("north", "north")}, "different"),
        ({"groups": ["north", "south", "west"]}, "two different levels"),
    ]],
    "marginals": [
        (lambda: table(degree=0), "degree"), (lambda: table(degree=3), "degree"),
        (lambda: table(form="counts"), "form"),
        (lambda: table(form="monomials"), "monomials need Boolean"),
        (lambda: dps.Marginals("smoker", 1), "list"), (lambda: dps.Marginals([], 1), "column"),
        (lambda: dps.Marginals(["smoker"] * 2, 1), "twice"),
    ],
    "proportion": [
        (lambda: dps.Proportion("rent >= 10", given="rent >= 25"), "the same value in all"),
        (lambda: dps.Proportion(YES, given="smoker == 'yes' or smoker == 'no'"), "all rows|always"),
    ],
    "quantile": [
        (lambda: dps.Quantile("smoker"), "is not a number"), (lambda: dps.Quantile("pay"), "edges"),
        (lambda: dps.Quantile("gap"), "has a single bin"),
        (lambda: dps.Quantile("rent", given="rent >= 10"), "involves 'rent' itself"),
        (lambda: dps.Quantile("age", [0.5, 1.5]), "between 0 and 1; number 2 of them is not"),
        (lambda: dps.Quantile("age", [0.5, 0.5]), "different"),
    ],
    "goodness_of_fit": [
        (lambda: fit([0.5, 0.4, 0.2]), "sum to 1.1"), (lambda: fit([0.5, 0.5, 0.0]), "positive"),
        (lambda: fit([1.0]), "at least two"), (lambda: fit([0.5, np.nan, 0.5]), "finite"),
        (lambda: fit(0.5), "list or a mapping"), (lambda: fit(P0, simulations=10), "at least 99"),
        (lambda: fit(P0, seed=-1), "at least 0"),
        (lambda: fit({"north": 0.5, "east": 0.5}), r"labels \['east'\].*no probability for \['sou"),
        (lambda: fit([0.5, 0.5]), "2 probabilities were given, but 'region' has 3"),
    ],
    "independence": [
        (lambda: dps.Independence("smoker", "region", given="region"), "twice"),
        (lambda: dps.Independence(["smoker"], "region"), "is given by its name"),
        (lambda: dps.Independence("age", "smoker", given="age >= 40"), "involves 'age'"),
        (lambda: dps.Independence("age", "smoker", given="nothing"), "unknown column"),
    ],
    "graphical_model": [
        (lambda: graph(estimator="lasso"), r"must be one of \['inverse', 'glasso', 'clime'\]"),
        (lambda: graph(structure="tree", tolerance=0.1), "neither estimator= nor tolerance="),
        (lambda: graph(tolerance=0), "tolerance must be a partial correlation between 0 and 1"),
        (lambda: graph(penalties=[0.1]), "penalties are for estimator='glasso'"),
        (lambda: graph(estimator="clime", penalties=[0.1, 2.5]), "between 0 and 1, .* entry 2 is"),
        (lambda: graph(clip_norm=1, given="retired"), "give one of the two"),
        (lambda: graph(separators=[("age", "x")]), "entry 1 of separators does not name two of"),
        (lambda: graph(separators=[("age", "pay")], clip_norm=1), "not with clip_norm="),
        (lambda: graph(separators=[("age", "pay")], structure="tree"), "not for a tree"),
        (lambda: dps.GraphicalModel(["age", "region"]), "'region' has 3 levels; a graphical"),
        (lambda: dps.GraphicalModel(["age", "retired"], separators=[("age", "retired")]),
         "'age' is a number"),
        (lambda: dps.GraphicalModel(["age", "retired"], clip_norm=1),
         "rows of numbers, and 'retired' has two"),
    ],
    "pca": [
        *((partial(pca, n_components=k), "of at least 1 and at most 2") for k in (0, 3, True)),
        (lambda: pca(standardize=1), "standardize"),
    ],
    "mean": [
        (lambda: dps.Mean("region"), "not a number"), (lambda: dps.Mean("bare"), "missing="),
        (lambda: dps.Mean("rent", given="rent == '(missing)'"), "no row with .* has a value"),
        (lambda: dps.Mean("pay", given="pay >= 5"), "declares no edges"),
        (lambda: dps.Mean("wealth"), "only its logarithm has moments: write log"),
    ],
    "mean_difference": [
        (lambda: dps.MeanDifference("score", by="score", groups=(22, 27)), "own"),
    ],
    "group_means": [
        (lambda: dps.GroupMeans("region", by="retired"), "has 3 levels: name those"),
        (lambda: groups(by="pay"), "cannot define its own groups|two or more"),
        (lambda: groups(by="age", given="age >= 40"), "involves 'age'.*leave it out of given="),
        (lambda: groups(by="gap"), "two or more different levels or bins of 'gap'.*add edges"),
        (lambda: groups(groups=("north", "x")), r"groups: 'x' is not a level of 'region'; levels"),
        (lambda: groups(by="age", groups=(18, 40)), r"groups: 18 is not a bin of 'age'; bins"),
        (lambda: dps.GroupMeans("log(pay)", by="retired"), "scale='log'"),
    ],
    "ols": [
        (lambda: line(ridge=-1), "ridge"), (lambda: line(ridge=True), "ridge"),
        (lambda: line(ridge=10**400), "ridge.*bits"),
        (lambda: line(cov_type="HC3"), r"cov_type.*nonrobust.*HC1"),
        (lambda: dps.OLS("pay ~ age*score", cov_type="HC1"), "products of up to 8 numbers"),
        (lambda: dps.OLS("pay ~ age + C(region)", clip_norm=1), "levels of 'region'"),
        (lambda: dps.OLS("pay ~ age*score", clip_norm=1), r"a product of \['age', 'score'\]"),
        (lambda: line(clip_norm=1, given="retired"), "given= names some of them"),
        (lambda: line(clip_norm=1, cov_type="HC1"), "fourth moments, which are not measured of"),
        (lambda: line(clip_norm=1.5), r"would shrink no row: .* above 1\.414, "),
    ],
    "ratio": [(partial(dps.Ratio, *asked), message) for asked, message in [
        (("score", "pay"), "never negative"), (("age", "age"), "another number"),
        (("age", "region"), "not a number"), (("wealth", "age"), "logarithm"),
        (("rent", "age", "rent"), "own groups"),
        (("pay", "age", "retired", "retired"), "involves 'retired'"),
    ]],
    "hazard": [(partial(dps.Hazard, formula), message) for formula, message in [
        (3, "time, event ~"), ("retired, retired ~ region", "and 'retired' is not"),
        ("age, retired ~ pay", "single bin"), ("age, retired ~ age", "both sides"),
        (f"age, {YES} ~ C(smoker)", "other columns"), ("age, retired ~ smoker - 1", "baseline haz"),
        ("age, retired ~ 1", "no regressor"), ("age, retired ~ nobody", "nobody"),
        ("age, retired ~ rent*score + region*smoker + log(little)", "at most 1500"),
    ]],
    "survival": [
        (lambda: curve(event="age >= 40"), r"events \['age >= 40'\]"),
        (lambda: curve("region"), "time must"), (lambda: curve(ties="first"), "ties"),
        (lambda: curve(event=3), "must be a text or a list"),
        (lambda: curve(event=("retired", "retired")), "'retired' twice"),
        (lambda: curve(event=("retired", YES)), "exclude each other"),
        (lambda: curve(by="age"), "different columns"),
        (lambda: curve(by="region", given="region == 'north'"), "given"),
        (lambda: curve(entry="little"), "edge"), (lambda: curve(entry="rent"), "missing="),
        (lambda: curve("rent", entry="little"), "'rent' has allow_missing=True"),
    ],
    "elastic_net": [
        (lambda: dps.ElasticNet("pay ~ age", alpha=10**400), "positive number, the penalty"),
        (lambda: dps.ElasticNet("pay ~ age", l1_ratio=1.5), "l1_ratio must be above 0"),
    ],
    "logistic": [
        (lambda: dps.Logistic("region ~ retired"), "two levels, of which the second counts as 1"),
        (lambda: dps.Poisson("pay ~ retired"), "number of at least 0"),
        (lambda: dps.Poisson("log(little) ~ retired"), "'little' is not declared as one"),
        (lambda: dps.Poisson("retired ~ age", stages=True), "stages must be 1, or 2"),
    ],
    "loss_grid": [
        (lambda: grid(loss="hinge"), "unknown loss 'hinge'; known: "),
        (lambda: grid(loss={"kind": "huber"}), r"takes the parameters \['k'\]"),
        (lambda: grid(loss={"kind": "pinball", "probability": 2}), "between 0 and 1"),
        (lambda: grid(formula=None, grid=None), "needs a formula and a grid"),
        (lambda: grid(grid={"pay": (0, 1, 3)}), "must name the coefficients of"),
        (lambda: grid(grid=BINS | {"pay": (1, 0, 3)}), "least and its largest value"),
        (lambda: grid(grid=BINS | {"pay": (0, 1, 999)}), "2048 points"),
        (lambda: grid(formula="age ~ pay"), "logistic loss needs a column with two levels"),
        (lambda: grid(formula="retired ~ pay:age"), "has a product or a square"),
        (lambda: dps.Huber("pay ~ age + score + C(smoker)", k=1), "has 4 coefficients"),
        (lambda: dps.Huber("retired ~ age", k=1), "must be a number"),
    ],
}  # fmt: skip


def check_refused(make, message):
    with pytest.raises(dps.DpstatsError, match=message):
        dps.plan(SCHEMA, {"it": make()}, budget=dps.PureDP(1))


@pytest.mark.parametrize("kind", CASES)
def test_what_cannot_be_answered_is_refused_with_a_sentence(kind):
    for make, message in CASES[kind]:
        check_refused(make, message)


@pytest.mark.parametrize("make", [dps.Covariance, dps.PCA, dps.Correlation])
def test_columns_and_norms_that_cannot_be(make):
    pair, center = ["age", "pay"], {"age": 40}
    for columns, options, message in [
        ("age", {}, "list of names|two or more"), (["age"], {}, "at least two|two or more"),
        (["age", "age"], {}, "different"), (["age", "region"], {}, "not a number"),
        (["age", "height"], {}, "height"), (["age", "bare"], {}, "missing="),
        (["age", "wealth"], {"clip_norm": 1}, "only its logarithm has moments"),
        (pair, {"clip_norm": 0}, "clip_norm must be a positive number"),
        (pair, {"center": center}, "give clip_norm"), (pair, {"scale": center}, "give clip_norm"),
        (pair, {"clip_norm": 1, "center": 40}, "center= must give a number by the name of its col"),
        (pair, {"clip_norm": 1, "center": {"rent": 40}}, "names column 'rent', not among .*'age'"),
        (pair, {"clip_norm": 1, "center": {"age": "x"}}, "center of 'age' must be a number"),
        (pair, {"clip_norm": 1, "scale": {"age": 0}}, "scale of 'age' must be a positive number"),
        (pair, {"clip_norm": 1, "center": {"age": 121}}, "outside its declared bounds"),
        (pair, {"clip_norm": 1e-6}, "too small"),
        (["age", "rent"], {"clip_norm": 1}, "declare missing= instead"),
    ]:  # fmt: skip
        check_refused(lambda c=columns, o=options: make(c, **o), message)
