# Writes survey.json: figures of R's survey package for survey.csv and nhanes.csv, which it also
# writes. survey.csv is invented. nhanes.csv is every third complete row of `nhanes` of the survey
# package, itself rows of NHANES 2009-2010 of the US National Center for Health Statistics (a work
# of the US government), kept for tests only. Column u is the weight coded as dpstats codes it: cut
# at the cap and rounded, half to even, to 1/4096 of the cap; the weights of designs are
# u / 4096 * cap.
suppressMessages(library(survey))
options(survey.lonely.psu = "fail")
caps <- c(survey = 8000, nhanes = 100000)
coded <- function(w, cap) round(pmin(pmax(w, 0), cap) / cap * 4096)
stopifnot(round(c(0.5, 1.5, 2.5, 4094.5)) == c(0, 2, 2, 4094))

# Rows ------------------------------------------------------------------------------------------
RNGkind("Mersenne-Twister", "Inversion", "Rejection")
set.seed(41)
units <- data.frame(stratum = rep(letters[1:6], c(2, 2, 3, 4, 5, 8)))
units$psu <- ave(seq_along(units$stratum), units$stratum, FUN = seq_along)
k <- nrow(units)
effects <- data.frame(ill = rnorm(k, 0, 0.45), income = rnorm(k, 0, 7), visits = rnorm(k, 0, 0.3),
                      hazard = rnorm(k, 0, 0.3), weight = rnorm(k, 0, 0.4))
places <- matrix(rnorm(3 * k, 0, 1.3), k)  # the mixture of regions of a unit
size <- round(exp(rnorm(k, log(60), 0.35)))
of <- rep(seq_len(k), size)
n <- length(of)
region <- apply(places[of, ] - log(-log(matrix(runif(3 * n), n))), 1, which.max)
sex <- rbinom(n, 1, 0.47)
age <- pmin(90, pmax(18, round(rnorm(n, 48, 18))))
w <- exp(rnorm(n, log(2100) + effects$weight[of] - 0.008 * (age - 48), 0.5))
income <- 45 + effects$income[of] + 0.15 * (age - 48) + 5 * sex + c(-4, 0, 6)[region] +
  4 * log(w / 2100) + rnorm(n, 0, 16)
ill <- rbinom(n, 1, plogis(-1.3 + effects$ill[of] + 0.025 * (age - 48) - 0.3 * sex +
                             c(0.4, 0, -0.3)[region]))
visits <- pmin(20, rpois(n, exp(0.7 + effects$visits[of] - 0.25 * sex + 0.4 * ill)))
died <- ceiling(rexp(n, 0.1 * exp(effects$hazard[of] + 0.02 * (age - 48) + 0.3 * sex)))
left <- ceiling(runif(n, 0, 14))
d <- data.frame(units[of, ], w = round(pmin(12000, pmax(600, w))), u = 0L, ill = ill,
                region = c("coast", "hills", "plain")[region], sex = c("f", "m")[sex + 1],
                income = round(pmin(100, pmax(0, income)), 1), age = age, visits = visits,
                time = pmin(died, left, 10), event = as.integer(died <= pmin(left, 10)))
d <- d[sample(n), ]
d$u <- coded(d$w, caps["survey"])
write.csv(d, "survey.csv", row.names = FALSE, quote = FALSE)

data(nhanes)
d <- nhanes[complete.cases(nhanes), ]
d <- d[seq(1, nrow(d), 3), ]
d$u <- coded(d$WTMEC2YR, caps["nhanes"])
write.csv(d, "nhanes.csv", row.names = FALSE)

