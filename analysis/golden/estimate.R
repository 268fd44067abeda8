# Golden numbers for the regressions, effects and fit indices of tidegate_analysis.estimate.
#
# Run here:  Rscript estimate.R     (R 4.2; sandwich, lmtest, nlme, lavaan, jsonlite)
# Reads estimate.csv (made by `python estimate_data.py`), writes estimate.json.
suppressMessages({
  library(sandwich); library(lmtest); library(nlme); library(lavaan); library(jsonlite)
})

d <- read.csv("estimate.csv")
out <- list(versions = list(
  R = as.character(getRversion()),
  sandwich = as.character(packageVersion("sandwich")),
  nlme = as.character(packageVersion("nlme")),
  lavaan = as.character(packageVersion("lavaan"))
))

terms_of <- function(table, names) lapply(setNames(names, names), function(v) unname(table[v, ]))

# Linear models: classical, HC3, CR1 by dbms with t(G-1).
x <- c("numProcs", "PK", "ATPT")
m <- lm(TP ~ numProcs + PK + ATPT, d)
s <- summary(m)
z <- lm(scale(TP) ~ scale(numProcs) + scale(PK) + scale(ATPT), d)
G <- length(unique(d$dbms))
out$lm <- list(
  table = terms_of(coef(s), x),
  intercept = unname(coef(m)[1]),
  interval = terms_of(confint(m), x),
  standardised = unname(coef(z)[-1]),
  r2 = s$r.squared, adjusted = s$adj.r.squared,
  log_likelihood = as.numeric(logLik(m)), aic = AIC(m)
)
out$hc3 <- terms_of(unclass(coeftest(m, vcov. = vcovHC(m, type = "HC3"))), x)
cr1 <- vcovCL(m, cluster = ~dbms, type = "HC1", cadjust = TRUE)
out$cr1 <- terms_of(unclass(coeftest(m, vcov. = cr1, df = G - 1)), x)

# Intercepts of groups: fixed, with CR1, and random.
f <- lm(TP ~ numProcs + PK + ATPT + factor(dbms), d)
out$fixed <- terms_of(coef(summary(f)), x)
out$fixed_r2 <- summary(f)$r.squared
fcl <- vcovCL(f, cluster = ~dbms, type = "HC1", cadjust = TRUE)
out$fixed_cr1 <- terms_of(unclass(coeftest(f, vcov. = fcl, df = G - 1)), x)
r <- lme(TP ~ numProcs + PK + ATPT, random = ~ 1 | dbms, data = d, method = "REML",
         control = lmeControl(tolerance = 1e-10, msTol = 1e-12, returnObject = TRUE))
rml <- lme(TP ~ numProcs + PK + ATPT, random = ~ 1 | dbms, data = d, method = "ML",
           control = lmeControl(tolerance = 1e-10, msTol = 1e-12, returnObject = TRUE))
out$random <- terms_of(summary(r)$tTable, x)
out$random_variances <- as.numeric(VarCorr(r)[, "Variance"])
out$random_log_likelihood_ml <- as.numeric(logLik(rml))
out$random_aic_ml <- AIC(rml)

# The wild cluster bootstrap-t by brute force: all 6^5 Webb data sets, restricted residuals, CR1.
wild_p <- function(j, beta) {
  X <- model.matrix(m); y <- d$TP; g <- as.integer(factor(d$dbms)); n <- nrow(X); k <- ncol(X)
  bread <- solve(crossprod(X)); cc <- G / (G - 1) * (n - 1) / (n - k)
  t_of <- function(y) {
    b <- bread %*% crossprod(X, y); e <- as.vector(y - X %*% b)
    v <- cc * bread %*% crossprod(rowsum(X * e, g)) %*% bread
    (b[j] - beta) / sqrt(v[j, j])
  }
  r <- lm.fit(X[, -j], y - beta * X[, j])
  fitted <- r$fitted.values + beta * X[, j]
  w <- c(-sqrt(c(1.5, 1, 0.5)), sqrt(c(0.5, 1, 1.5)))
  all <- as.matrix(expand.grid(rep(list(w), G)))
  stars <- apply(all, 1, function(v) t_of(fitted + v[g] * r$residuals))
  mean(abs(stars) >= abs(t_of(y)) * (1 - 1e-9))
}
out$wild <- list(numProcs = wild_p(2, 0), PK = wild_p(3, 0), ATPT = wild_p(4, 0),
                 numProcs_at_5 = wild_p(2, 5), PK_at_200 = wild_p(3, 200))

