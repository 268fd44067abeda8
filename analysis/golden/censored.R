# Golden numbers of censored/: survival curves, regression of intervals, logistic regression.
#
#   Rscript censored.R      (in this directory; writes censored.csv and censored.json)
#
# R with survival, sandwich, numDeriv and jsonlite. Firth's regression is written out here as the maximum of
# the penalised likelihood by a general optimiser, so that it shares nothing with ours.

library(survival)
library(sandwich)
library(jsonlite)

set.seed(1907)
n <- 240
data <- data.frame(
  dbms = rep(c("a", "b", "c", "d", "e", "f"), each = 40),
  numProcs = sample(c(1, 2, 4, 8), n, replace = TRUE),
  PK = rbinom(n, 1, 0.5),
  ATPT = round(exp(rnorm(n, 3, 0.6)), 3)
)
shift <- rep(rnorm(6, 0, 0.15), each = 40)
y <- 5.9 + 0.08 * data$numProcs + 0.25 * data$PK - 0.012 * data$ATPT + shift + 0.4 * rlogis(n)
mpls <- seq(100, 1000, 100)
place <- findInterval(exp(y), mpls)
data$low <- c(0, mpls)[place + 1]
data$high <- c(mpls, Inf)[place + 1]
data$TP <- ifelse(is.finite(data$high), pmax(data$low, 100), Inf)
data$thrashed <- as.integer(is.finite(data$high))
write.csv(data, "censored.csv", row.names = FALSE, quote = FALSE)

out <- list()

# Kaplan-Meier: an event is seen at the upper MPL; bands on the log(-log) scale.
time <- ifelse(is.finite(data$high), data$high, data$low)
for (part in c("all", "PK=0", "PK=1")) {
  rows <- if (part == "all") rep(TRUE, n) else data$PK == as.integer(part == "PK=1")
  fit <- survfit(Surv(time[rows], data$thrashed[rows]) ~ 1, conf.type = "log-log")
  out$kaplan_meier[[part]] <- list(
    mpl = fit$time, share = fit$surv, low = fit$lower, high = fit$upper, at_risk = fit$n.risk
  )
}

# Turnbull: overlapping intervals. Half-open intervals [low, high) as (low, high - 0.001].
left <- c(0, 100, 150, 100, 200, 300, 250, 400, 300, 500, 600, 400, 150, 350)
right <- c(100, 300, 250, 200, 400, Inf, 450, 600, 500, Inf, Inf, Inf, 350, 400)
upper <- ifelse(is.finite(right), right - 0.001, NA)
fit <- survfit(Surv(ifelse(left == 0, NA, left), upper, type = "interval2") ~ 1)
out$turnbull <- list(low = left, high = ifelse(is.finite(right), right, 0), fit_time = fit$time,
  fit_surv = fit$surv)

# Regression of intervals; survreg's interval2 takes NA for an unknown end.
outcome <- Surv(
  ifelse(data$low == 0, NA, data$low), ifelse(is.finite(data$high), data$high, NA),
  type = "interval2"
)
formula <- outcome ~ numProcs + PK + ATPT
tight <- survreg.control(maxiter = 200, rel.tolerance = 1e-13)
for (dist in c("weibull", "lognormal", "loglogistic", "gaussian")) {
  fit <- survreg(formula, data, dist = dist, control = tight)
  out$aft[[dist]] <- list(
    coefficients = unname(coef(fit)), log_sigma = log(fit$scale),
    se = unname(sqrt(diag(vcov(fit)))), loglik = fit$loglik[2], aic = AIC(fit)
  )
}

# Clusters. The sandwich is from numerical gradients of each sample's log-likelihood: survreg's own
# (its dfbeta) disagrees with them in log sigma for intervals, fivefold here, and with the jackknife.
piece <- function(par, i) {
  mu <- sum(c(1, data$numProcs[i], data$PK[i], data$ATPT[i]) * par[1:4])
  ends <- (log(c(data$low[i], data$high[i])) - mu) / exp(par[5])
  log(pnorm(ends[2]) - pnorm(ends[1]))
}
whole <- survreg(formula, data, dist = "lognormal", control = tight)
theta <- function(fit) c(coef(fit), log(fit$scale))
scores <- t(sapply(seq_len(n), function(i) numDeriv::grad(piece, theta(whole), i = i)))
sums <- rowsum(scores, data$dbms)
out$sandwich <- unname(sqrt(diag(vcov(whole) %*% crossprod(sums) %*% vcov(whole)) * 6 / 5))
without <- sapply(unique(data$dbms), function(name) {
  keep <- data$dbms != name
  part <- outcome[keep]
  theta(survreg(part ~ numProcs + PK + ATPT, data[keep, ], dist = "lognormal", control = tight))
})
out$jackknife <- unname(sqrt(5 / 6 * rowSums((without - theta(whole))^2)))