# Figures ---------------------------------------------------------------------------------------
json <- function(x) {
  if (is.list(x)) {
    paste0("{", paste0('"', names(x), '": ', vapply(x, json, ""), collapse = ",\n"), "}")
  } else if (is.matrix(x)) {
    paste0("[", paste(apply(x, 1, function(row) json(I(row))), collapse = ",\n"), "]")
  } else {
    text <- if (is.character(x)) paste0('"', x, '"') else sprintf("%.17g", x)
    if (!is.character(x)) stopifnot(is.finite(x))
    text <- paste(text, collapse = ", ")
    if (length(x) == 1 && !inherits(x, "AsIs")) text else paste0("[", text, "]")
  }
}
named <- function(params, cov, ...) {
  list(names = I(names(params)), params = I(as.vector(params)), cov = unname(as.matrix(cov)), ...)
}
figure <- function(x, ...) named(coef(x), vcov(x), ...)
model <- function(formula, design, family) {
  fit <- svyglm(formula, design, family = family, epsilon = 1e-14, maxit = 100)
  figure(fit, df = degf(design))
}
rao_scott <- function(formula, design) {
  f <- svychisq(formula, design, statistic = "F")
  chisq <- svychisq(formula, design, statistic = "Chisq")
  cells <- svymean(eval(bquote(~ interaction(factor(.(formula[[2]][[2]])),
                                             factor(.(formula[[2]][[3]]))))), design)
  names(cells) <- sub("^interaction\\(.*\\)", "", names(cells))
  # The generalized design effects, as in svychisq.
  shape <- dim(svytable(formula, design))
  grid <- expand.grid(rows = seq_len(shape[1]), cols = seq_len(shape[2]))
  main <- model.matrix(~ factor(rows) + factor(cols), grid)
  both <- model.matrix(~ factor(rows) * factor(cols), grid)[, -(1:(sum(shape) - 1)), drop = FALSE]
  contrasts <- qr.resid(qr(main), both)
  inverse <- diag(1 / as.vector(coef(cells)))
  rows <- nrow(design)
  delta <- solve(t(contrasts) %*% inverse %*% contrasts / rows,
                 t(contrasts) %*% inverse %*% vcov(cells) %*% inverse %*% contrasts)
  first_order <- unname(chisq$statistic) / mean(diag(delta))  # svychisq has Pearson's statistic
  stopifnot(all.equal(first_order / ncol(delta), unname(f$statistic)),
            all.equal(pchisq(first_order, ncol(delta), lower.tail = FALSE), unname(chisq$p.value)))
  list(rows = rows, pearson = unname(chisq$statistic), design_effects = I(Re(eigen(delta)$values)),
       f = list(statistic = unname(f$statistic), ndf = unname(f$parameter["ndf"]),
                ddf = unname(f$parameter["ddf"]), pvalue = unname(f$p.value)),
       chisq = list(statistic = first_order, df = unname(chisq$parameter),
                    pvalue = unname(chisq$p.value)),
       cells = figure(cells))
}
survival <- function(design, groups) {
  # svykm has the curve; the standard errors it gives are of the cumulative hazard, and the curve
  # beside them is exp(-cumulative hazard). That of the curve by the delta method from the totals
  # of events and of rows at risk, which gives svykm's own for the cumulative hazard.
  v <- design$variables
  inside <- lapply(groups, function(g) as.numeric(eval(g, v)))
  columns <- do.call(cbind, lapply(inside, function(x) {
    cbind(outer(v$time, 1:10, "==") * v$event * x, outer(v$time, 1:10, ">=") * x)
  }))
  totals <- svytotal(columns, design)
  curves <- hazards <- NULL
  to_curve <- to_hazard <- matrix(0, 10 * length(groups), ncol(columns))
  for (g in seq_along(groups)) {
    died <- coef(totals)[20 * (g - 1) + 1:10]
    risk <- coef(totals)[20 * (g - 1) + 11:20]
    curve <- cumprod(1 - died / risk)
    hazard <- cumsum(died / risk)
    before <- lower.tri(diag(10), diag = TRUE)
    own <- 10 * (g - 1) + 1:10
    at <- 20 * (g - 1) + 1:20
    to_curve[own, at] <- curve * cbind(sweep(before, 2, -1 / (risk - died), "*"),
                                       sweep(before, 2, died / risk / (risk - died), "*"))
    to_hazard[own, at] <- cbind(sweep(before, 2, 1 / risk, "*"),
                                sweep(before, 2, -died / risk^2, "*"))
    domain <- design[which(inside[[g]] == 1), ]
    fit <- svykm(Surv(time, event) ~ 1, domain)
    last <- vapply(1:10, function(t) max(which(fit$time <= t)), 1L)
    stopifnot(all.equal(unname(fit$surv[last]), unname(curve)))
    fit <- svykm(Surv(time, event) ~ 1, domain, se = TRUE)
    last <- vapply(1:10, function(t) max(which(fit$time <= t)), 1L)
    own_cov <- to_hazard[own, at] %*% vcov(totals)[at, at] %*% t(to_hazard[own, at])
    stopifnot(all.equal(unname(fit$surv[last]), unname(exp(-hazard))),
              all.equal(unname(fit$varlog[last]), diag(own_cov)))
    curves <- c(curves, curve)
    hazards <- c(hazards, hazard)
  }
  list(names = I(paste(rep(names(groups), each = 10), 1:10)), params = I(unname(curves)),
       cov = to_curve %*% vcov(totals) %*% t(to_curve), cumulative_hazard = I(unname(hazards)),
       cumulative_hazard_cov = to_hazard %*% vcov(totals) %*% t(to_hazard))
}
log_rank <- function(formula, design) {
  # svylogrank takes Efron's ties, here Breslow's: in each bin the events of a group less its share
  # of the rows at risk times the events of all.
  breslow <- survey:::svylogrank.survey.design2
  coxph <- function(...) do.call(survival::coxph, list(..., ties = "breslow"))
  own <- list2env(list(coxph = coxph), parent = asNamespace("survey"))
  own$.logrank <- survey:::.logrank
  environment(own$.logrank) <- environment(breslow) <- own
  test <- breslow(formula, design)
  list(scores = I(unname(test[[1]][, "score"])), se = I(unname(test[[1]][, 2])),
       statistic = unname(test[[2]]["Chisq"]), df = nrow(test[[1]]),
       pvalue = unname(test[[2]]["p"]))
}
quantiles <- function(formula, design, method) {
  asked <- c(0.25, 0.5, 0.75)
  q <- svyquantile(formula, design, asked, interval.type = method)[[1]]
  list(probabilities = I(asked), params = I(unname(q[, "quantile"])),
       lower = I(unname(q[, 2])), upper = I(unname(q[, 3])), se = I(unname(q[, "se"])))
}
about <- function(design, cap) {
  w <- weights(design)
  list(cap = unname(cap), degf = degf(design), rows = nrow(design), weights = sum(w),
       mean_weight = mean(w), capped = sum(design$variables$u == 4096))
}

