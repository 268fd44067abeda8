#!/usr/bin/env python3
"""Write what the experiments of experiments/ found beside the figures that they reproduce.

Reads result stores (SQLite) that `tidegate lab run` filled, takes the latest experiment of each
name, and writes a Markdown page for each study: the published figures as the experiment file's
comment has them, then ours, with machine, versions, seed and command. Only what is in the store is
used; nothing is run.
"""

import argparse
import collections
import json
import pathlib
import sqlite3
import statistics

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
        connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
        connection.row_factory = sqlite3.Row
        for experiment in connection.execute("SELECT * FROM experiment ORDER BY id"):
            study = experiment["name"].split("-")[0]
            if study in STUDIES:
                sections[study][experiment["name"]] = section(connection, experiment)
    for study, title in STUDIES.items():
        if sections[study]:
            texts = [sections[study][name] for name in sorted(sections[study])]
            page = "\n\n".join([f"# {title}", INTRODUCTION, *texts]) + "\n"
            path = options.out / f"published-{study}.md"
            path.write_text(page)
            print(path)


INTRODUCTION = """Made by `bench/published.py` from the result store. Each section is an experiment
file: its own comment first, which holds the published figures, then ours. Shapes and directions are
to be compared, not absolute speeds: the studies ran on other machines, at other sizes."""


def section(connection, experiment):
    parts = [
        f"## {experiment['name']}",
        comment(experiment["file"]),
        "**Ours**",
        circumstances(connection, experiment),
    ]
    tables = SCENARIOS[experiment["scenario"]]
    parts.extend(tables(connection, experiment["id"]))
    return "\n\n".join(parts)


def comment(file):
    """The file's first comment, which is Markdown."""
    lines = []
    for line in file.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line[1:].removeprefix(" "))
    return "\n".join(lines)


def circumstances(connection, experiment):
    """The command, the machine, the versions and the seed, and how many executions are missing."""
    starts = connection.execute(
        "SELECT DISTINCT r.subject, s.version, m.cpu, m.processors, m.kernel, c.build FROM start s "
        "JOIN run r ON r.id = s.run JOIN machine m ON m.id = s.machine "
        "JOIN code c ON c.id = s.code WHERE r.experiment = ? ORDER BY r.subject",
        (experiment["id"],),
    ).fetchall()
    planned, done = connection.execute(
        "SELECT COUNT(*), COUNT(m.execution) FROM execution x JOIN batchset b ON b.id = x.batchset "
        "JOIN run r ON r.id = b.run LEFT JOIN measurement m ON m.execution = x.id "
        "WHERE r.experiment = ?",
        (experiment["id"],),
    ).fetchone()
    versions = "; ".join(dict.fromkeys(f"{s['subject']} {s['version']}" for s in starts))
    machines = (f"{s['cpu']}, {s['processors']} processors, Linux {s['kernel']}" for s in starts)
    machine = "; ".join(dict.fromkeys(machines))
    builds = ", ".join(dict.fromkeys(s["build"] for s in starts))
    preset = f" --preset {experiment['preset']}" if experiment["preset"] else ""
    return (
        f"`tidegate lab run experiments/{experiment['name']}.toml{preset}`, seed "
        f"{experiment['seed']}, {done} of {planned} executions. {machine}. {versions}. Tidegate "
        f"{builds}."
    )


def executions(connection, experiment):
    """Measured executions, with their run's and batchset's columns, in order."""
    return connection.execute(
        "SELECT r.number AS run, r.subject, r.processors, r.primary_key, r.isolation, "
        "b.number AS batchset, b.workload, b.spec, b.treatment, x.mpl, m.* "
        "FROM measurement m JOIN execution x ON x.id = m.execution "
        "JOIN batchset b ON b.id = x.batchset JOIN run r ON r.id = b.run "
        "WHERE r.experiment = ? ORDER BY r.number, b.number, x.mpl, x.repetition",
        (experiment,),
    ).fetchall()


def grouped(rows, *keys):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def table(head, rows):
    """A Markdown table; all columns but the first are numbers."""
    lines = [f"| {' | '.join(head)} |", f"| --- |{' ---: |' * (len(head) - 1)}"]
    lines += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rows]
    return "\n".join(lines)


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
    name = row["subject"]
    if row["processors"]:
        name += f", {row['processors']} processor{'s' if row['processors'] > 1 else ''}"
    if row["isolation"]:
        name += f", {row['isolation']}"
    return name