# A product of centred columns, and the tests of a nested model.
d$np <- d$numProcs - mean(d$numProcs)
d$ro <- d$ROSE - mean(d$ROSE)
d$sf <- d$SF - mean(d$SF)
d$pk <- d$PK - mean(d$PK)
p <- lm(ATPT ~ np + sf + pk + ro + np:ro + sf:pk, d)
out$product <- terms_of(coef(summary(p)), c("np", "sf", "pk", "ro", "np:ro", "sf:pk"))
less <- lm(ATPT ~ np + pk, d)
a <- anova(less, p)
out$nested <- list(F = a$F[2], p = a$`Pr(>F)`[2],
                   LR = as.numeric(2 * (logLik(p) - logLik(less))),
                   aic = c(AIC(p), AIC(less)), r2 = c(summary(p)$r.squared, summary(less)$r.squared))

# Path models. The first is just identified; se = "robust.sem" is the distribution-free delta method.
indices <- c("chisq", "df", "pvalue", "baseline.chisq", "baseline.df", "cfi", "rmsea",
             "rmsea.ci.lower", "rmsea.ci.upper", "srmr", "aic", "bic", "logl")
refined <- "
  ATPT ~ a1*numProcs + a2*PK
  TP ~ c1*numProcs + c2*PK + b*ATPT
  indirect := a1*b
  total := c1 + a1*b
  totalPK := c2 + a2*b
"
# In units of like size, for lavaan's optimiser; standardised results do not change.
e <- d
e$ATPT <- e$ATPT / 500
e$TP <- e$TP / 200
fit <- sem(refined, e, fixed.x = FALSE, se = "robust.sem", test = "standard")
std <- standardizedSolution(fit)
pick <- function(row) list(est = row$est.std, se = row$se)
std_of <- function(l, o, r) pick(std[std$lhs == l & std$op == o & std$rhs == r, ])
out$sem_refined <- list(
  "numProcs->ATPT" = std_of("ATPT", "~", "numProcs"), "PK->ATPT" = std_of("ATPT", "~", "PK"),
  "numProcs->TP" = std_of("TP", "~", "numProcs"), "PK->TP" = std_of("TP", "~", "PK"),
  "ATPT->TP" = std_of("TP", "~", "ATPT"),
  "indirect" = std_of("indirect", ":=", "a1*b"), "total" = std_of("total", ":=", "c1+a1*b"),
  "totalPK" = std_of("totalPK", ":=", "c2+a2*b")
)
# Over-identified: no path from PK or SF to TP.
over <- "
  ATPT ~ numProcs + PK + SF
  TP ~ numProcs + ATPT
"
out$sem_over <- as.list(fitMeasures(sem(over, e), indices))
# The refined model beside what it left out: paths that are fixed at 0.
e$ROSE <- e$ROSE / 25
beside <- "
  ATPT ~ numProcs + PK + 0*SF + 0*ROSE
  TP ~ numProcs + PK + ATPT + 0*SF + 0*ROSE
"
out$sem_beside <- as.list(fitMeasures(sem(beside, e), indices))
# With products, as the initial model has them.
e$nr <- d$np * d$ro
e$sp <- d$sf * d$pk
e$nr <- e$nr / 50
initial <- "
  ATPT ~ numProcs + SF + PK + ROSE + nr + sp
  TP ~ numProcs + ROSE + SF + PK + ATPT
"
out$sem_initial <- as.list(fitMeasures(sem(initial, e), indices))

write(toJSON(out, digits = I(12), auto_unbox = TRUE, pretty = TRUE), "estimate.json")