d <- read.csv("survey.csv", stringsAsFactors = TRUE)
d$age10 <- d$age / 10
d$v <- d$u / 4096 * caps["survey"]
edges <- seq(10, 90, 10)
design <- svydesign(ids = ~psu, strata = ~stratum, weights = ~v, data = d, nest = TRUE)
women <- subset(design, sex == "f")
ill <- svyby(~ill, ~sex, design, svymean, covmat = TRUE)
income <- svyby(~income, ~region, design, svymean, covmat = TRUE)
below <- svymean(outer(d$income, edges, "<="), design)
names(below) <- edges
ratio <- svyratio(~ income + visits, ~age, design, covmat = TRUE)
ratio_of_women <- svyratio(~ income + visits, ~age, women, covmat = TRUE)
ratio_by_region <- svyby(~income, ~region, design, svyratio, denominator = ~age, covmat = TRUE)
others <- list(
  units_without_strata = svydesign(ids = ~ interaction(stratum, psu), weights = ~v, data = d),
  strata_without_units = svydesign(ids = ~1, strata = ~stratum, weights = ~v, data = d),
  weights_alone = svydesign(ids = ~1, weights = ~v, data = d)
)
# Weights that add up to known totals of both sexes and of the regions, to within rounding.
known <- round(c(sum(d$v), sum(d$v[d$sex == "m"]), sum(d$v[d$region == "hills"]),
                 sum(d$v[d$region == "plain"])))
calibrated <- calibrate(design, ~ sex + region, population = c(
  "(Intercept)" = known[1], sexm = known[2], regionhills = known[3], regionplain = known[4]))
