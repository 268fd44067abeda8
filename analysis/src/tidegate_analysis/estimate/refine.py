"""Refinement: drop the paths that are not significant, and see what was lost.

Two rules are in use. ``all at once``, the study's (Section 7.2.4): every path and moderator with p
at or above alpha goes in one step. ``one at a time``: the least significant one goes, the model is
fitted again, and so on until none is left to drop; slower, but a path is not dropped because it
shared its variance with another that goes too. Both obey marginality: the path that a moderator
moderates, and the moderator's own path, stay while the product stays.

What was lost is told for each equation and for the whole model. Equations of the refined model are
nested in those of the initial one, so there is an F test (classical) and a likelihood ratio test::

    F = (rss1 - rss0) / q / (rss0 / (n - k)),     LR = 2 (l0 - l1) ~ chi²(q)

and for the whole recursive model log-likelihoods and degrees of freedom add up. All of them take
samples to be independent, whatever errors the fit used, except that with a random effect the
likelihoods are those of the model with it and F is missing.

The tests that chose the paths are no evidence for them: the refined model remembers its samples,
and `confirm` refuses them.

Source: Suh, Snodgrass, Currim 2017, Sections 7.2.4 and 8.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, get_args

import numpy as np
import pandas as pd
from scipy import stats

from tidegate_analysis.errors import ModelError, SampleError
from tidegate_analysis.estimate.evidence import Exploratory, fingerprint
from tidegate_analysis.estimate.paths import PathFit, fit
from tidegate_analysis.estimate.regression import Regression, RegressionKeywords, regress_with
from tidegate_analysis.model.diagram import draw
from tidegate_analysis.model.structure import Edge, Model

Rule = Literal["all at once", "one at a time"]


@dataclass(frozen=True, eq=False)
class Refinement:
    """A refined model beside the one it came from.

    - initial, refined: Both fitted to the same exploratory samples. The refined model is `model`.
    - dropped: A row for each path or moderator that went: step, from, to, by, standardised, p.
    """

    initial: PathFit
    refined: PathFit
    dropped: pd.DataFrame
    rule: Rule
    alpha: float

    @property
    def model(self) -> Model:
        """The refined model, which remembers the samples that refined it."""
        return self.refined.model

    @property
    def edges(self) -> tuple[Edge, ...]:
        """What was dropped, as `model.draw` takes it."""
        rows = self.dropped[["from", "to", "by"]].itertuples(index=False)
        return tuple((f, t, by) if by else (f, t) for f, t, by in rows)

    def diagram(self, *, title: str | None = None) -> str:
        """Return the initial model with its coefficients, dropped paths dashed, as SVG."""
        initial = self.initial
        return draw(
            initial.model,
            initial.estimates(),
            r_squared=initial.r_squared,
            dropped=self.edges,
            title=title,
        )

    def comparison(self) -> pd.DataFrame:
        """Return what was lost, a row for each equation and one for the model: see `compare`."""
        return compare(self.initial, self.refined)

    def __str__(self) -> str:
        dropped = self.dropped.to_string(index=False, float_format=lambda x: f"{x:.3g}")
        lost = self.comparison().to_string(index=False, float_format=lambda x: f"{x:.3g}")
        head = f"{self.initial.model.name}: {len(self.dropped)} dropped ({self.rule})"
        return "\n".join([head, *([dropped] if len(self.dropped) else []), lost])


def refine(
    model: Model,
    samples: Exploratory,
    *,
    rule: Rule = "all at once",
    alpha: float = 0.05,
    name: str | None = None,
    **options: Unpack[RegressionKeywords],
) -> Refinement:
    """Drop the paths and moderators of a model that are not significant in exploratory samples.

    - samples: Exploratory ones: nothing else is taken.
    - rule, alpha: See the module; what has p >= alpha is dropped.
    - **options: The fields of `RegressionOptions`.

    Raises `SampleError`: the samples are not marked exploratory, or nothing can be estimated from
    them. Raises `ModelError`: no path would be left.
    """
    if not isinstance(samples, Exploratory):
        raise SampleError(
            "a model is refined with exploratory samples only",
            "wrap them: Exploratory(samples), and keep others for the confirmatory test",
        )
    if rule not in get_args(Rule):
        raise ModelError(f"no rule is called `{rule}`", f"use one of: {'; '.join(get_args(Rule))}")
    initial = fit(model, samples, **options)
    current = initial
    dropped: list[pd.DataFrame] = []
    while True:
        weak = _weak(current, alpha)
        if rule == "one at a time":
            weak = weak.nlargest(1, "p")
        if weak.empty:
            break
        dropped.append(weak.assign(step=len(dropped) + 1))
        edges = [(f, t, by) if by else (f, t) for f, t, by in zip(*_ends(weak), strict=True)]
        smaller = current.model.without(edges)
        current = fit(smaller, samples, **options)
        if rule == "all at once":
            break
    seen = replace(
        current.model,
        name=name or f"{model.name}, refined",
        refined_with=fingerprint(samples, model),
    )
    columns = ["step", "from", "to", "by", "standardised", "p"]
    table = pd.concat(dropped)[columns] if dropped else pd.DataFrame(columns=columns)
    return Refinement(
        initial, replace(current, model=seen), table.reset_index(drop=True), rule, alpha
    )


def compare(initial: PathFit, refined: PathFit) -> pd.DataFrame:
    """Return what a nested model lost against the one it is nested in.

    Columns: outcome (``model`` for the whole), r2_initial, r2_refined, r2_lost (fits of Section
    9.3.4 for the whole), F, df1, df2, p_F, LR, p_LR, aic_initial, aic_refined.

    Raises `ModelError`: the second is not nested in the first, or they are fitted to different
    samples.
    """
    if initial.n != refined.n or initial.options != refined.options:
        raise ModelError(
            "two fits of different samples or options", "fit both models alike to compare them"
        )
    rows: list[dict[str, Any]] = []
    for outcome, full in initial.regressions.items():
        less = refined.regressions.get(outcome) or _without_terms(initial, outcome)
        if not set(less.terms) <= set(full.terms):
            raise ModelError(
                f"`{outcome}` has other terms in `{refined.model.name}` than in the initial model",
                "compare a model with one it was refined from",
            )
        rows.append({"outcome": outcome, **_lost(full, less)})
    # Of the whole there is no F, whose columns are missing there.
    sums = {
        key: sum((row[key] for row in rows), 0.0)
        for key in ("df1", "LR", "aic_initial", "aic_refined")
    }
    fits = {"r2_initial": initial.overall_fit, "r2_refined": refined.overall_fit}
    fits["r2_lost"] = initial.overall_fit - refined.overall_fit
    rows.append({"outcome": "model", **fits, **sums, "p_LR": _chi2(sums["LR"], sums["df1"])})
    return pd.DataFrame(rows)


def _lost(full: Regression, less: Regression) -> dict[str, float]:
    one, other = full.explained, less.explained
    q, df = one.parameters - other.parameters, full.n - one.parameters
    is_tested = q and full.options.effect != "random"
    F = (other.rss - one.rss) / q / (one.rss / df) if is_tested else np.nan
    LR = max(0.0, 2 * (one.log_likelihood - other.log_likelihood))
    return {
        "r2_initial": one.r_squared,
        "r2_refined": other.r_squared,
        "r2_lost": one.r_squared - other.r_squared,
        "F": F,
        "df1": q,
        "df2": df,
        "p_F": float(stats.f.sf(F, q, df)) if q else np.nan,
        "LR": LR,
        "p_LR": _chi2(LR, q),
        "aic_initial": one.aic,
        "aic_refined": other.aic,
    }


def _chi2(statistic: float, df: float) -> float:
    return float(stats.chi2.sf(statistic, df)) if df else np.nan


def _without_terms(initial: PathFit, outcome: str) -> Regression:
    """Fit a variable that nothing acts on any more: only its mean."""
    return regress_with(initial.samples, outcome, (), initial.options)


def _weak(current: PathFit, alpha: float) -> pd.DataFrame:
    """Return rows of paths and moderators that may go: not significant, and in no product."""
    table = current.paths()
    moderators = current.model.moderators
    weak = table[~(table["p"] < alpha)]
    ends = list(zip(*_ends(weak), strict=True))
    leaving = {end for end in ends if end[2]}
    staying = [m for m in moderators if m.edge not in leaving]
    needed = {m.path for m in staying} | {(m.by, m.target) for m in staying}
    return weak.loc[np.array([bool(by) or (f, t) not in needed for f, t, by in ends], bool)]


def _ends(table: pd.DataFrame) -> tuple[list[str], list[str], list[str]]:
    return table["from"].tolist(), table["to"].tolist(), table["by"].tolist()
