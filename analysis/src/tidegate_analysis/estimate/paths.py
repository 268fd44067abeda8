"""A model's path coefficients, estimated equation by equation.

Each endogenous variable is regressed on its parents and on products with moderators. With errors
that are independent between equations, which the model says, these are also the maximum likelihood
estimates of the whole model (Bollen 1989, chapter 4).

**The model's fit** is, as in Section 9.3.4 of the study, the part of the joint variance that the
equations explain, the generalised squared multiple correlation of path analysis (Specht 1975;
Pedhazur 1997, chapter 18)::

    fit = 1 - product over equations of e²,    e = sqrt(1 - R²)

The study's read model has e = 0.84 and 0.93: 1 - 0.84² · 0.93² = 0.39. Its update model has 0.96
and 0.92, which gives 0.22; the study prints 0.23. The unrounded errors decide: 0.956 and
0.918, say, round to the printed ones and give 0.23.

The coefficients of a path are effects at the moderators' means.

Source: Suh, Snodgrass, Currim 2017, Sections 7.2.4 and 9.3.4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final, Unpack

import numpy as np
import pandas as pd

from tidegate_analysis._columns import Array, Codes, codes
from tidegate_analysis.errors import SampleError
from tidegate_analysis.estimate.evidence import Confirmatory, Exploratory, refuse_seen, seen
from tidegate_analysis.estimate.regression import (
    Regression,
    RegressionKeywords,
    RegressionOptions,
    gathered,
    regress_with,
)
from tidegate_analysis.model.diagram import draw
from tidegate_analysis.model.structure import Edge, Model

#: The first columns of `PathFit.paths`.
_HYPOTHESIS: Final = ("from", "to", "by", "hypothesis", "sign", "level")


@dataclass(frozen=True, eq=False)
class PathFit:
    """An estimated model.

    - regressions: The equation of each endogenous variable, causes before effects.
    - seen: That samples of no kind took part in choosing the model's paths, if they did.
    """

    model: Model
    regressions: Mapping[str, Regression]
    samples: pd.DataFrame
    options: RegressionOptions
    seen: tuple[str, ...] = ()

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.samples)

    @property
    def r_squared(self) -> dict[str, float]:
        """R² of each equation."""
        return {name: fit.explained.r_squared for name, fit in self.regressions.items()}

    @property
    def error_coefficients(self) -> dict[str, float]:
        """Return sqrt(1 - R²) of each equation, the paths from errors (e in Fig. 6)."""
        return {name: float(np.sqrt(1 - r2)) for name, r2 in self.r_squared.items()}

    @property
    def overall_fit(self) -> float:
        """The fit of Section 9.3.4: 1 less the product of the squared error coefficients."""
        return overall_fit(self.r_squared.values())

    @property
    def cautions(self) -> tuple[str, ...]:
        """What a reader has to know, of the samples and of each equation."""
        of_equations = (c for fit in self.regressions.values() for c in fit.cautions)
        return tuple(dict.fromkeys([*self.seen, *of_equations]))

    def paths(self) -> pd.DataFrame:
        """Return a row for each path and each moderator, with the hypothesis beside the estimate.

        `supported` says that the sign is the hypothesised one and p is below 1 - confidence; it is
        missing for moderators, for which the model states no sign. p is of the raw coefficient; the
        standardised interval is another answer, see `regression`.
        """
        alpha = 1 - self.options.confidence
        estimates: dict[tuple[str, str], dict[str, Any]] = {
            (name, str(row["term"])): {str(key): row[key] for key in row if key != "term"}
            for name, fit in self.regressions.items()
            for row in fit.to_frame().to_dict("records")
        }

        def row(term: str, ends: Edge, said: tuple[str, ...]) -> dict[str, Any]:
            found = estimates[ends[1], term]
            agrees = (found["coefficient"] > 0) == (said[1] == "+")
            return {
                **dict(zip(_HYPOTHESIS, ends + said, strict=True)),
                **found,
                "stars": stars(found["p"]),
                "supported": bool(agrees and found["p"] < alpha) if said[1] else None,
            }

        rows = [
            row(path.source, (*path.edge, ""), (path.hypothesis, path.sign, path.level or ""))
            for path in self.model.paths
        ]
        rows += [row(one.term, one.edge, ("", "", "")) for one in self.model.moderators]
        return pd.DataFrame(rows).astype({"supported": "boolean"})

    def estimates(self) -> dict[Edge, tuple[float, float]]:
        """Return (standardised coefficient, p) by edge, as `model.draw` takes them."""
        table = self.paths()
        return {
            ((f, t, by) if by else (f, t)): (float(b), float(p))
            for f, t, by, b, p in zip(
                table["from"], table["to"], table["by"], table["standardised"], table["p"],
                strict=True,
            )
        }  # fmt: skip

    def diagram(self, *, title: str | None = None) -> str:
        """Return the model's path diagram with its coefficients, as SVG."""
        return draw(self.model, self.estimates(), r_squared=self.r_squared, title=title)

    def joint(self, *, raw: bool = False) -> tuple[Array, Array, Array]:
        """Return all path coefficients, their joint covariance, and degrees of freedom of each.

        In the order of the model's paths. Influences of one sample on several equations are added
        up together, so coefficients of different equations covary as the samples say. Raw ones with
        classical errors, and those with a random effect, have the covariance of their equation's
        table, and none with those of another, whose errors the model takes as independent.
        """
        places = [
            (path.target, self.regressions[path.target].terms.index(path.source))
            for path in self.model.paths
        ]
        fits = self.regressions
        scales = [(fits[n].raw if raw else fits[n].standardised, i) for n, i in places]
        values = np.array([scale.coefficients[i] for scale, i in scales])
        df = np.array([fits[name].df[i] for name, i in places])
        if self.options.effect == "random" or (raw and self.options.errors == "classical"):
            return values, self._block_diagonal(places, raw), df
        influences = np.column_stack([scale.influence[:, i] for scale, i in scales])
        columns = max(fit.explained.parameters for fit in fits.values())
        return values, gathered(influences, self.clusters(), columns), df

    def clusters(self) -> Codes | None:
        """Return the group of each sample when errors are clustered."""
        if not self.options.is_clustered:
            return None
        return codes(self.samples, self.options.cluster)[0]

    def _block_diagonal(self, places: list[tuple[str, int]], raw: bool) -> Array:
        covariance = np.zeros((len(places), len(places)))
        for a, (name, i) in enumerate(places):
            fit = self.regressions[name]
            own = (fit.raw if raw else fit.standardised).covariance
            for b, (other, j) in enumerate(places):
                if name == other:
                    covariance[a, b] = own[i, j]
        return covariance

    def __str__(self) -> str:
        columns = ["from", "to", "by", "hypothesis", "coefficient", "standardised", "p", "stars"]
        table = self.paths()[columns].to_string(index=False, float_format=lambda x: f"{x:.3g}")
        r2 = ", ".join(f"R²({name}) = {value:.3f}" for name, value in self.r_squared.items())
        head = f"{self.model.name}: n = {self.n}, {r2}, fit = {self.overall_fit:.3f}"
        return "\n".join([head, table, *(f"Take care: {caution}." for caution in self.cautions)])