def curve_tables(connection, experiment):
    """Throughput over the limit, with where it is within 10 % of the best."""
    rows = executions(connection, experiment)
    for (run, batchset), batches in grouped(rows, "run", "batchset").items():
        levels = grouped(batches, "mpl")
        tps = {mpl: statistics.mean(e["tps"] for e in es) for (mpl,), es in levels.items()}
        body = [
            (
                mpl,
                number(tps[mpl], 4),
                f"{number(min(e['tps'] for e in es), 4)}–{number(max(e['tps'] for e in es), 4)}",
                number(statistics.mean(e["mean_ms"] for e in es)),
                number(statistics.mean(e["p95_ms"] for e in es)),
            )
            for (mpl,), es in levels.items()
        ]
        best = max(tps.values())
        near = [mpl for mpl in tps if tps[mpl] >= 0.9 * best]
        point = thrashing_point(connection, experiment, run, batchset)
        lowest = min(mpl for mpl in tps if tps[mpl] >= 0.95 * best)
        yield f"*{run_name(batches[0])}* (run {run}, batchset {batchset})"
        yield table(["MPL", "tps", "lowest–highest", "mean, ms", "p95, ms"], body)
        yield (
            f"Best {number(best, 4)} tps. Within 10 % of it at {', '.join(map(str, near))}; the "
            f"lowest within 5 % is {lowest}. {point}"
        )


def thrashing_point(connection, experiment, run, batchset):
    """What the analysis protocol found last of a batchset, in a sentence."""
    found = connection.execute(
        "SELECT t.mpl, t.low FROM thrashing_point t JOIN batchset b ON b.id = t.batchset "
        "JOIN run r ON r.id = b.run WHERE r.experiment = ? AND r.number = ? AND b.number = ? "
        "ORDER BY t.id DESC LIMIT 1",
        (experiment, run, batchset),
    ).fetchone()
    if found is None:
        return ""
    if found["mpl"] is None:
        return f"No thrashing up to {found['low']}."
    return f"Thrashing point {found['mpl']}."


def steady(connection, attempt, begin=0.5, end=1.0):
    """Throughput in a part of an execution, from its intervals."""
    seen = connection.execute(
        "SELECT until_s, transactions FROM interval_seen WHERE attempt = ? ORDER BY number",
        (attempt,),
    ).fetchall()
    if not seen:
        return None
    last = seen[-1]["until_s"]
    chosen, previous, seconds = 0, 0.0, 0.0
    for interval in seen:
        if begin * last <= previous and interval["until_s"] <= end * last * 1.001:
            chosen += interval["transactions"]
            seconds += interval["until_s"] - previous
        previous = interval["until_s"]
    return chosen / seconds if seconds else None


def limits(connection, attempt, begin=0.5, end=1.0):
    """The time-weighted mean, the lowest and the highest limit in a part of an execution."""
    seen = connection.execute(
        "SELECT at_s, interval_s, mpl FROM limit_seen WHERE attempt = ? ORDER BY number", (attempt,)
    ).fetchall()
    if not seen:
        return None
    last = seen[-1]["at_s"]
    part = [s for s in seen if begin * last <= s["at_s"] <= end * last]
    if not part:
        return None
    weight = sum(s["interval_s"] for s in part)
    mean = sum(s["interval_s"] * s["mpl"] for s in part) / weight
    return mean, min(s["mpl"] for s in part), max(s["mpl"] for s in part)


def shown(seen):
    return "–" if seen is None else f"{seen[0]:.0f} ({seen[1]}–{seen[2]})"


def control_tables(connection, experiment):
    """Where each controller settles: the second half of each execution."""
    body = []
    for row in executions(connection, experiment):
        body.append(
            (
                f"{run_name(row)}: `{controller(row)}`",
                row["mpl"],
                number(row["tps"], 4),
                number(steady(connection, row["attempt"]), 4),
                shown(limits(connection, row["attempt"])),
            )
        )
    yield table(["controller", "first limit", "tps", "tps, second half", "limit there"], body)


def controller(row):
    """What was done with the workload, in short."""
    treatment = json.loads(row["treatment"])
    said = [treatment["admission"].get("control"), treatment.get("priority")]
    said += [treatment.get("buffer"), treatment.get("exchange"), treatment.get("aging")]
    words = [word if isinstance(word, str) else json.dumps(word) for word in said if word]
    return ", ".join(words) or "no more"


