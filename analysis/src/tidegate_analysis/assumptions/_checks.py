"""All assumptions of a linear regression, one verdict each, in plain words.

The five are those of the study's Section 9.2: independent residuals, equal variance, no
multicollinearity, no outliers, normal residuals. Each check names its statistic and p-value, says
what the answer means for the reader of the regression, and what to do.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tidegate_analysis._columns import Array, refuse_level
from tidegate_analysis.assumptions._independence import (
    CochraneOrcutt,
    cochrane_orcutt,
    durbin_watson,
    durbin_watson_by_group,
)
from tidegate_analysis.assumptions._regression import CheckedRegression, regression
from tidegate_analysis.assumptions._tests import (
    SHAPIRO_LIMIT,
    breusch_pagan,
    histogram,
    inflation,
    influence,
    jarque_bera,
    non_constant_variance,
    quantiles,
    shapiro_wilk,
)
from tidegate_analysis.errors import AnalysisError, SampleError

Verdict = Literal["holds", "look", "fails"]

#: √VIF from which the study speaks of high correlation among variables (Section 9.2).
ROOT_LIMIT = 2.0

_NOTHING = "Nothing to do."


@dataclass(frozen=True)
class Check:
    """One assumption, tested in one way.

    - statistic: Of the test; its meaning is in `meaning`.
    - p: NaN where a rule decides and not a distribution.
    - verdict: ``holds`` (nothing speaks against it), ``look`` (see the pictures or the samples
      named) or ``fails``.
    """

    assumption: str
    test: str
    statistic: float
    p: float
    verdict: Verdict
    meaning: str
    advice: str


@dataclass(frozen=True)
class Checks:
    """The assumptions of one regression, and what to draw.

    - by_group: Durbin–Watson within each group, or why there is none; empty without groups.
    - inflation: √VIF of each variable.
    - influence: Of each sample: residual, leverage, Cook's distance.
    - histogram, quantiles: Of residuals, with the normal curve, and the Q–Q line.
    - correction: The Cochrane–Orcutt estimate where independence fails.
    - uncorrected: Why there is none all the same, and what to do.
    """

    checks: tuple[Check, ...]
    regression: CheckedRegression = field(repr=False)
    by_group: pd.DataFrame = field(repr=False)
    inflation: pd.DataFrame = field(repr=False)
    influence: pd.DataFrame = field(repr=False)
    histogram: pd.DataFrame = field(repr=False)
    quantiles: pd.DataFrame = field(repr=False)
    correction: CochraneOrcutt | None = field(default=None, repr=False)
    uncorrected: str = ""

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, test: str) -> Check:
        """Return the check of a test's name."""
        for each in self.checks:
            if each.test == test:
                return each
        there = ", ".join(each.test for each in self.checks)
        raise AnalysisError(f"no check `{test}`", f"choose one of {there}")

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(each for each in self.checks if each.verdict == "fails")

    def to_frame(self) -> pd.DataFrame:
        """Return a row for each check."""
        names = ("assumption", "test", "statistic", "p", "verdict", "meaning", "advice")
        rows = [[getattr(each, name) for name in names] for each in self.checks]
        return pd.DataFrame(rows, columns=list(names))

    def __str__(self) -> str:
        lines = []
        for each in self.checks:
            chance = "" if np.isnan(each.p) else f", p = {each.p:.3g}"
            lines.append(
                f"{each.assumption}: {each.verdict} ({each.test} {each.statistic:.3g}{chance})"
                f"\n    {each.meaning} {each.advice}"
            )
        if self.uncorrected:
            lines.append(f"no Cochrane–Orcutt estimate: {self.uncorrected}")
        return "\n".join(lines)


def check(
    X: pd.DataFrame | Array,
    y: pd.Series | Array | str,
    *,
    names: Sequence[str] | None = None,
    groups: pd.Series | npt.NDArray[np.generic] | str | None = None,
    level: float = 0.05,
    draws: int = 1000,
    seed: int = 0,
) -> Checks:
    """Check the assumptions of the regression of y on X.

    - X: Explanatory variables without an intercept, which is added: a table or an array. Rows in
      the order in which they were measured, or Durbin–Watson means nothing.
    - y: The outcome, or the name of its column in X.
    - names: The columns of a table to use, or the names of an array's columns.
    - groups: The DBMS of each sample, or the name of its column in X.
    - level: p-values below it speak against an assumption.

    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=(200, 2))
    >>> y = x @ [1.0, -2.0] + rng.normal(size=200)
    >>> check(x, y, names=["numProcs", "PK"])["Durbin–Watson"].verdict
    'holds'
    """
    refuse_level(level, "the level")
    fit = regression(X, y, names=names, groups=groups)
    if fit.parameters == 1:
        raise SampleError("X has no column", "give at least one explanatory variable")
    by_group = durbin_watson_by_group(fit, draws=draws, seed=seed)
    factors = inflation(fit)
    samples = influence(fit)
    independence = _independence(fit, by_group, level, draws, seed)
    checks = (
        independence,
        *_variance(fit, level),
        _collinearity(factors),
        _outliers(samples),
        *_normality(fit, level),
    )
    remedy = _correction(fit) if independence.verdict == "fails" else (None, "")
    pictures = (histogram(fit), quantiles(fit))
    return Checks(checks, fit, by_group, factors, samples, *pictures, *remedy)


