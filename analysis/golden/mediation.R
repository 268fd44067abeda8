# Golden numbers of causal mediation: mediation.csv (made here) and mediation.json.
#
#   MC_CORES=4 Rscript mediation.R [DIRECTORY]
#
# About four minutes of processor time: mediate() loops over draws. Each part sets its own seed, so
# the numbers do not depend on how many run at once.
#
# Uses the package `mediation` when it is installed (install.packages("mediation")). Otherwise
# DIRECTORY must hold mediate.R, medsens.R and medtests.R of its source,
# https://github.com/kosukeimai/mediation, folder R. The package is under the GPL: neither it nor
# a part of it is kept here, only the numbers that it printed.
#
# test.modmed() puts the random seed back into a variable of its own, so the two simulations that
# it subtracts are independent, and its interval is too wide where they share a parameter. Both are
# kept: `modmed` as the package has it, and `difference`, where this script sets the seed before
# each simulation.
suppressPackageStartupMessages({
  library(MASS); library(Matrix); library(sandwich); library(boot); library(jsonlite)
})
argument <- commandArgs(trailingOnly = TRUE)
if (requireNamespace("mediation", quietly = TRUE)) {
  library(mediation)
  source_of <- paste("package mediation", packageVersion("mediation"))
} else {
  for (file in c("mediate.R", "medsens.R", "medtests.R")) source(file.path(argument[1], file))
  source_of <- "functions mediate, medsens, test.modmed of the package's source"
}
sims <- 4000
sims_logit <- 2000
resamples <- 1000
resamples_boot <- 4000

# --- data -----------------------------------------------------------------------------------------
set.seed(2017)
n <- 160
dbms <- rep(c("alpha", "beta", "gamma", "delta", "epsilon"), length.out = n)
shift <- c(alpha = -20, beta = 0, gamma = 15, delta = 30, epsilon = -25)[dbms]
numProcs <- sample(c(1, 2, 4, 6, 8), n, replace = TRUE)
PK <- rbinom(n, 1, 0.5)
ATPT <- round(100 - 5 * numProcs - 20 * PK - 2 * numProcs * PK + shift + rnorm(n, sd = 20), 3)
TP <- round(600 + 22 * numProcs + 60 * PK - 1.6 * ATPT - 0.12 * numProcs * ATPT +
  1.1 * PK * ATPT + 2 * shift + rnorm(n, sd = 90), 3)
slow <- rbinom(n, 1, plogis(-0.4 * (numProcs - 4) - 0.6 * PK))
thrashed <- rbinom(n, 1, plogis(2.4 - 0.25 * numProcs - 0.03 * ATPT + 0.5 * slow))
samples <- data.frame(dbms, numProcs, PK, ATPT, TP, slow, thrashed)
write.csv(samples, "mediation.csv", row.names = FALSE, quote = FALSE)
samples <- read.csv("mediation.csv")

# --- one run --------------------------------------------------------------------------------------
effect <- function(x, name) list(
  estimate = x[[if (name == "tau") "tau.coef" else name]],
  low = unname(x[[paste0(name, ".ci")]][1]), high = unname(x[[paste0(name, ".ci")]][2]),
  p = x[[paste0(name, ".p")]], sd = sd(as.vector(x[[paste0(name, ".sims")]]))
)
run <- function(..., seed = 1) {
  set.seed(seed)
  x <- mediate(..., treat = "numProcs", control.value = 1, treat.value = 8)
  names <- c("d0", "d1", "d.avg", "z0", "z1", "z.avg", "tau", "n0", "n1", "n.avg")
  list(x = x, out = setNames(lapply(names, function(name) effect(x, name)), names))
}
m <- lm(ATPT ~ numProcs + PK, data = samples)
y <- lm(TP ~ numProcs + PK + ATPT, data = samples)
yi <- lm(TP ~ numProcs * ATPT + PK, data = samples)
mm <- lm(ATPT ~ numProcs * PK, data = samples)
ym <- lm(TP ~ numProcs * PK + ATPT * PK, data = samples)
yp <- lm(TP ~ numProcs + ATPT * PK, data = samples)
ms <- glm(slow ~ numProcs + PK, family = binomial, data = samples)
ys <- lm(TP ~ numProcs + PK + slow, data = samples)
logit <- glm(thrashed ~ numProcs + PK + ATPT, family = binomial, data = samples)
logits <- glm(thrashed ~ numProcs + PK + slow, family = binomial, data = samples)

