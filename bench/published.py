#!/usr/bin/env python3
"""Write what the experiments of experiments/ found beside the figures that they reproduce.

Reads the stores that `tidegate lab run` filled through the analysis package, so run it with
analysis/.venv/bin/python. Takes the latest experiment of each name, and writes a Markdown page for
each study: the published figures as the experiment file's comment has them, then ours, with
machine, versions, seed and command. Only what is in the stores is used; nothing is run.
"""

import argparse
import collections
import json
import pathlib
import subprocess

import numpy
import pandas as pd

import tidegate_analysis as ta

from compare.machine import ROOT
from compare.report import table

STUDIES = {
    "autotuning": "The auto-tuning study, beside our own runs",
    "scheduling": "The external-scheduling study, beside our own runs",
    "thrashing": "The thrashing study, beside our own runs",
    "deterioration": "The structural-deterioration study, beside our own runs",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=pathlib.Path, help="files of SQLite")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("docs/results"))
    options = parser.parse_args()
    sections = collections.defaultdict(dict)
    for store in options.stores:
        results = ta.load(store)
        for experiment in results.experiment().to_dict("records"):
            study = experiment["name"].split("-")[0]
            if study in STUDIES:
                sections[study][experiment["name"]] = section(results, experiment)
    options.out.mkdir(parents=True, exist_ok=True)
    for study, title in STUDIES.items():
        if sections[study]:
            texts = [sections[study][name] for name in sorted(sections[study])]
            page = "\n\n".join([f"# {title}", INTRODUCTION, *texts]) + "\n"
            path = options.out / f"published-{study}.md"
            path.write_text(page)
            print(path)


INTRODUCTION = """Made by `bench/published.py` from the result store. Each section is an experiment
file: its own comment first, which holds the published figures, then ours. Shapes and directions are
to be compared, not absolute speeds: the studies ran on other machines, at other sizes. Response
times are of transactions that ended in the measured time. Clients over throughput is the mean by
Little's law, with those that were still running; where it is much longer, the execution was too
short to see the response times of that level."""


def section(results, experiment):
    executions = results.executions(experiment["experiment"])
    done = executions[executions["attempt"].notna()]
    parts = [
        f"## {experiment['name']}",
        comment(experiment["file"]),
        "**Ours**",
        circumstances(experiment, len(executions), done),
    ]
    parts.extend(SCENARIOS[experiment["scenario"]](results, experiment["experiment"], done))
    return "\n\n".join(parts)


def comment(file):
    """The file's first comment, which is Markdown."""
    lines = []
    for line in file.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].removeprefix(" "))
    return "\n".join(lines)


def circumstances(experiment, planned, done):
    """The command, the machine, the versions and the seed, and how many executions are missing."""
    machine = "; ".join(
        f"{cpu}, {processors:.0f} processors, Linux {kernel}"
        for cpu, processors, kernel in distinct(done, "cpu", "machine_processors", "kernel")
    )
    versions = "; ".join(
        f"{subject} {version}" for subject, version in distinct(done, "subject", "version")
    )
    builds = ", ".join(cited(build) for (build,) in distinct(done, "build"))
    preset = f" --preset {experiment['preset']}" if experiment["preset"] else ""
    return (
        f"`tidegate lab run experiments/{experiment['name']}.toml{preset}`, seed "
        f"{experiment['seed']}, {len(done)} of {planned} executions. {machine}. {versions}. "
        f"Tidegate at {builds}."
    )


def cited(build):
    """A commit in the form that the tidy test looks up, where the history has it."""
    commit = build.removesuffix("-dirty")
    looked_up = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    if subprocess.run(looked_up, cwd=ROOT, capture_output=True).returncode != 0:
        return "a commit that no longer exists"
    return f"commit `{commit}`{' with changes' if build != commit else ''}"


def distinct(frame, *columns):
    return sorted(frame[list(columns)].drop_duplicates().itertuples(index=False, name=None))


