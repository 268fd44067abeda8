"""Whether the regressions behind the path models may be believed (Section 9.2), in plain words."""

from functools import partial

import numpy as np
from matplotlib.axes import Axes

from tidegate_analysis import assumptions
from tidegate_analysis.report import _style as style
from tidegate_analysis.report import _words as words
from tidegate_analysis.report._parts import Figure, Part, Section, Table
from tidegate_analysis.report._view import records
from tidegate_analysis.report.causal._group import Experiment, Group, attempt

Equations = dict[str, assumptions.Checks]


def checked(experiment: Experiment) -> Section:
    """Return the checks of each equation of the refined models, and their residuals."""
    parts: list[Part] = []
    for group in experiment.groups:
        parts += attempt(
            f"whether the assumptions of the models of {group.name}s hold",
            partial(_checks, group),
        )
    return Section("assumptions", "Whether the regressions may be believed", parts)


def _checks(group: Group) -> list[Part]:
    group.need_model(group.refined)
    found = {
        name: assumptions.check(
            group.thrashed, name, names=list(group.refined.terms(name)), groups=group.by_dbms
        )
        for name in group.refined.endogenous
    }
    parts: list[Part] = [_table(group, found)]
    if any(len(checks.by_group) for checks in found.values()):
        parts.append(_by_dbms(group, found))
    if any(checks.correction for checks in found.values()):
        parts.append(_corrected(group, found))
    return [*parts, _figure(group, found)]


def _table(group: Group, found: Equations) -> Table:
    rows = [
        (
            f"{name}: {check['assumption']}",
            f"{check['test']} {words.number(check['statistic'])}",
            "–" if np.isnan(check["p"]) else words.p_value(check["p"]),
            {"holds": "holds", "look": "look at it", "fails": "fails"}[check["verdict"]],
            f"{check['meaning']} {check['advice']}",
        )
        for name, checks in found.items()
        for check in records(checks.to_frame())
    ]
    uncorrected = "".join(
        f" Of {name} there is no Cochrane–Orcutt estimate: {checks.uncorrected}."
        for name, checks in found.items()
        if checks.uncorrected
    )
    return Table(
        f"causal-assumptions-{group.name}",
        f"Assumptions of the regressions of {group.name}s",
        ("equation and assumption", "test", "p", "verdict", "what it means"),
        rows,
        "Samples are in the order of the plan, which Durbin–Watson calls neighbours. The study "
        "found Durbin–Watson 1.4 (reads) and 1.1 (updates), √VIF below 2, Cook's distance below 1."
        + uncorrected,
    )


def _by_dbms(group: Group, found: Equations) -> Table:
    """Return Durbin–Watson within each DBMS, where neighbours are of one plan."""
    rows = [
        (
            f"{name}: {row['group']}",
            f"{row['samples']:,}",
            words.number(row["statistic"]),
            f"not tested: {row['problem']}" if row["problem"] else words.p_value(row["p"]),
        )
        for name, checks in found.items()
        for row in records(checks.by_group)
    ]
    return Table(
        f"causal-independence-{group.name}",
        f"Durbin–Watson of the regressions of {group.name}s within each DBMS",
        ("equation and DBMS", "n", "Durbin–Watson", "p"),
        rows,
        "Of the samples of that DBMS that thrashed, on the variables that vary there. p is by "
        "bootstrap.",
    )


def _corrected(group: Group, found: Equations) -> Table:
    """Return Cochrane–Orcutt beside least squares, for equations whose errors are correlated."""
    rows = []
    for name, checks in found.items():
        correction = checks.correction
        if correction is None:
            continue
        fit = checks.regression
        plain = dict(zip(fit.names, fit.coefficients.tolist(), strict=True))
        rows += [
            (
                f"{name}: {row['name']}",
                words.number(plain.get(row["name"])),
                f"{words.number(row['estimate'])} ± {words.number(row['error'])}",
                words.p_value(row["p"]),
                words.number(correction.rho, 2),
                f"{words.number(correction.before)}, then {words.number(correction.after)}",
            )
            for row in records(correction.coefficients)
        ]
    header = ("equation and term", "least squares", "Cochrane–Orcutt ± its error", "p", "ρ",
              "Durbin–Watson")  # fmt: skip
    return Table(
        f"causal-correction-{group.name}",
        f"Regressions of {group.name}s corrected for correlated errors (Cochrane–Orcutt)",
        header,
        rows,
        "For the equations whose residuals are not independent, in units of the samples. ρ is the "
        "correlation of neighbours. Where there are several DBMSs it is taken within them, and "
        "each has an intercept of its own, which least squares here has not: else what DBMSs "
        "differ by would count as correlation of neighbours.",
    )


@style.styled
def _figure(group: Group, found: Equations) -> Figure:
    said = []
    figure, axes = style.panels(2 * len(found), 2, height=2.1)
    for place, (name, checks) in enumerate(found.items()):
        _histogram(axes[2 * place], name, checks)
        _quantiles(axes[2 * place + 1], name, checks)
        said.append(_in_words(name, checks))
    alt = " ".join(said)
    caption = (
        f"Residuals of the regressions of {group.name}s: histogram with the normal curve of the "
        "same deviation, and normal Q–Q picture with the line through the quartiles."
    )
    title = f"Residuals of the models of {group.name}s"
    return style.drawn(figure, f"causal-residuals-{group.name}", title, caption, alt)


def _histogram(axes: Axes, name: str, checks: assumptions.Checks) -> None:
    bars = checks.histogram
    width = bars["right"] - bars["left"]
    middle = bars["left"] + width / 2
    axes.bar(middle, bars["density"], width, color=style.COLOURS[0], alpha=0.5, linewidth=0)
    fit = checks.regression
    x = np.linspace(bars["left"].min(), bars["right"].max(), 120)
    deviation = float(np.std(fit.residuals, ddof=1))
    normal = np.exp(-((x / deviation) ** 2) / 2) / (deviation * np.sqrt(2 * np.pi))
    axes.plot(x, normal, color=style.COLOURS[1])
    axes.set(xlabel=f"residual of {name}", ylabel="density")
    axes.set_yticks([])


def _quantiles(axes: Axes, name: str, checks: assumptions.Checks) -> None:
    points = checks.quantiles
    axes.plot(points["theoretical"], points["residual"], "o", color=style.COLOURS[0], alpha=0.5)
    axes.plot(points["theoretical"], points["line"], color=style.COLOURS[1])
    axes.set(xlabel="normal quantile", ylabel=f"residual of {name}")


def _in_words(name: str, checks: assumptions.Checks) -> str:
    points = checks.quantiles
    away = (points["residual"] - points["line"]).abs()
    sigma = float(np.std(points["residual"], ddof=1))
    return (
        f"Residuals of {name}, n = {checks.regression.samples:,}, lie within "
        f"{words.number(float(away.quantile(0.9)) / sigma, 2)} standard deviations of the normal "
        f"line in nine of ten samples, and {words.number(float(away.max()) / sigma, 2)} from it at "
        "most."
    )
