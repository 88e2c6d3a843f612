# Writes follow_up.json: figures of R's survival package for follow_up.csv, whose times are bins of
# 100 days. All times of a bin are at its end, or at its middle for restricted means. lifelines
# 0.30.3 has the same survival, standard errors, cumulative hazards and log-rank statistics.
library(survival)
d <- read.csv("follow_up.csv", stringsAsFactors = TRUE)
d$event <- d$status != "censored"
d$end <- (d$bin + 1) * 100
d$middle <- d$bin * 100 + 50
show <- function(x) paste0("[", paste(sprintf("%.15g", x), collapse = ", "), "]")
edges <- seq(100, 900, 100)
fit <- survfit(Surv(end, event) ~ 1, d)
s <- summary(fit, times = edges)
na <- summary(survfit(Surv(end, event) ~ 1, d, stype = 2, ctype = 1), times = edges)
rank <- survdiff(Surv(end, event) ~ arm, d)
strata <- survdiff(Surv(end, event) ~ arm + strata(sex), d)
mean <- summary(survfit(Surv(middle, event) ~ 1, d), rmean = 700)$table
d$kind <- factor(as.character(d$status), c("censored", "relapse", "death"))
cif <- summary(survfit(Surv(end, kind) ~ 1, d), times = edges)
d$start <- ifelse(d$entry > 0, (d$entry + 1) * 100, 0)  # at risk from the bin after
late <- summary(survfit(Surv(start, end, event) ~ 1, d), times = edges)
cat("{\n",
  '"survival": ', show(s$surv), ",\n",
  '"greenwood": ', show(s$std.err), ",\n",
  '"cumulative_hazard": ', show(na$cumhaz), ",\n",
  '"log_rank": ', show(c(rank$chisq, rank$obs, rank$exp)), ",\n",
  '"stratified": ', show(strata$chisq), ",\n",
  '"restricted_mean": ', show(mean[c("rmean", "se(rmean)")]), ",\n",
  '"relapse": ', show(cif$pstate[, 2]), ",\n",
  '"relapse_se": ', show(cif$std.err[, 2]), ",\n",
  '"death": ', show(cif$pstate[, 3]), ",\n",
  '"death_se": ', show(cif$std.err[, 3]), ",\n",
  '"late_entry": ', show(late$surv), "\n}\n", sep = "", file = "follow_up.json")