def switch_tables(connection, experiment):
    """Each half's own second half."""
    body = []
    for row in executions(connection, experiment):
        parts = [(0.25, 0.5), (0.75, 1.0)]
        cells = []
        for begin, end in parts:
            cells.append(number(steady(connection, row["attempt"], begin, end), 4))
            cells.append(shown(limits(connection, row["attempt"], begin, end)))
        body.append((f"batchset {row['batchset']}: `{controller(row)}`", *cells))
    yield table(["controller", "tps before", "limit", "tps after", "limit"], body)


def priority_tables(connection, experiment):
    """Response times of both classes over the limit, with and without priority."""
    rows = executions(connection, experiment)
    for (run, batchset), batches in grouped(rows, "run", "batchset").items():
        body = []
        for (mpl,), es in grouped(batches, "mpl").items():
            classes = {
                seen["class"]: seen["mean_ms"]
                for e in es
                for seen in connection.execute(
                    "SELECT class, mean_ms FROM class_seen WHERE attempt = ?", (e["attempt"],)
                )
            }
            high, normal = classes.get("high"), classes.get("normal")
            ratio = normal / high if high and normal else None
            tps, mean = es[0]["tps"], es[0]["mean_ms"]
            body.append((mpl, *map(number, (tps, mean, high, normal, ratio))))
        yield f"*{run_name(batches[0])}*, batchset {batchset}: `{controller(batches[0])}`"
        yield table(["limit", "tps", "mean, ms", "high, ms", "normal, ms", "normal / high"], body)


def deterioration_tables(connection, experiment):
    """The first and the last fifth of each execution, and the fill of the orders' leaves."""
    body = []
    for row in executions(connection, experiment):
        looks = connection.execute(
            "SELECT * FROM tree_seen WHERE attempt = ? AND tree LIKE 'orders%' ORDER BY number",
            (row["attempt"],),
        ).fetchall()
        fills = [number(look["fill"]) for look in (looks[0], looks[-1])] if looks else ["–", "–"]
        first = steady(connection, row["attempt"], 0.0, 0.2)
        last = steady(connection, row["attempt"], 0.8, 1.0)
        speeds = (number(value, 4) for value in (row["tps"], first, last))
        body.append((f"`{controller(row)}`", *speeds, *fills))
    head = ["treatment", "tps", "first fifth", "last fifth", "orders' fill first", "last"]
    yield table(head, body)


def thrash_tables(connection, experiment):
    """How many batchsets thrash, by subject, and each curve's thrashing point."""
    found = connection.execute(
        "SELECT r.subject, r.processors, r.primary_key, b.number, b.spec, t.mpl, t.low, t.high "
        "FROM thrashing_point t JOIN batchset b ON b.id = t.batchset JOIN run r ON r.id = b.run "
        "WHERE r.experiment = ? "
        "AND t.id IN (SELECT MAX(id) FROM thrashing_point GROUP BY batchset) "
        "ORDER BY r.number, b.number",
        (experiment,),
    ).fetchall()
    if not found:
        yield "Not analysed: `tidegate lab tap` was not run."
        return
    body = []
    for (subject,), points in grouped(found, "subject").items():
        thrashing = [point["mpl"] for point in points if point["mpl"] is not None]
        mean = number(statistics.mean(thrashing)) if thrashing else "–"
        spread = f"{min(thrashing)}–{max(thrashing)}" if thrashing else "–"
        body.append((subject, len(points), len(thrashing), mean, spread))
    yield table(["subject", "batchsets kept", "thrash", "mean TP", "lowest–highest TP"], body)
    yield from curves_in_short(connection, experiment)


def curves_in_short(connection, experiment):
    """Every curve in a line, where there are not too many."""
    groups = grouped(executions(connection, experiment), "run", "batchset")
    if len(groups) > 12:
        return
    levels = sorted({row["mpl"] for rows in groups.values() for row in rows})
    body = []
    for rows in groups.values():
        batches = grouped(rows, "mpl")
        tps = {mpl: statistics.mean(e["tps"] for e in es) for (mpl,), es in batches.items()}
        body.append((run_name(rows[0]), *(number(tps.get(mpl), 4) for mpl in levels)))
    yield table(["tps at MPL", *map(str, levels)], body)


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