invented <- list(
  about = about(design, caps["survey"]),
  means = figure(svymean(~ ill + income + age + visits, design)),
  region = figure(svymean(~region, design)),
  totals = figure(svytotal(~ ill + I(1 - ill) + income, design)),
  calibrated = c(list(known = I(known)), figure(svytotal(~ interaction(sex, region, ill), calibrated))),
  region_totals = figure(svytotal(~region, design)),
  women = figure(svymean(~ ill + income, women), df = degf(women)),
  women_on_the_coast = figure(svymean(~ ill + income, subset(women, region == "coast")),
                              df = degf(subset(women, region == "coast"))),
  ill_by_sex = figure(ill),
  income_by_region = figure(income),
  region_of_women = figure(svymean(~region, women)),
  difference_of_sexes = figure(svycontrast(ill, list(difference = c(f = 1, m = -1)))),
  differences_of_regions = figure(svycontrast(income, list(
    "coast-plain" = c(coast = 1, plain = -1), "hills-plain" = c(hills = 1, plain = -1)))),
  ratios_to_age = named(c(income = ratio$ratio[1], visits = ratio$ratio[2]), ratio$vcov),
  ratios_to_age_of_women = named(c(income = ratio_of_women$ratio[1],
                                   visits = ratio_of_women$ratio[2]), ratio_of_women$vcov),
  income_to_age_by_region = named(setNames(coef(ratio_by_region), ratio_by_region$region),
                                  vcov(ratio_by_region)),
  income_below = figure(below),
  income_quantiles = list(mean = quantiles(~income, design, "mean"),
                          xlogit = quantiles(~income, design, "xlogit")),
  region_by_ill = rao_scott(~ region + ill, design),
  sex_by_ill = rao_scott(~ sex + ill, design),
  region_by_ill_of_women = rao_scott(~ region + ill, women),
  ols = model(income ~ age + sex + region, design, gaussian()),
  ols_of_women = model(income ~ age + region, women, gaussian()),
  logistic = model(ill ~ age10 + sex, design, quasibinomial()),
  logistic_on_age = model(ill ~ age + sex, design, quasibinomial()),
  logistic_of_women = model(ill ~ age, women, quasibinomial()),
  poisson = model(visits ~ sex + region, design, quasipoisson()),
  poisson_on_age = model(visits ~ age + sex, design, quasipoisson()),
  survival = survival(design, list(all = quote(rep(1, length(time))))),
  survival_by_sex = survival(design, list(f = quote(sex == "f"), m = quote(sex == "m"))),
  log_rank_by_sex = log_rank(Surv(time, event) ~ sex, design),
  log_rank_by_region = log_rank(Surv(time, event) ~ region, design),
  designs = lapply(others, function(x) figure(svymean(~ ill + income, x), df = degf(x)))
)

# Stratum a without its second unit.
d <- d[!(d$stratum == "a" & d$psu == 2), ]
rules <- c(certainty = "certainty", adjust = "adjust", average = "average")
lonely <- lapply(rules, function(rule) {
  options(survey.lonely.psu = rule)
  design <- svydesign(ids = ~psu, strata = ~stratum, weights = ~v, data = d, nest = TRUE)
  figure(svymean(~ ill + income, design), df = degf(design))
})
options(survey.lonely.psu = "fail")

d <- read.csv("nhanes.csv")
d$agecat <- factor(d$agecat, c("(0,19]", "(19,39]", "(39,59]", "(59,Inf]"))
d$race <- factor(d$race)
d$sex <- factor(d$RIAGENDR)
d$v <- d$u / 4096 * caps["nhanes"]
design <- svydesign(ids = ~SDMVPSU, strata = ~SDMVSTRA, weights = ~v, data = d, nest = TRUE)
by_sex <- svyby(~HI_CHOL, ~sex, design, svymean, covmat = TRUE)
adults <- subset(design, agecat != "(0,19]")
real <- list(
  about = about(design, caps["nhanes"]),
  means = figure(svymean(~HI_CHOL, design)),
  race = figure(svymean(~race, design)),
  agecat = figure(svymean(~agecat, design)),
  totals = figure(svytotal(~ HI_CHOL + I(1 - HI_CHOL), design)),
  adults = figure(svymean(~HI_CHOL, adults), df = degf(adults)),
  by_race = figure(svyby(~HI_CHOL, ~race, design, svymean, covmat = TRUE)),
  by_agecat = figure(svyby(~HI_CHOL, ~agecat, design, svymean, covmat = TRUE)),
  by_sex = figure(by_sex),
  difference_of_sexes = figure(svycontrast(by_sex, list(difference = c("1" = 1, "2" = -1)))),
  race_by_high = rao_scott(~ race + HI_CHOL, design),
  sex_by_high = rao_scott(~ sex + HI_CHOL, design),
  agecat_by_high = rao_scott(~ agecat + HI_CHOL, design),
  race_by_agecat = rao_scott(~ race + agecat, design),
  ols = model(HI_CHOL ~ agecat + sex + race, design, gaussian()),
  logistic = model(HI_CHOL ~ agecat + sex + race, design, quasibinomial())
)
cat(json(list(survey = invented, lonely = lonely, nhanes = real)), "\n", sep = "",
    file = "survey.json")