sensitivity <- function(y) {
  s <- medsens(run(m, y, sims = 10, mediator = "ATPT")$x, rho.by = 0.1, effect.type = "indirect")
  list(rho = s$rho, d0 = as.vector(s$d0), d1 = as.vector(s$d1),
       low_d0 = as.vector(s$lower.d0), high_d0 = as.vector(s$upper.d0),
       low_d1 = as.vector(s$lower.d1), high_d1 = as.vector(s$upper.d1),
       R2_mediator = s$r.square.m, R2_outcome = s$r.square.y, R2_tilde = s$R2tilde.prod)
}

# BCa of mediate() takes its acceleration from the resamples; boot.ci takes it from the influence of
# the samples, as Efron defines it.
efron <- function() {
  product <- function(d, i) {
    a <- .lm.fit(cbind(1, d$numProcs, d$PK)[i, ], d$ATPT[i])$coefficients[2]
    b <- .lm.fit(cbind(1, d$numProcs, d$PK, d$ATPT)[i, ], d$TP[i])$coefficients[4]
    7 * a * b
  }
  set.seed(3)
  resampled <- boot(samples, product, R = resamples_boot)
  influence <- empinf(data = samples, statistic = product, type = "jack", stype = "i")
  bca <- boot.ci(resampled, type = "bca", L = influence)
  list(estimate = unname(resampled$t0), low = bca$bca[4], high = bca$bca[5],
       resamples = resamples_boot, sd = sd(resampled$t))
}

# At two values of PK from the same seed, hence the same draws.
moderated <- function(m, y, sims) {
  without <- run(m, y, sims = sims, mediator = "ATPT", covariates = list(PK = 0))
  with_pk <- run(m, y, sims = sims, mediator = "ATPT", covariates = list(PK = 1))
  difference <- function(name) {
    draws <- as.vector(with_pk$x[[paste0(name, ".sims")]] - without$x[[paste0(name, ".sims")]])
    list(estimate = mean(draws), low = unname(quantile(draws, 0.025)),
         high = unname(quantile(draws, 0.975)), sd = sd(draws),
         p = min(1, 2 * min(mean(draws > 0), mean(draws < 0))))
  }
  list(at_0 = without$out, at_1 = with_pk$out,
       difference = list(d1 = difference("d1"), z0 = difference("z0")))
}

# PK moderates the mediator's effect only: both values share the treatment's effect on the mediator,
# which cancels when they share its draws.
partly <- function() {
  set.seed(1)
  few <- mediate(m, yp, sims = 10, treat = "numProcs", mediator = "ATPT",
                 control.value = 1, treat.value = 8)
  tests <- test.modmed(few, list(PK = 1), list(PK = 0), sims = sims_logit)
  list(difference = moderated(m, yp, sims_logit)$difference,
       modmed = list(estimate = unname(tests[[1]]$statistic), p = tests[[1]]$p.value,
                     low = unname(tests[[1]]$conf.int[1]), high = unname(tests[[1]]$conf.int[2])))
}

parts <- list(
  moderated = function() moderated(mm, ym, sims),
  plain = function() run(m, y, sims = sims, mediator = "ATPT")$out,
  interaction = function() run(m, yi, sims = sims, mediator = "ATPT")$out,
  clustered = function() run(m, y, sims = sims, mediator = "ATPT", cluster = samples$dbms)$out,
  partly_moderated = partly,
  bootstrap = function() run(m, y, sims = resamples, mediator = "ATPT", boot = TRUE)$out,
  bootstrap_interaction = function()
    run(m, yi, sims = resamples, mediator = "ATPT", boot = TRUE)$out,
  logit_outcome = function() run(m, logit, sims = sims_logit, mediator = "ATPT")$out,
  logit_mediator = function() run(ms, ys, sims = sims_logit, mediator = "slow")$out,
  logit_both = function() run(ms, logits, sims = sims_logit, mediator = "slow")$out,
  bca = efron,
  sensitivity = function() sensitivity(y),
  sensitivity_interaction = function() sensitivity(yi)
)
found <- parallel::mclapply(parts, function(part) part(), mc.preschedule = FALSE)
stopifnot(!sapply(found, inherits, "try-error"))
golden <- c(list(source = source_of, R = R.version.string, sims = sims, sims_logit = sims_logit,
                 resamples = resamples), found)
writeLines(toJSON(golden, auto_unbox = TRUE, digits = 10, pretty = TRUE), "mediation.json")