def _correction(fit: CheckedRegression) -> tuple[CochraneOrcutt | None, str]:
    """Return the remedy, or why it cannot be computed."""
    try:
        return cochrane_orcutt(fit), ""
    except SampleError as error:
        return None, str(error)


#: What a check says: what the answer means, and what to do.
_Explanation = tuple[str, str]


def _judged(
    assumption: str,
    test: str,
    found: tuple[float, float],
    fails: bool,
    said: tuple[_Explanation, _Explanation],
) -> Check:
    """Return a check of a statistic and its p, with what is said where it holds and where not."""
    return Check(assumption, test, *found, "fails" if fails else "holds", *said[fails])


def _independence(
    fit: CheckedRegression, by_group: pd.DataFrame, level: float, draws: int, seed: int
) -> Check:
    found = durbin_watson(fit, draws=draws, seed=seed)
    kind = "alike" if found.statistic < 2 else "opposite"
    said = (
        ("Neighbouring residuals are not correlated beyond chance (2 is none).", _NOTHING),
        (
            f"Neighbouring residuals are {kind} (2 would be no correlation), so that the samples "
            "hold less information than their number, and p-values and intervals look too good."
            + _within(by_group, level),
            "Use errors clustered by DBMS, or the DBMS as a variable; where it shows within a "
            "DBMS, compare with the Cochrane–Orcutt estimate.",
        ),
    )
    statistic = (found.statistic, found.p)
    return _judged("independent residuals", "Durbin–Watson", statistic, found.p < level, said)


def _within(by_group: pd.DataFrame, level: float) -> str:
    """Return for which DBMSs correlation shows; that it does not show proves nothing."""
    if by_group.empty:
        return ""
    tested = by_group[by_group["p"].notna()]
    if tested.empty:
        return " No DBMS can be tested alone."
    number = f"{len(tested)} of {len(by_group)}" if len(tested) < len(by_group) else "each"
    guilty = tested.loc[tested["p"] < level, "group"].tolist()
    if guilty:
        return f" Tested within {number} DBMS, it shows for {', '.join(guilty)}."
    return (
        f" Tested within {number} DBMS, it does not show there: either DBMS differ from each other,"
        " or they have too few samples each to show it."
    )


def _variance(fit: CheckedRegression, level: float) -> list[Check]:
    tests = (
        ("Breusch–Pagan (studentised)", breusch_pagan(fit), "the variables"),
        ("Breusch–Pagan (original)", breusch_pagan(fit, studentised=False), "the variables"),
        ("non-constant variance score", non_constant_variance(fit), "the fitted values"),
    )
    checks = []
    for name, found, cause in tests:
        said = (
            (f"The spread of residuals does not depend on {cause} beyond chance.", _NOTHING),
            (
                f"The spread of residuals changes with {cause}: standard errors are wrong.",
                "Use robust (sandwich) standard errors, or model the logarithm of the outcome.",
            ),
        )
        statistic = (found.statistic, found.p)
        checks.append(_judged("equal variance", name, statistic, found.p < level, said))
    return checks


def _collinearity(factors: pd.DataFrame) -> Check:
    position = int(factors["root"].to_numpy().argmax())
    name, root = factors["name"].iloc[position], float(factors["root"].iloc[position])
    meaning = (
        f"`{name}` has the largest factor: correlation with the other variables makes its "
        f"standard error {root:.2f} times what it would be without."
    )
    advice = "Leave one of the correlated variables out, or vary them apart in the experiment."
    said = ((meaning, _NOTHING), (meaning, advice))
    return _judged("no multicollinearity", "largest √VIF", (root, np.nan), root > ROOT_LIMIT, said)


def _outliers(samples: pd.DataFrame) -> Check:
    distance = samples["cook"].fillna(np.inf)
    outliers, look = int(samples["outlier"].sum()), int(samples["look"].sum())
    where = int(distance.to_numpy().argmax()) + 1
    meaning = f"{outliers} samples have a Cook's distance above 1, {look} above 4/n; the largest "
    meaning += f"belongs to sample {where}."
    verdict: Verdict = "fails" if outliers else ("look" if look else "holds")
    advice = {
        "fails": "Look at those samples, and report the regression with and without them.",
        "look": "Look at them; below 1 none decides the regression alone.",
        "holds": _NOTHING,
    }[verdict]
    return Check(
        "no outliers",
        "largest Cook's distance",
        float(distance.max()),
        np.nan,
        verdict,
        meaning,
        advice,
    )


def _normality(fit: CheckedRegression, level: float) -> list[Check]:
    tests = [("Jarque–Bera", jarque_bera(fit))]
    if fit.samples <= SHAPIRO_LIMIT:
        tests.insert(0, ("Shapiro–Wilk", shapiro_wilk(fit)))
    checks = []
    many = fit.samples >= 100
    for name, found in tests:
        if found.p >= level:
            verdict: Verdict = "holds"
            meaning, advice = "Residuals look normal.", _NOTHING
        elif many:
            verdict = "look"
            meaning = (
                "Residuals are not exactly normal. With this many samples the estimates and their "
                "tests hardly depend on it; predictions of single values do."
            )
            advice = "Look at the histogram and the Q–Q picture; bootstrap intervals if in doubt."
        else:
            verdict = "fails"
            meaning = (
                "Residuals are not normal, and the samples are few: p-values and intervals that "
                "assume it may be wrong."
            )
            advice = "Use bootstrap intervals, or model the logarithm of the outcome."
        checks.append(
            Check("normal residuals", name, found.statistic, found.p, verdict, meaning, advice)
        )
    return checks