# Nonlinear: Harrell's restricted cubic spline, written out, and Wald's test.
knots <- unname(quantile(data$ATPT, c(0.05, 0.35, 0.65, 0.95)))
cube <- function(u) pmax(u, 0)^3
bent <- sapply(1:2, function(j) {
  (cube(data$ATPT - knots[j]) -
    cube(data$ATPT - knots[3]) * (knots[4] - knots[j]) / (knots[4] - knots[3]) +
    cube(data$ATPT - knots[4]) * (knots[3] - knots[j]) / (knots[4] - knots[3])) /
    (knots[4] - knots[1])^2
})
fit <- survreg(outcome ~ numProcs + PK + ATPT + bent, data, dist = "weibull", control = tight)
b <- coef(fit)[5:6]
wald <- drop(b %*% solve(vcov(fit)[5:6, 5:6]) %*% b)
out$spline <- list(knots = knots, coefficients = unname(coef(fit)), wald = wald,
  p = pchisq(wald, 2, lower.tail = FALSE))

# The naive regression: least squares over the samples that thrashed.
thrashing <- data[data$thrashed == 1, ]
plain <- lm(log(TP) ~ numProcs + PK + ATPT, thrashing)
out$naive <- list(
  coefficients = unname(coef(plain)), se = unname(sqrt(diag(vcov(plain)))),
  low = unname(confint(plain)[, 1]), high = unname(confint(plain)[, 2]),
  cluster_se = unname(sqrt(diag(vcovCL(plain, cluster = ~dbms, type = "HC0", cadjust = TRUE))))
)

# Logistic regression.
fit <- glm(thrashed ~ numProcs + PK + ATPT, binomial, data, control = list(epsilon = 1e-14))
out$logistic <- list(
  coefficients = unname(coef(fit)), se = unname(sqrt(diag(vcov(fit)))),
  loglik = as.numeric(logLik(fit)), aic = AIC(fit),
  cluster_se = unname(sqrt(diag(vcovCL(fit, cluster = ~dbms, type = "HC0", cadjust = TRUE))))
)
without <- sapply(unique(data$dbms), function(name) {
  coef(glm(thrashed ~ numProcs + PK + ATPT, binomial, data[data$dbms != name, ],
    control = list(epsilon = 1e-14)))
})
out$logistic$jackknife_se <- unname(sqrt(5 / 6 * rowSums((without - coef(fit))^2)))

# Firth's, as a maximum of the penalised likelihood, and profile intervals by bisection.
penalised <- function(b, x, y) {
  z <- drop(x %*% b)
  w <- plogis(z) * plogis(-z)
  sum(plogis(ifelse(y == 1, z, -z), log.p = TRUE)) +
    0.5 * as.numeric(determinant(crossprod(x * sqrt(w)))$modulus)
}
best <- function(objective, start) {
  for (round in 1:6) {
    found <- optim(start, objective, method = "BFGS",
      control = list(fnscale = -1, reltol = 1e-15, maxit = 1000))
    start <- found$par
  }
  found
}
firth <- function(x, y) {
  sds <- c(1, apply(x[, -1, drop = FALSE], 2, sd))
  scaled <- sweep(x, 2, sds, "/")
  top <- best(function(b) penalised(b, scaled, y), rep(0, ncol(x)))
  limit <- qchisq(0.95, 1) / 2
  held <- function(j, value) {
    free <- function(b) penalised(append(b, value, j - 1), scaled, y)
    best(free, top$par[-j])$value
  }
  ends <- sapply(seq_len(ncol(x)), function(j) {
    fall <- function(value) top$value - held(j, value) - limit
    c(uniroot(fall, top$par[j] + c(-1, 0), extendInt = "downX", tol = 1e-9)$root,
      uniroot(fall, top$par[j] + c(0, 1), extendInt = "upX", tol = 1e-9)$root,
      pchisq(2 * (top$value - held(j, 0)), 1, lower.tail = FALSE))
  })
  list(coefficients = unname(top$par / sds), low = unname(ends[1, ] / sds),
    high = unname(ends[2, ] / sds), p = unname(ends[3, ]), loglik = penalised(top$par / sds, x, y))
}
few <- data[seq(1, n, 3), ]
few$sep <- as.integer(few$thrashed == 1 & seq_len(nrow(few)) %% 2 == 0)
out$firth <- firth(model.matrix(~ PK + ATPT, few), few$thrashed)
out$firth_separated <- firth(model.matrix(~ sep + ATPT, few), few$thrashed)

write_json(out, "censored.json", digits = NA, auto_unbox = FALSE, pretty = TRUE)
