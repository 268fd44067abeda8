"""What the study's pipeline costs on its published design: 70,000 raw executions, one command.

Lets `tidegate lab run` simulate the published preset of the confirmatory experiment, which gives a
store without analysis. A simulated DBMS shows no effect of keys, so a model would have nothing to
estimate: five names of DBMSs and throughput with planted truth (`examples`) take the place of what
was simulated. Then ``tidegate report 1``, which applies the analysis protocol, estimates, draws and
writes all, is run in a process of its own; that it wrote Tables 5 to 10 and Fig. 6 is looked at,
and time and memory are printed as Markdown. The order is two minutes and 2 GiB.

    cd analysis && .venv/bin/python benchmarks/published_design.py --tidegate PATH

Intervals within executions stay as simulated. A store of one's own is measured with ``--store``: on
a copy, so that it stays as it was.
"""

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidegate_analysis import examples

#: What was ordered.
MOST_S: Final = 120.0
MOST_MIB: Final = 2048.0

EXPERIMENT: Final = Path(__file__).parents[2] / "experiments" / "thrashing-confirmatory.toml"
#: Names that the laboratory knows: of these DBMSs nothing is measured here.
NAMES: Final = ("postgres", "mariadb", "sqlite", "firebird", "embedded")
#: Where a report has what the study has, in its directory.
PARTS: Final = {
    "Tables 5 to 7": "data/1-checks.csv",
    "Table 8": "data/1-steps.csv",
    "Table 9": "data/1-causal-hypotheses-read.csv",
    "Table 10": "data/1-causal-hypotheses-update.csv",
    "Fig. 6(a)": "figures/1-causal-fit-read.svg",
    "Fig. 6(b)": "figures/1-causal-fit-update.svg",
}
#: What of a measurement is planted, and of the kinds of its transactions.
MEASURED: Final = ("transactions", "tps", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")
KINDS: Final = ("workload", "kind", "committed", "mean_ms", "p50_ms", "p95_ms", "p99_ms", "max_ms")


@dataclass(frozen=True)
class Cost:
    """What a command took with its children.

    - wall_s, cpu_s: Seconds by the clock, and of processors.
    - largest_mib: Peak of its largest process.
    - all_mib: The peaks of its processes added up: at no time more than that.
    """

    wall_s: float
    cpu_s: float
    largest_mib: float
    all_mib: float


def simulated(tidegate: Path, store: Path, *, is_small: bool) -> None:
    """Make a store of an experiment with planted truth, not analysed."""
    preset = [] if is_small else ["--preset", "published"]
    subjects = ",".join(["simulated"] * len(NAMES))
    command = [str(tidegate), "lab", "run", str(EXPERIMENT), *preset, "--subject", subjects]
    with (store.parent / "run.txt").open("w") as log:
        status = subprocess.run(
            [*command, "--store", str(store)], check=False, stdout=log, stderr=log
        ).returncode
    if status:
        sys.exit(f"{' '.join(command)} ended with {status}")
    with closing(sqlite3.connect(store)) as connection:
        design = _design(connection)
        planted = examples.write_store(store.parent / "planted.db", design, analysed=False)
        connection.execute("ATTACH ? AS planted", (str(planted),))
        with connection:
            _plant(connection)
        connection.execute("DETACH planted")
    planted.unlink()


def _design(connection: sqlite3.Connection) -> examples.ExampleDesign:
    """Return what the experiment of a store varies."""

    def values(sql: str) -> list[float]:
        return [row[0] for row in connection.execute(sql)]

    def spec(key: str, of: str) -> tuple[float, ...]:
        one = f"json_extract(spec, '$.{key}')"
        where = f"json_extract(spec, '$.{of}') > 0"
        return tuple(values(f"SELECT DISTINCT {one} FROM batchset WHERE {where} ORDER BY 1"))

    keys = values("SELECT DISTINCT primary_key FROM run ORDER BY 1 DESC")
    processors = values("SELECT DISTINCT processors FROM run ORDER BY 1")
    return examples.ExampleDesign(
        subjects=NAMES,
        processors=tuple(map(int, processors)),
        primary_key=tuple(map(bool, keys)),
        read_sf=spec("sf", "reads"),
        update_sf=spec("sf", "updates"),
        rose=spec("rose", "rows"),
        mpl=tuple(map(int, values("SELECT DISTINCT mpl FROM execution ORDER BY 1"))),
        repetitions=int(values("SELECT max(repetition) FROM execution")[0]),
    )


def _plant(connection: sqlite3.Connection) -> None:
    """Give runs the names of DBMSs, and executions what the other store has of them."""
    # A store lets nobody change its results; this one is of nobody's results.
    of_triggers = "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger'"
    guards = connection.execute(of_triggers).fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER main.{name}")
    connection.execute("UPDATE experiment SET subjects = ?", (",".join(NAMES),))
    each = connection.execute("SELECT count(*) FROM run").fetchone()[0] // len(NAMES)
    for place, name in enumerate(NAMES):
        of = (name, place * each + 1, (place + 1) * each)
        connection.execute("UPDATE run SET subject = ? WHERE number BETWEEN ? AND ?", of)
    # Both plans number runs and batchsets alike; executions are in an order of their own.
    # A table with a key, as SQLite would look through all of one store for each row of the other.
    connection.execute("CREATE TEMP TABLE planned (batch TEXT PRIMARY KEY, other INTEGER NOT NULL)")
    connection.execute(f"INSERT INTO planned {_executions('planted')}")
    connection.execute(
        "CREATE TEMP TABLE pair AS SELECT here.attempt, planned.other "
        f"FROM ({_executions('main')}) here JOIN planned USING (batch)"
    )
    connection.execute("CREATE UNIQUE INDEX temp.of_attempt ON pair (attempt)")
    for table, columns in (("measurement", MEASURED), ("kind", KINDS)):
        values = ", ".join(f"{column} = there.{column}" for column in columns)
        done = connection.execute(
            f"UPDATE main.{table} SET {values} FROM temp.pair, planted.{table} there "
            f"WHERE pair.attempt = {table}.attempt AND there.attempt = pair.other"
        ).rowcount
        rows = connection.execute(f"SELECT count(*) FROM main.{table}").fetchone()[0]
        if done != rows:
            sys.exit(f"{done} of {rows} rows of {table} have a planted value: designs differ")
    for _, guard in guards:
        connection.execute(guard)


def _executions(store: str) -> str:
    """Return a query of attempts, by what both stores call a batch execution."""
    place = "r.number || ' ' || b.number || ' ' || x.mpl || ' ' || x.repetition"
    return (
        f"SELECT {place} AS batch, m.attempt FROM {store}.measurement m "
        f"JOIN {store}.execution x ON x.id = m.execution "
        f"JOIN {store}.batchset b ON b.id = x.batchset JOIN {store}.run r ON r.id = b.run"
    )


def measured(command: list[str]) -> Cost:
    """Run a command, and return what it took."""
    environment = {"TIDEGATE_PYTHON": sys.executable} | os.environ
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
    peaks: dict[int, float] = {}
    while True:
        for pid in _family(process.pid):
            peaks[pid] = max(peaks.get(pid, 0.0), _peak_mib(pid))
        ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    wall_s = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    # Of the process and of children it waited for; Linux gives the largest one's peak in KiB.
    largest = used.ru_maxrss / 1024
    return Cost(wall_s, used.ru_utime + used.ru_stime, largest, max(sum(peaks.values()), largest))


def _family(pid: int) -> list[int]:
    """Return a process and all that it started, as far as they live."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(one for child in children for one in _family(int(child)))]


def _peak_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = [line.split()[1] for line in lines if line.startswith("VmHWM")]
    return float(found[0]) / 1024 if found else 0.0


def _counted(store: Path) -> dict[str, int]:
    """Return how many rows of raw results there are, and whether they were analysed."""
    with closing(sqlite3.connect(store)) as connection:
        return {
            what: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            for what, table in (
                ("batchset instances", "batchset"),
                ("batch executions", "measurement"),
                ("intervals", "interval_seen"),
                ("analyses before", "analysis"),
            )
        }


def _markdown(counts: dict[str, int], cost: Cost, parts: dict[str, bool]) -> str:
    def verdict(value: float, most: float) -> str:
        return "held" if value < most else "missed"

    rows = [(what, f"{count:,}", "", "") for what, count in counts.items()]
    rows += [
        ("wall time", f"{cost.wall_s:.1f} s", f"{MOST_S:g} s", verdict(cost.wall_s, MOST_S)),
        ("processor time", f"{cost.cpu_s:.1f} s", "", ""),
        ("peak memory, largest process", f"{cost.largest_mib:,.0f} MiB", "", ""),
        ("peak memory, processes added up", f"{cost.all_mib:,.0f} MiB", f"{MOST_MIB:,.0f} MiB",
         verdict(cost.all_mib, MOST_MIB)),
    ]  # fmt: skip
    rows += [
        (what, "written" if is_there else "missing", "", "") for what, is_there in parts.items()
    ]
    lines = [" | ".join(("", *row, "")).strip() for row in rows]
    head = ["| `tidegate report 1` | found | ordered | |", "| --- | --- | --- | --- |"]
    return "\n".join([*head, *lines])


def main() -> None:
    """Make or copy a store, run the command on it, print what it took."""
    about = argparse.ArgumentParser(description="Cost of the published design's pipeline.")
    about.add_argument("--tidegate", type=Path, required=True, help="the program, a release build")
    about.add_argument("--store", type=Path, help="a store with experiment 1, instead of a new one")
    about.add_argument("--small", action="store_true", help="the file's default: only to try this")
    about.add_argument("--keep", type=Path, help="a new directory for the store and the report")
    asked = about.parse_args()
    if asked.keep and asked.keep.exists():
        about.error(f"{asked.keep} is there already: name a directory that is not")
    with tempfile.TemporaryDirectory() as folder:
        directory = asked.keep or Path(folder)
        directory.mkdir(parents=True, exist_ok=not asked.keep)
        store = directory / "published.db"
        if asked.store:
            shutil.copyfile(asked.store, store)
        else:
            simulated(asked.tidegate, store, is_small=asked.small)
        counts, out = _counted(store), directory / "report"
        command = [str(asked.tidegate), "report", "1", "--store", str(store), "--out", str(out)]
        cost = measured(command)
        parts = {what: (out / name).exists() for what, name in PARTS.items()}
        print(_markdown(counts, cost, parts))


if __name__ == "__main__":
    main()
