"""Tables and targets as Markdown, from the runs' results.

A cell of a table is the median over the repetitions, with the lowest and the highest. A ratio is
one of medians; in brackets the lowest and highest ratio within one repetition, whose runs lie
close together in time. "Best" is the subject of highest median of the same measurement: the best
of several noisy medians is too high rather than too low, which makes the target stricter.
"""

import itertools
import statistics

from . import plan
from .script import head, row

AT_LEAST, AT_MOST = "≥", "≤"
# Targets, by number of clients.
TPCB_TO_DIRECT = {512: 3.3, 1000: 6.5}
PGBENCH_TO_DIRECT = {512: 2.5, 1000: 4.0}
TO_BEST_FIXED, TO_BEST_POOL, SMALL_TO_POOL = 0.90, 0.95, 0.90
CPU_TO_POOL = 1.0
CLIENT_US = {"tpcb": 70.0, "point-select": 7.0}
IDLE_KIB = 20.0


class RunResults:
    """The runs that succeeded, by cell and subject."""

    def __init__(self, runs):
        self.failed = [run for run in runs if run.get("failure")]
        self.good = [run for run in runs if not run.get("failure")]

    def of(self, part, key="tps", **wanted):
        """Subject name -> {repetition: figure} of one cell."""
        found = {}
        for run in self.good:
            if run["part"] == part and all(run[name] == value for name, value in wanted.items()):
                if run.get(key) is not None:
                    found.setdefault(run["subject"], {})[run["repetition"]] = run[key]
        return found

    def cells(self, part):
        """(clients, protocol) of a part, in the order they were run."""
        runs = (run for run in self.good if run["part"] == part)
        return list(dict.fromkeys((run["clients"], run["protocol"]) for run in runs))


def median(figures):
    """Of {repetition: figure}."""
    return statistics.median(figures.values())


def digits(value):
    """About four digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bracket(values, form):
    """Lowest and highest, when there are several values."""
    values = list(values)
    return f" [{form(min(values))}–{form(max(values))}]" if len(values) > 1 else ""


def spread(figures):
    """Median and range of {repetition: figure}, or a dash."""
    if not figures:
        return "–"
    return digits(median(figures)) + bracket(figures.values(), digits)


def ratio(one, other):
    """Ratio of the medians, and the ratios within each repetition."""
    pairs = [one[r] / other[r] for r in one if other.get(r)]
    return median(one) / median(other), pairs


def best(figures, prefix):
    """Name of the subject with the highest median among those whose names begin so, or None."""
    names = [name for name in figures if name.startswith(prefix)]
    return max(names, key=lambda name: median(figures[name]), default=None)


def table(columns, rows):
    """Markdown; the first column is text."""
    return "\n".join([head("l" + "r" * (len(columns) - 1), *columns), *(row(*r) for r in rows)])


def section(results, part):
    """One part's tables."""
    title = f"## {plan.PARTS[part]}"
    if part == "idle":
        return f"{title}\n\n{idle_table(results)}"
    blocks = [title]
    for clients, protocol in results.cells(part):
        mode = f", -M {protocol}" if protocol else ""
        rows = load_table(results, part, clients, protocol)
        blocks.append(f"### {clients} clients{mode}\n\n{rows}")
    paths = path_table(results, part)
    if paths:
        blocks.append(f"### Path of the limit\n\n{paths}")
    return "\n\n".join(blocks)


def load_table(results, part, clients, protocol):
    """One cell: a row per subject."""
    of = {key: results.of(part, key, clients=clients, protocol=protocol)
          for key in ("tps", "client_us", "proxy_us")}
    reference = next(iter(of["tps"]))
    columns = ["subject", "tps", f"to {reference}"]
    has_cpu = bool(of["client_us"])
    if has_cpu:
        columns += ["client CPU, µs/transaction", "pooler CPU, µs/transaction"]
    rows = []
    for name, tps in of["tps"].items():
        cells = [name, spread(tps), f"{ratio(tps, of['tps'][reference])[0]:.2f}"]
        if has_cpu:
            cells += [spread(of["client_us"].get(name)), spread(of["proxy_us"].get(name))]
        rows.append(cells)
    return table(columns, rows)


def path_table(results, part):
    """Limits of the runs under automatic control."""
    rows = []
    for run in results.good:
        limits = run.get("path")
        if run["part"] != part or not run["automatic"] or not limits:
            continue
        measured = limits["measured"]
        held = f"{statistics.median(measured):g}" + bracket(measured, str) if measured else "–"
        rows.append([f"{run['clients']} {run['protocol']}".strip(), run["subject"],
                     run["repetition"] + 1, collapsed(limits["warmup"]), collapsed(measured), held])
    columns = ["clients", "subject", "repetition", "warm-up", "measured", "held, median"]
    return table(columns, rows) if rows else ""


