"""Pairwise correlations, and the study's hypotheses about them (Tables 1, 4, 9 and 10).

A hypothesis says that one variable moves another, in which direction, and how strongly. It is
*supported* when the correlation is significant and has the hypothesised sign, as in Section 9.3.1
of the study; that the level is another does not refute it there, so the two are told apart here.

Levels
------
The study uses low, medium and high and states no thresholds, and none fit what it calls them:
−0.36 is *low* in its Table 10 beside −0.16, *medium*, and 0.31 and −0.32 are *low* and *medium* in
its Table 9. Here levels are Cohen's (1988, Section 3.2): below 0.1 *none*, from 0.1 *low*, from 0.3
*medium*, from 0.5 *high*.

Tests
-----
Pearson's r is the study's (`cor.test` of R): tested by Student's t, its interval by Fisher's z with
a standard error of 1/√(n − 3). Spearman's ρ is tested by t too, its interval has the standard error
√((1 + ρ²/2)/(n − 3)) of Bonett and Wright (2000). Kendall's τ-b is tested by the normal
approximation with ties, its interval has √(0.437/(n − 4)) of Fieller, Hartley and Pearson (1957).
The two suit TP, whose levels are few and even.

Limits
------
All of them take samples for independent. Those of one DBMS are not, so p-values are too small when
DBMSes differ much: a regression with errors by cluster is the answer. And all of it is about
batchset instances that thrashed; TP = ∞ is censored, and to leave it out biases every one of these
numbers, which the survival models mend.

References
----------
Bonett, Wright (2000), "Sample size requirements for estimating Pearson, Kendall and Spearman
correlations", Psychometrika 65(1).
Cohen (1988), "Statistical power analysis for the behavioral sciences", 2nd edition.
Fieller, Hartley, Pearson (1957), "Tests for rank correlation coefficients I", Biometrika 44.
Holm (1979), "A simple sequentially rejective multiple test procedure", Scand. J. Statistics 6(2).
Suh, Snodgrass, Currim (2017), Sections 4.2, 8.3 and 9.3.1.

"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Literal

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis.errors import SampleError, ShapeError

Method = Literal["pearson", "spearman", "kendall"]
Level = Literal["none", "low", "medium", "high"]
Sign = Literal["+", "-", "0"]

#: The least |r| of each level above none (Cohen 1988).
LEVELS: Final[dict[Level, float]] = {"low": 0.1, "medium": 0.3, "high": 0.5}

METHODS: Final[tuple[Method, ...]] = ("pearson", "spearman", "kendall")

#: Fewer samples have no interval.
LEAST: Final = 5


@dataclass(frozen=True)
class Correlation:
    """A test that two variables are not correlated.

    - r: The coefficient, from −1 to 1.
    - p: The two-sided p-value.
    """

    method: Method
    n: int
    r: float
    low: float
    high: float
    confidence: float
    p: float

    @property
    def sign(self) -> Sign:
        """Its direction: ``+``, ``-``, or ``0`` where it is exactly none."""
        return "+" if self.r > 0 else "-" if self.r < 0 else "0"

    @property
    def level(self) -> Level:
        """Its strength, by the thresholds of `LEVELS`."""
        return level(self.r)

    def to_frame(self) -> pd.DataFrame:
        """Return it as a row."""
        return pd.DataFrame([asdict(self) | {"sign": self.sign, "level": self.level}])

    def __str__(self) -> str:
        """Return it as a sentence of a paper."""
        return (
            f"{self.method} r = {self.r:.2f} ({self.confidence:.0%} interval {self.low:.2f} to "
            f"{self.high:.2f}), p = {self.p:.2g}, n = {self.n}"
        )


@dataclass(frozen=True)
class Hypothesis:
    """That one variable moves another.

    - name: As the study calls it, such as ``H1``.
    """

    name: str
    cause: str
    effect: str
    sign: Literal["+", "-"]
    level: Level


#: Table 1: the initial model, of both groups. Signs are those of Fig. 3 and Section 4.2.
INITIAL: Final = (
    Hypothesis("I-(a)", "numProcs", "ATPT", "-", "low"),
    Hypothesis("I-(b)", "numProcs", "TP", "-", "medium"),
    Hypothesis("II-(a)", "SF", "ATPT", "+", "high"),
    Hypothesis("II-(b)", "SF", "TP", "-", "high"),
    Hypothesis("II-(c)", "ROSE", "TP", "+", "medium"),
    Hypothesis("III-(a)", "PK", "ATPT", "-", "high"),
    Hypothesis("III-(b)", "PK", "TP", "+", "high"),
    Hypothesis("IV-(a)", "ATPT", "TP", "-", "medium"),
)

#: Table 4 and Section 8: the refined models.
REFINED: Final[dict[str, tuple[Hypothesis, ...]]] = {
    "read": (
        Hypothesis("H1", "numProcs", "TP", "+", "low"),
        Hypothesis("H2", "numProcs", "ATPT", "-", "low"),
        Hypothesis("H3", "ATPT", "TP", "-", "medium"),
        Hypothesis("H4", "PK", "TP", "+", "medium"),
        Hypothesis("H5", "PK", "ATPT", "-", "medium"),
    ),
    "update": (
        Hypothesis("H1", "numProcs", "TP", "-", "low"),
        Hypothesis("H2", "numProcs", "ATPT", "-", "medium"),
        Hypothesis("H3", "ATPT", "TP", "-", "low"),
    ),
}


def level(r: float) -> Level:
    """Return the level of a coefficient."""
    names: list[Level] = ["none", *LEVELS]
    return names[int(np.searchsorted(list(LEVELS.values()), abs(r), side="right"))]


def correlate(
    table: pd.DataFrame,
    one: str,
    other: str,
    *,
    method: Method = "pearson",
    confidence: float = 0.95,
) -> Correlation:
    """Test that two columns are not correlated.

    Raises `ShapeError`: a column is missing, or has something that is no finite number. Raises
    `SampleError`: there are fewer than five rows, or a column is constant.

    >>> table = pd.DataFrame({"x": [1, 2, 3, 4, 5, 6], "y": [2, 1, 4, 3, 6, 5]})
    >>> print(correlate(table, "x", "y"))
    pearson r = 0.83 (95% interval 0.05 to 0.98), p = 0.042, n = 6
    """
    if not 0 < confidence < 1:
        raise SampleError(f"a confidence of {confidence} is none", "give one between 0 and 1")
    if method not in METHODS:
        raise SampleError(f"there is no correlation `{method}`", f"use {', '.join(METHODS)}")
    x, y = _column(table, one), _column(table, other)
    n = len(x)
    if n < LEAST:
        raise SampleError(
            f"{n} samples are too few to correlate `{one}` with `{other}`",
            f"give at least {LEAST}; in the study there are 148 and more",
        )
    for name, values in ((one, x), (other, y)):
        if np.all(values == values[0]):
            raise SampleError(
                f"`{name}` is {values[0]:g} in all {n} samples, and correlates with nothing",
                "leave it out, or take samples in which it varies",
            )
    r, p = _test(x, y, method)
    low, high = _interval(r, n, method, confidence)
    return Correlation(method, n, r, low, high, confidence, p)


def _test(x: np.ndarray, y: np.ndarray, method: Method) -> tuple[float, float]:
    """Return the coefficient and the p-value."""
    if method == "pearson":
        of_pearson = stats.pearsonr(x, y)
        r, p = of_pearson.statistic, of_pearson.pvalue
    elif method == "spearman":
        of_spearman = stats.spearmanr(x, y)
        r, p = of_spearman.statistic, of_spearman.pvalue
    else:
        # As R does with `exact = FALSE`, and with ties.
        r, p = stats.kendalltau(x, y, method="asymptotic")
    # Rounding may leave the coefficient of a straight line a little beyond one.
    return min(1.0, max(-1.0, float(r))), float(p)


def _interval(r: float, n: int, method: Method, confidence: float) -> tuple[float, float]:
    """Return the interval by Fisher's z, with the standard error of the coefficient."""
    if abs(r) == 1:
        return r, r
    error = {
        "pearson": np.sqrt(1 / (n - 3)),
        "spearman": np.sqrt((1 + r**2 / 2) / (n - 3)),
        "kendall": np.sqrt(0.437 / (n - 4)),
    }[method]
    half = stats.norm.ppf((1 + confidence) / 2) * error
    low, high = np.tanh(np.arctanh(r) + np.array([-half, half]))
    return float(low), float(high)