def number(value, digits=3):
    """To so many significant digits, thousands separated."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def run_name(row):
    name = row.subject
    if row.processors_planned:
        name += f", {row.processors_planned} processor{'s' if row.processors_planned > 1 else ''}"
    if row.isolation:
        name += f", {row.isolation}"
    return name


def first(frame):
    return next(frame.itertuples())


def curve_tables(results, experiment, done):
    """Throughput over the limit, with where it is within 10 % of the best."""
    points = results.latest_points(experiment)
    for (run, batchset), batches in done.groupby(["run", "batchset"]):
        levels = batches.groupby("mpl").agg(
            tps=("tps", "mean"),
            lowest=("tps", "min"),
            highest=("tps", "max"),
            mean_ms=("mean_ms", "mean"),
            p95_ms=("p95_ms", "mean"),
            clients=("clients", "mean"),
        )
        body = [
            (
                level.Index,
                number(level.tps, 4),
                f"{number(level.lowest, 4)}–{number(level.highest, 4)}",
                number(level.mean_ms),
                number(level.p95_ms),
                number(1000 * level.clients / level.tps) if level.tps else "–",
            )
            for level in levels.itertuples()
        ]
        best = levels["tps"].max()
        near = levels.index[levels["tps"] >= 0.9 * best]
        lowest = levels.index[levels["tps"] >= 0.95 * best].min()
        point = points[(points["run"] == run) & (points["batchset"] == batchset)]
        yield f"*{run_name(first(batches))}* (run {run}, batchset {batchset})"
        head = ["MPL", "tps", "lowest–highest", "mean, ms", "p95, ms", "clients / tps, ms"]
        yield table(head, body)
        yield (
            f"Best {number(best, 4)} tps. Within 10 % of it at {', '.join(map(str, near))}; the "
            f"lowest within 5 % is {lowest}. {thrashing_point(point)}"
        )


def thrashing_point(found):
    """What the analysis protocol found last of a batchset, in a sentence."""
    if found.empty:
        return ""
    point = first(found)
    if pd.isna(point.thrashing_point):
        return f"No thrashing up to {point.low:.0f}."
    return f"Thrashing point {point.thrashing_point:.0f}."


def steady(intervals, begin=0.5, end=1.0):
    """Throughput in a part of an execution, from its intervals."""
    until = intervals["until_s"]
    since = until.shift(fill_value=0.0)
    part = (since >= begin * until.max()) & (until <= end * until.max() * 1.001)
    seconds = (until - since)[part].sum()
    return intervals["transactions"][part].sum() / seconds if seconds else None


def limits(decisions, begin=0.5, end=1.0):
    """The time-weighted mean, the lowest and the highest limit in a part of an execution."""
    at = decisions["at_s"]
    part = decisions[(at >= begin * at.max()) & (at <= end * at.max())]
    if part.empty:
        return "–"
    mean = (part["interval_s"] * part["limit"]).sum() / part["interval_s"].sum()
    return f"{mean:.0f} ({part['limit'].min()}–{part['limit'].max()})"


def reasons(decisions, most=3):
    """Why the limit was set, as shares of an execution's decisions, the commonest first."""
    shares = decisions["reason"].value_counts(normalize=True).head(most)
    return ", ".join(f"{reason} {share:.0%}" for reason, share in shares.items()) or "–"


def of(frame, row):
    return frame[frame["execution"] == row.execution]


def control_tables(results, experiment, done):
    """Where each controller settles: the second half of each execution."""
    intervals, decisions = results.intervals(experiment), results.limits(experiment)
    body = [
        (
            f"{run_name(row)}: `{treatment(row)}`",
            row.mpl,
            number(row.tps, 4),
            number(steady(of(intervals, row)), 4),
            limits(of(decisions, row)),
            reasons(of(decisions, row)),
        )
        for row in done.itertuples()
    ]
    head = ["controller", "first limit", "tps", "tps, second half", "limit there", "why"]
    yield table(head, body)


def treatment(row):
    """What was done with the workload, in short."""
    values = json.loads(row.treatment)
    said = [values["admission"].get("control"), values.get("priority")]
    said += [values.get("buffer"), values.get("exchange")]
    if aging := values.get("aging"):
        said += [f"{aging['transactions']:,} transactions", f"split {aging['split']}"]
    words = [word if isinstance(word, str) else json.dumps(word) for word in said if word]
    return ", ".join(words) or "no more"


