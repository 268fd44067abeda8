# Golden numbers of scalability/: the universal scalability law by nonlinear least squares.
#
#   Rscript scalability.R      (in this directory; writes scalability.csv and scalability.json)
#
# R with jsonlite. Bounds are those of nls's "port".

library(jsonlite)

set.seed(2007)
law <- function(n, lambda, sigma, kappa) {
  lambda * n / (1 + sigma * (n - 1) + kappa * n * (n - 1))
}
curve <- function(name, mpls, reps, lambda, sigma, kappa, noise) {
  mpl <- rep(mpls, each = reps)
  tps <- law(mpl, lambda, sigma, kappa)
  tps <- round(tps + noise * mean(tps) * rnorm(length(mpl)), 4)
  data.frame(curve = name, mpl = mpl, tps = tps, weight = rep(seq_len(reps), length(mpls)))
}
doubling <- c(1, 2, 4, 8, 16, 32, 64, 128)
hundreds <- seq(100, 1000, 100)
data <- rbind(
  curve("peak", doubling, 3, 100, 0.05, 0.0005, 0.03),
  curve("hundreds", hundreds, 3, 20, 0.02, 5e-6, 0.02),
  curve("amdahl", doubling, 1, 100, 0.05, 0, 0.03),
  curve("no_contention", hundreds, 1, 20, 0, 1e-5, 0.05)
)
write.csv(data, "scalability.csv", row.names = FALSE, quote = FALSE)

criterion <- function(squares, n, parameters) {
  k <- parameters + 1
  n * log(squares / n) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
}
control <- nls.control(maxiter = 500, tol = 1e-12, warnOnly = TRUE)
out <- list()
for (name in unique(data$curve)) {
  part <- data[data$curve == name, ]
  # In coefficients of N/X, where nls needs no good start; then in (lambda, sigma, kappa).
  line <- lm(I(mpl / tps) ~ I(mpl - 1) + I(mpl * (mpl - 1)), part)
  start <- pmax(coef(line), c(1e-6, 0, 0))
  start <- list(lambda = 1 / start[[1]], sigma = min(1, start[[2]] / start[[1]]),
    kappa = start[[3]] / start[[1]])
  fit <- nls(tps ~ law(mpl, lambda, sigma, kappa), part, start, algorithm = "port",
    lower = c(1e-9, 0, 0), upper = c(Inf, 1, Inf), control = control)
  heavy <- nls(tps ~ law(mpl, lambda, sigma, kappa), part, start, algorithm = "port",
    lower = c(1e-9, 0, 0), upper = c(Inf, 1, Inf), control = control, weights = weight)
  amdahl <- nls(tps ~ law(mpl, lambda, sigma, 0), part, start[1:2], algorithm = "port",
    lower = c(1e-9, 0), upper = c(Inf, 1), control = control)
  linear <- lm(tps ~ 0 + mpl, part)
  n <- nrow(part)
  squares <- deviance(fit)
  found <- list(
    estimate = unname(coef(fit)), squares = squares, weighted = unname(coef(heavy)),
    se = unname(sqrt(diag(vcov(fit)))),
    r2 = 1 - squares / sum((part$tps - mean(part$tps))^2),
    aicc = c(criterion(squares, n, 3), criterion(deviance(amdahl), n, 2),
      criterion(deviance(linear), n, 1)),
    amdahl = unname(coef(amdahl)), amdahl_se = unname(sqrt(diag(vcov(amdahl))))
  )
  if (length(unique(part$mpl)) < n) {
    means <- lm(tps ~ factor(mpl), part)
    rest <- df.residual(means)
    levels <- length(unique(part$mpl))
    f <- ((squares - deviance(means)) / (levels - 3)) / (deviance(means) / rest)
    found$lack_of_fit <- pf(f, levels - 3, rest, lower.tail = FALSE)
  }
  # Delta method of the peak.
  if (all(coef(fit) > 0)) {
    gradient <- with(as.list(coef(fit)), {
      peak <- sqrt((1 - sigma) / kappa)
      c(0, -1 / (2 * peak * kappa), -peak / (2 * kappa))
    })
    found$peak <- with(as.list(coef(fit)), sqrt((1 - sigma) / kappa))
    found$peak_se <- sqrt(drop(gradient %*% vcov(fit) %*% gradient))
    # Delta method of N/X: the band of the curve.
    at <- unique(part$mpl)
    reciprocal <- function(par) at / law(at, par[1], par[2], par[3])
    turn <- sapply(1:3, function(j) {
      step <- coef(fit)[j] * 1e-6
      up <- down <- coef(fit)
      up[j] <- up[j] + step
      down[j] <- down[j] - step
      (reciprocal(up) - reciprocal(down)) / (2 * step)
    })
    half <- qt(0.975, n - 3) * sqrt(rowSums((turn %*% vcov(fit)) * turn))
    centre <- reciprocal(coef(fit))
    found$band <- list(mpl = at, low = at / (centre + half), high = at / (centre - half))
  }
  out[[name]] <- found
}
write_json(out, "scalability.json", digits = NA, auto_unbox = FALSE, pretty = TRUE)