def _column(table: pd.DataFrame, name: str) -> np.ndarray:
    if name not in table:
        raise ShapeError(f"there is no column `{name}`", f"it has {', '.join(map(str, table))}")
    values = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype="float64")
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        row = int(wrong[0])
        raise ShapeError(
            f"`{name}` is {table[name].iloc[row]} in row {row + 1}, which correlates with nothing",
            "take rows with finite numbers, such as samples that thrashed",
        )
    return values


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Return p-values adjusted for being several (Holm 1979).

    The k-th smallest of m is multiplied by m − k + 1, and none is below one before it. That one or
    more of the hypotheses that hold are rejected then has at most the probability of one test.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype="float64")
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return adjusted


def hypotheses(
    table: pd.DataFrame,
    tested: Sequence[Hypothesis],
    *,
    method: Method = "pearson",
    confidence: float = 0.95,
    alpha: float = 0.05,
    correction: Literal["none", "holm"] = "none",
) -> pd.DataFrame:
    """Test hypotheses about correlations: Tables 9 and 10 as rows.

    - table: Samples, or any frame with the columns named.
    - tested: The hypotheses, such as `INITIAL` or those of `REFINED`.
    - method, confidence: As in `correlate`.
    - correction: With ``holm``, the columns `p_holm` and `supported_holm` stand beside.

    Returns the columns hypothesis, cause, effect, n, r, low, high, p, significant, sign,
    sign_expected, level, level_expected, supported.

    Raises `SampleError` or `ShapeError`: as in `correlate`; or there is no hypothesis.
    """
    if not tested:
        raise SampleError("there is no hypothesis to test", "give some, such as `INITIAL`")
    rows = []
    for one in tested:
        found = correlate(table, one.cause, one.effect, method=method, confidence=confidence)
        rows.append(
            {
                "hypothesis": one.name,
                "cause": one.cause,
                "effect": one.effect,
                "n": found.n,
                "r": found.r,
                "low": found.low,
                "high": found.high,
                "p": found.p,
                "significant": found.p < alpha,
                "sign": found.sign,
                "sign_expected": one.sign,
                "level": found.level,
                "level_expected": one.level,
                "supported": found.p < alpha and found.sign == one.sign,
            }
        )
    result = pd.DataFrame(rows)
    if correction == "holm":
        result["p_holm"] = holm(result["p"].to_numpy())
        agrees = result["sign"] == result["sign_expected"]
        result["supported_holm"] = (result["p_holm"] < alpha) & agrees
    return result


def as_printed(tested: pd.DataFrame) -> pd.DataFrame:
    """Return what `hypotheses` found in the layout of Tables 9 and 10.

    Causes are rows and effects columns. A star is significance; what is supported is bold, in
    Markdown.
    """
    effects = [name for name in ("TP", "ATPT") if name in set(tested["effect"])]
    effects += [name for name in dict.fromkeys(tested["effect"]) if name not in effects]
    cells: dict[str, dict[str, str]] = {}
    for row in tested.to_dict("records"):
        star = "\\*" if row["significant"] else ""
        text = f"{row['hypothesis']}: {row['r']:.2f}{star}"
        bold = f"**{text}**" if row["supported"] else text
        cells.setdefault(str(row["cause"]), {})[str(row["effect"])] = bold
    lines = [[cause, *(of.get(effect) for effect in effects)] for cause, of in cells.items()]
    return pd.DataFrame(lines, columns=["variable", *effects])