def switch_tables(results, experiment, done):
    """Each half's own second half."""
    intervals, decisions = results.intervals(experiment), results.limits(experiment)
    body = []
    for row in done.itertuples():
        cells = []
        for part in ((0.25, 0.5), (0.75, 1.0)):
            cells.append(number(steady(of(intervals, row), *part), 4))
            cells.append(limits(of(decisions, row), *part))
        body.append((f"batchset {row.batchset}: `{treatment(row)}`", *cells))
    yield table(["controller", "tps before", "limit", "tps after", "limit"], body)


def priority_tables(results, experiment, done):
    """Response times of both classes over the limit, with and without priority."""
    classes = results.classes(experiment)
    for (_, batchset), batches in done.groupby(["run", "batchset"]):
        body = []
        for row in batches.itertuples():
            means = of(classes, row).set_index("class")["mean_ms"]
            high, normal = means.get("high"), means.get("normal")
            ratio = normal / high if high and normal else None
            body.append((row.mpl, *map(number, (row.tps, row.mean_ms, high, normal, ratio))))
        one = first(batches)
        yield f"*{run_name(one)}*, batchset {batchset}: `{treatment(one)}`"
        yield table(["limit", "tps", "mean, ms", "high, ms", "normal, ms", "normal / high"], body)


def deterioration_tables(results, experiment, done):
    """The first and the last fifth of each execution, and how full leaves are before and after."""
    intervals, trees = results.intervals(experiment), results.trees(experiment)
    body = []
    for row in done.itertuples():
        speeds = [row.tps, *(steady(of(intervals, row), *part) for part in FIFTHS)]
        looks = of(trees, row)
        orders, lines = (looks[looks["tree"] == name] for name in ("orders", "order_line"))
        reads = [reads_a_second(orders, *part) for part in FIFTHS]
        body.append((
            treatment(row), *(number(speed, 4) for speed in speeds), fills(orders), fills(lines),
            *(number(read) for read in reads),
        ))
    head = ["treatment", "tps", "first fifth", "last fifth", "fill of orders", "of order lines",
            "reads of orders a second, first fifth", "last fifth"]
    yield table(head, body)


FIFTHS = ((0.0, 0.2), (0.8, 1.0))


def fills(looks):
    """How full a tree's leaves are in the mean, at the first look and the last."""
    if looks.empty:
        return "–"
    return " → ".join(f"{100 * fill:.0f} %" for fill in looks["fill"].iloc[[0, -1]])


def reads_a_second(looks, begin, end):
    """Pages of a tree read from its file, in a part of the time that was looked at."""
    if len(looks) < 2:
        return None
    times = [part * looks["at_s"].iloc[-1] for part in (begin, end)]
    first, last = numpy.interp(times, looks["at_s"], looks["physical_reads"])
    return (last - first) / (times[1] - times[0])


def thrash_tables(results, experiment, done):
    """How many batchsets thrash, by subject, and each curve where there are not too many."""
    samples = results.samples(experiment)
    body = []
    for dbms, points in samples.groupby("dbms"):
        found = points.loc[points["thrashed"], "TP"]
        mean = number(found.mean()) if len(found) else "–"
        spread = f"{found.min():.0f}–{found.max():.0f}" if len(found) else "–"
        body.append((dbms, len(points), len(found), mean, spread))
    yield table(["subject", "batchsets kept", "thrash", "mean TP", "lowest–highest TP"], body)
    if done.groupby(["run", "batchset"]).ngroups > 12:
        return
    levels = sorted(done["mpl"].unique())
    rows = []
    for _, batches in done.groupby(["run", "batchset"]):
        tps = batches.groupby("mpl")["tps"].mean()
        rows.append((run_name(first(batches)), *(number(tps.get(mpl), 4) for mpl in levels)))
    yield table(["tps at MPL", *map(str, levels)], rows)


SCENARIOS = {
    "characterise": curve_tables,
    "autotune": control_tables,
    "sensitivity": control_tables,
    "switch": switch_tables,
    "priority": priority_tables,
    "deteriorate": deterioration_tables,
    "thrash": thrash_tables,
}

if __name__ == "__main__":
    main()
