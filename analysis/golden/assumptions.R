# Golden numbers of the assumption checks: assumptions.csv (made here) and assumptions.json.
#
#   Rscript assumptions.R
#
# The iteration of cochrane_orcutt() is written out: the package orcutt need not be there. It
# follows Cochrane and Orcutt (1949): residuals, their autoregression, regression of differences,
# until rho stands still.
suppressPackageStartupMessages({ library(car); library(lmtest); library(jsonlite) })

# --- data: correlated errors whose variance grows, and one outlier --------------------------------
set.seed(1949)
n <- 120
dbms <- rep(c("alpha", "beta", "gamma"), each = n / 3)
numProcs <- sample(c(1, 2, 4, 6, 8), n, replace = TRUE)
PK <- rbinom(n, 1, 0.5)
SF <- round(runif(n, 0, 1), 3)
ROSE <- round(60 * SF + runif(n, 0, 40), 2)
error <- as.vector(arima.sim(list(ar = 0.5), n)) * (4 + 2 * numProcs)
TP <- round(500 + 30 * numProcs + 50 * PK - 80 * SF + error + 20 * (dbms == "beta"), 3)
TP[17] <- TP[17] + 150
calm <- round(500 + 30 * numProcs + 50 * PK + rnorm(n, sd = 40), 3)
samples <- data.frame(dbms, numProcs, PK, SF, ROSE, TP, calm)
write.csv(samples, "assumptions.csv", row.names = FALSE, quote = FALSE)
samples <- read.csv("assumptions.csv")

model <- lm(TP ~ numProcs + PK + SF + ROSE, data = samples)
factors <- lm(TP ~ numProcs + PK + SF + ROSE + dbms, data = samples)
test <- function(x) list(statistic = unname(x$statistic), p = unname(x$p.value))

set.seed(1)
dw <- durbinWatsonTest(model, reps = 20000)
set.seed(1)
dw_normal <- durbinWatsonTest(model, reps = 20000, method = "normal")
exact <- dwtest(model, alternative = "two.sided", exact = TRUE)
score <- ncvTest(model)
set.seed(1)
dw_calm <- durbinWatsonTest(lm(calm ~ numProcs + PK + SF + ROSE, data = samples), reps = 20000)

orcutt <- function(model) {
  X <- model.matrix(model)
  Y <- model.response(model.frame(model))
  n <- length(Y)
  e <- residuals(model)
  rho <- Inf
  for (round in 1:200) {
    last <- rho
    rho <- unname(coef(lm(e[-1] ~ e[-n] - 1)))
    if (abs(rho - last) < 1e-8) break
    XB <- X[-1, ] - rho * X[-n, ]
    YB <- Y[-1] - rho * Y[-n]
    fit <- lm(YB ~ XB - 1)
    e <- Y - X %*% coef(fit)
  }
  XB <- X[-1, ] - rho * X[-n, ]
  YB <- Y[-1] - rho * Y[-n]
  fit <- lm(YB ~ XB - 1)
  list(rho = rho, rounds = round, estimate = unname(coef(fit)),
       error = unname(summary(fit)$coefficients[, 2]), p = unname(summary(fit)$coefficients[, 4]),
       after = unname(durbinWatsonTest(residuals(fit))))
}

quartiles <- quantile(residuals(model), c(0.25, 0.75))
golden <- list(
  R = R.version.string, car = as.character(packageVersion("car")),
  lmtest = as.character(packageVersion("lmtest")),
  durbin_watson = list(statistic = dw$dw, autocorrelation = dw$r, p = dw$p, p_normal = dw_normal$p,
                       p_exact = exact$p.value, reps = 20000),
  durbin_watson_calm = list(statistic = dw_calm$dw, p = dw_calm$p),
  durbin_watson_by_group = lapply(split(samples, samples$dbms), function(part)
    unname(durbinWatsonTest(residuals(lm(TP ~ numProcs + PK + SF + ROSE, data = part))))),
  breusch_pagan = test(bptest(model)),
  breusch_pagan_original = test(bptest(model, studentize = FALSE)),
  non_constant_variance = list(statistic = score$ChiSquare, p = score$p),
  vif = as.list(vif(model)),
  gvif = apply(vif(factors), 1, as.list),
  cook = unname(cooks.distance(model)), leverage = unname(hatvalues(model)),
  studentised = unname(rstudent(model)),
  shapiro = test(shapiro.test(residuals(model))),
  qq = list(theoretical = sort(qqnorm(residuals(model), plot.it = FALSE)$x),
            slope = unname(diff(quartiles) / diff(qnorm(c(0.25, 0.75))))),
  orcutt = orcutt(model)
)
writeLines(toJSON(golden, auto_unbox = TRUE, digits = 12, pretty = TRUE), "assumptions.json")