def fit(
    model: Model,
    samples: pd.DataFrame | Exploratory | Confirmatory,
    **options: Unpack[RegressionKeywords],
) -> PathFit:
    """Estimate a model's path coefficients.

    - samples: A table, or one marked as exploratory or confirmatory. Confirmatory samples are
      refused when the model was refined with some of them; a table of no kind then has a caution.
    - **options: The fields of `RegressionOptions`.

    Raises `SampleError`: nothing can be estimated from the samples, or they are of another group
    than the model.
    """
    if isinstance(samples, Confirmatory):
        refuse_seen(samples, model)
    table = samples if isinstance(samples, pd.DataFrame) else samples.samples
    if model.mode and "mode" in table and not (table["mode"] == model.mode).all():
        raise SampleError(
            f"model `{model.name}` is about {model.mode}s, and the samples hold others",
            f'keep those with mode == "{model.mode}"',
        )
    chosen = RegressionOptions(**options)
    regressions = {
        name: regress_with(table, name, model.terms(name), chosen) for name in model.endogenous
    }
    unmarked = seen(table, model) if isinstance(samples, pd.DataFrame) else ()
    return PathFit(model, regressions, table, chosen, unmarked)


def confirm(model: Model, samples: Confirmatory, **options: Unpack[RegressionKeywords]) -> PathFit:
    """Test a model with samples that took no part in choosing its paths.

    As `fit`, and takes nothing but `Confirmatory`.
    """
    if not isinstance(samples, Confirmatory):
        raise SampleError(
            "a confirmatory test needs samples marked as such",
            "wrap samples that no model was chosen with: Confirmatory(samples)",
        )
    return fit(model, samples, **options)


def overall_fit(r_squared: Iterable[float]) -> float:
    """Return the fit of a path model from the R² of its equations.

    >>> round(overall_fit([1 - 0.84**2, 1 - 0.93**2]), 2)
    0.39
    """
    return 1 - prod(1 - r2 for r2 in r_squared)


def stars(p: float) -> str:
    """Return ``***`` below 0.001, ``**`` below 0.01, ``*`` below 0.05."""
    return "*" * sum(p < limit for limit in (0.05, 0.01, 0.001))
