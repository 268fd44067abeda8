# Golden numbers for tables/correlation.py: `Rscript correlation.R > correlation.json`.
# R's own cor.test() and p.adjust(), on data from a generator that the test has too.

draws <- function(seed, n) {
  out <- numeric(n)
  for (i in seq_len(n)) {
    seed <- (16807 * seed) %% 2147483647
    out[i] <- seed / 2147483647
  }
  out
}

data <- function(n, weight, form) {
  x <- draws(42, n)
  y <- weight * x + draws(4711, n)
  if (form == "levels") {
    x <- floor(5 * x)
    y <- 100 * floor(4 * y)
  }
  if (form == "binary") x <- floor(2 * x)
  list(x = x, y = y)
}

number <- function(value) sprintf("%.17g", value)

one <- function(n, weight, form, method) {
  of <- data(n, weight, form)
  found <- if (method == "pearson") {
    cor.test(of$x, of$y)
  } else {
    suppressWarnings(cor.test(of$x, of$y, method = method, exact = FALSE))
  }
  ends <- if (method == "pearson") {
    sprintf(', "low": %s, "high": %s', number(found$conf.int[1]), number(found$conf.int[2]))
  } else ""
  sprintf('  {"n": %d, "weight": %s, "form": "%s", "method": "%s", "r": %s, "p": %s%s}',
          n, weight, form, method, number(found$estimate), number(found$p.value), ends)
}

lines <- c()
for (case in list(list(30, 0.5, "plain"), list(200, -0.3, "plain"), list(60, 0.8, "levels"),
                  list(148, -0.2, "levels"), list(40, 0.4, "binary"))) {
  for (method in c("pearson", "spearman", "kendall")) {
    lines <- c(lines, one(case[[1]], case[[2]], case[[3]], method))
  }
}
p <- c(0.01, 0.04, 0.03, 0.005, 0.5)
holm <- paste(number(p.adjust(p, "holm")), collapse = ", ")
cat("{\n", '"tests": [\n', paste(lines, collapse = ",\n"), "\n],\n",
    '"p": [', paste(p, collapse = ", "), '],\n"holm": [', holm, "]\n}\n", sep = "")
