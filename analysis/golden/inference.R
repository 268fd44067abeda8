# Golden numbers of report/_inference.py, of the t intervals of Results.curves, and of
# scalability.gain.
#
#   Rscript inference.R      (in this directory; writes inference.json, data included)
#
# R with jsonlite and boot. Tests and intervals are R's own: t.test, lm, binom.test, prop.test.
# R has no gain: it is written again, level by level in loops, as scalability/_gain.py describes it,
# and boot draws for it. Permutations are all that there are, not a sample of them.

library(jsonlite)
library(boot)

set.seed(1908)

# A ratio of geometric means: the interval is of the difference of mean logarithms, Bonferroni's for
# k comparisons.
ratio <- function(difference, interval, p, k = 1) {
  list(value = exp(difference), low = exp(interval[1]), high = exp(interval[2]), p = min(1, k * p))
}

throughput <- function(n, mean, spread) round(mean * exp(spread * rnorm(n)), 3)

welch <- lapply(list(
  list(n = c(3, 3), mean = c(120, 100), spread = c(0.02, 0.02), k = 1),
  list(n = c(5, 3), mean = c(100, 98), spread = c(0.2, 0.05), k = 1),
  list(n = c(10, 4), mean = c(90, 100), spread = c(0.05, 0.3), k = 7),
  list(n = c(6, 8), mean = c(100, 100), spread = c(0.1, 0.1), k = 3)
), function(of) {
  a <- throughput(of$n[1], of$mean[1], of$spread[1])
  b <- throughput(of$n[2], of$mean[2], of$spread[2])
  found <- t.test(log(a), log(b), conf.level = 1 - 0.05 / of$k)
  c(list(a = a, b = b, k = of$k),
    ratio(mean(log(a)) - mean(log(b)), found$conf.int, found$p.value, of$k))
})

paired <- lapply(list(c(6, 1), c(12, 1), c(20, 5)), function(of) {
  b <- throughput(of[1], 100, 0.5)
  a <- round(b * 1.1 * exp(0.1 * rnorm(of[1])), 3)
  found <- t.test(log(a), log(b), paired = TRUE, conf.level = 1 - 0.05 / of[2])
  c(list(a = a, b = b, k = of[2]), ratio(found$estimate, found$conf.int, found$p.value, of[2]))
})

# A line with an intercept for each block of runs.
blocks <- lapply(list(list(4, c(0, 1)), list(3, c(0, 0.25, 1)), list(2, c(0, 0.5, 0.75, 1)),
                      list(10, c(0, 1 / 3, 1))), function(of) {
  place <- of[[2]]
  logs <- round(outer(rnorm(of[[1]]), 0.3 * place, "+") +
                  0.1 * rnorm(of[[1]] * length(place)), 4)
  long <- data.frame(y = as.vector(t(logs)), x = rep(place, of[[1]]),
                     block = factor(rep(seq_len(of[[1]]), each = length(place))))
  fit <- lm(y ~ x + block, long)
  c(list(logs = logs, place = place),
    ratio(coef(fit)[["x"]], confint(fit)["x", ], summary(fit)$coefficients["x", 4]))
})

wilson <- lapply(list(c(0, 10), c(1, 12), c(5, 10), c(30, 40), c(482, 1339), c(28, 28)),
  function(of) {
    interval <- suppressWarnings(prop.test(of[1], of[2], correct = FALSE)$conf.int)
    list(found = of[1], of = of[2], low = interval[1], high = interval[2])
  })

# All permutations of rows, each by itself.
orders <- function(n) {
  if (n == 1) return(matrix(1))
  do.call(rbind, lapply(seq_len(n), function(first) {
    rest <- orders(n - 1)
    cbind(first, matrix(setdiff(seq_len(n), first)[rest], nrow(rest)))
  }))
}
exact <- function(table, statistic) {
  each <- orders(ncol(table))
  chosen <- expand.grid(rep(list(seq_len(nrow(each))), nrow(table)))
  drawn <- apply(chosen, 1, function(which) {
    mixed <- t(sapply(seq_len(nrow(table)), function(row) table[row, each[which[row], ]]))
    statistic(mixed)
  })
  mean(drawn >= statistic(table) - 1e-12)
}
spread <- function(table) var(colMeans(table))
slope <- function(table) abs(sum(table %*% (seq_len(ncol(table)) - mean(seq_len(ncol(table))))))
permuted <- list()
for (apart in c(0, 0.15, 0.4)) {
  for (name in c("spread", "slope")) {
    table <- round(matrix(rnorm(12, sd = 0.2), 4) + rep(apart * (1:3), each = 4) + 3 * (1:4), 4)
    permuted <- c(permuted, list(list(table = table, statistic = name,
      p = exact(table, get(name)))))
  }
}

# The 95 % interval of mean throughput over repetitions.
curves <- lapply(list(c(2, 0.1), c(3, 0.01), c(5, 0.3), c(10, 0.05)), function(of) {
  tps <- throughput(of[1], 1000, of[2])
  found <- t.test(tps)
  list(tps = tps, mean = found$estimate[[1]], sd = sd(tps), low = found$conf.int[1],
       high = found$conf.int[2])
})

# The gain of the best level over the last, levels in rows, repetitions in columns.
crossed <- function(logs) {
  last <- nrow(logs)
  left_out <- sapply(seq_len(ncol(logs)), function(r) {
    best <- which.max(rowMeans(logs[, -r, drop = FALSE]))
    logs[best, r] - logs[last, r]
  })
  mean(left_out)
}
gain <- lapply(list(
  list(mean = c(450, 480, 500, 490, 470), reps = 3, spread = 0.05),
  list(mean = c(300, 500, 480, 400, 300, 220), reps = 5, spread = 0.1),
  list(mean = rep(500, 10), reps = 3, spread = 0.05),
  list(mean = c(100, 400, 390, 150), reps = 2, spread = 0.02)
), function(of) {
  logs <- log(matrix(throughput(length(of$mean) * of$reps, 1, of$spread) * of$mean,
                     length(of$mean)))
  tps <- round(exp(logs), 3)
  logs <- log(tps)
  levels <- nrow(logs)
  own <- rowMeans(logs)
  rest <- (logs - own) * sqrt(of$reps / (of$reps - 1))
  noise <- mean((rest - mean(rest))^2) / of$reps
  share <- max(var(own) - noise, 0) / var(own)
  true <- mean(own) + sqrt(share) * (own - mean(own))
  # boot gives each draw's estimate, error and choice.
  found <- boot(logs, function(drawn) {
    choice <- which.max(rowMeans(drawn))
    c(crossed(drawn) - (true[choice] - true[levels]), choice)
  }, R = 20000, sim = "parametric", ran.gen = function(data, from) {
    from + matrix(sample(rest, length(rest), replace = TRUE), levels)
  }, mle = true)
  wider <- qt(0.975, levels * of$reps - levels) / qnorm(0.975)
  ends <- crossed(logs) + wider * quantile(found$t[, 1], c(0.025, 0.975))
  list(tps = tps, best = which.max(own), ratio = exp(crossed(logs)),
       naive = exp(max(own) - own[levels]), low = exp(ends[[1]]), high = exp(ends[[2]]),
       chosen = mean(found$t[, 2] == which.max(own)))
})

write_json(list(welch = welch, paired = paired, blocks = blocks, wilson = wilson,
                permuted = permuted, curves = curves, gain = gain),
           "inference.json", digits = NA, auto_unbox = TRUE, pretty = 1)