def collapsed(limits):
    """Limits interval by interval, repeated ones as 8×3."""
    groups = ((limit, len(list(same))) for limit, same in itertools.groupby(limits))
    return " ".join(f"{limit}×{count}" if count > 1 else str(limit) for limit, count in groups)


def idle_table(results):
    """Memory with idle clients."""
    rows = [[run["subject"], f"{run['clients']:,}", f"{run['before_kib']:,}",
             f"{run['after_kib']:,}", f"{run['kib_per_client']:.1f}"]
            for run in results.good if run["part"] == "idle"]
    return table(["subject", "clients", "before, KiB", "with them, KiB", "KiB per client"], rows)


def target(name, measured, sign, wanted, pairs=()):
    """One row of the table of targets."""
    met = measured >= wanted if sign == AT_LEAST else measured <= wanted
    within = bracket(pairs, "{:.2f}".format)
    return [name, f"{measured:.2f}{within}", f"{sign} {wanted:g}", "met" if met else "**missed**"]


def compare(name, figures, one, other, sign, wanted):
    """A target on the ratio of two subjects; no row when one of them has no figure."""
    if one not in figures or other not in figures:
        return []
    middle, pairs = ratio(figures[one], figures[other])
    return [target(name, middle, sign, wanted, pairs)]


def tpcb_targets(results):
    """The start limit with the lowest median stands for automatic control."""
    for clients, wanted in TPCB_TO_DIRECT.items():
        figures = results.of("tpcb", clients=clients)
        starts = [name for name in figures if name.startswith("Tidegate from")]
        if not starts:
            continue
        worst = min(starts, key=lambda name: median(figures[name]))
        others = [("direct", wanted), (best(figures, "Tidegate fixed"), TO_BEST_FIXED),
                  (best(figures, "PgBouncer"), TO_BEST_POOL)]
        for other, bound in others:
            kind = "" if other == "direct" else " (the best)"
            name = f"TPC-B, {clients} clients: {worst} (the worst start) / {other}{kind}"
            yield from compare(name, figures, worst, other, AT_LEAST, bound)


def client_targets(results):
    """Our own client's CPU time where it is highest."""
    for workload, wanted in CLIENT_US.items():
        rows = {}
        for run in results.good:
            if run["workload"] == workload and run.get("client_us"):
                key = f"{run['clients']} clients, {run['subject']}"
                rows.setdefault(key, {})[run["repetition"]] = run["client_us"]
        if rows:
            worst = max(rows, key=lambda key: median(rows[key]))
            name = f"own client's CPU, µs a {workload} transaction, at its highest ({worst})"
            yield target(name, median(rows[worst]), AT_MOST, wanted)


def targets(results):
    """Every target of which there are figures."""
    yield from tpcb_targets(results)
    for clients, wanted in PGBENCH_TO_DIRECT.items():
        name = f"TPC-B by pgbench, {clients} clients: Tidegate / direct"
        figures = results.of("pgbench", clients=clients)
        yield from compare(name, figures, "Tidegate", "direct", AT_LEAST, wanted)
    for _, mode in results.cells("small"):
        name = f"pgbench -S -M {mode}, 4 clients: Tidegate / PgBouncer 20"
        figures = results.of("small", protocol=mode)
        yield from compare(name, figures, "Tidegate", "PgBouncer 20", AT_LEAST, SMALL_TO_POOL)
    for clients, _ in results.cells("cpu"):
        figures = results.of("cpu", "proxy_us", clients=clients)
        for size in (20, 4):
            one, other = plan.fixed(size).name, plan.pool(size).name
            name = f"pooler's CPU, point select, {clients} clients: {one} / {other}"
            yield from compare(name, figures, one, other, AT_MOST, CPU_TO_POOL)
    yield from client_targets(results)
    for run in (run for run in results.good if run["part"] == "idle"):
        name = f"KiB of resident memory per idle client, {run['clients']:,} clients"
        yield target(name, run["kib_per_client"], AT_MOST, IDLE_KIB)


def troubles(results):
    """Runs that failed, and what went wrong in those that did not."""
    said = [(run, f"failed: {run['failure']}") for run in results.failed]
    said += [(run, run["complaints"]) for run in results.good if run.get("complaints")]
    return "\n".join(
        f"- {run['part']}, {run['clients']} clients, {run['subject']}, repetition "
        f"{run['repetition'] + 1}: {' '.join(what.split())}" for run, what in said)


def document(runs, facts, notes):
    """The whole report."""
    results = RunResults(runs)
    blocks = ["# Tidegate beside other ways to the database",
              "\n".join(f"- {name}: {value}" for name, value in facts.items()),
              *notes, " ".join(__doc__.split("\n\n", 1)[1].split())]
    blocks += [section(results, part) for part in plan.PARTS
               if any(run["part"] == part for run in results.good)]
    blocks += ["## Targets", table(["target", "measured", "wanted", ""], list(targets(results)))]
    if found := troubles(results):
        blocks += ["## Troubles", found]
    return "\n\n".join(blocks) + "\n"
