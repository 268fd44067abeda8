"""Results of the laboratory as pandas frames.

Each table of ``docs/results.md`` ("Exports") is a method with exactly its columns, sorted by its
keys, and the same from a store as from its export. Where a whole number may be NULL its column is
of type float64 with NaN, but for seeds, which have 64 bits and are `Int64`; text that is NULL is
`None`.

Two frames are derived. `Results.samples` has a row for each batchset instance that the analysis
protocol retained: what statistics are made of. `Results.curves` has a row for each batch: what
curves are drawn from, without the executions that the latest analysis dropped.

Limits: a frame is as large as what is asked for. The published design with intervals of a second
has 8.4 million of them (0.8 GB), and of latencies in histograms many times more: ask for one run
or one batchset of those.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import pandas as pd
import pyarrow as pa
from scipy import stats

from tidegate_analysis import shapes
from tidegate_analysis.errors import SampleError, StoreError
from tidegate_analysis.store import TABLES, ExportTable, Progress, Selection, Source, open_source

_BATCHSET: Final = ["experiment", "run", "batchset"]
_BATCH: Final = [*_BATCHSET, "mpl"]
#: Columns of executions with the weights of the kinds that the study's workload draws from.
_MIX: Final = ("reads", "updates", "changes", "joins")


def load(
    source: str | Path | None = None,
    experiment: int | None = None,
    *,
    progress: Progress | None = None,
) -> "Results":
    """Open a store, or the export of an experiment. Nothing but the experiments is read yet.

    - source: The path of a store of SQLite, ``postgres://user:password@host:port/database``, or the
      directory of a `tidegate lab export` in Parquet, CSV or JSON. `None` is what the environment
      variable ``TIDEGATE_STORE`` names.
    - experiment: The number of the only experiment that is wanted; `None` is all.
    - progress: Told the table and the number of its rows that have been read, now and then.

    Raises `StoreError`: the source is not there, is no store, is of a version not in
    `store.VERSIONS`, is empty, or does not have the experiment.
    """
    return Results(open_source(source), experiment, progress)


def mode(mix: Mapping[str, Any]) -> str | None:
    """Return the study's group that a mix is of: ``read``, ``update``, or `None` for any other.

    It is of a group where it draws nothing but reads, or nothing but updates.

    - mix: Weights of `reads`, `updates`, `changes` and `joins`, as a row of executions has them.
    """
    drawn = [kind for kind in _MIX if (mix.get(kind) or 0) > 0]
    return {"reads": "read", "updates": "update"}.get(drawn[0]) if len(drawn) == 1 else None


class ExecutionRows(Protocol):
    """A method that gives rows of executions, of some or all of them."""

    def __call__(
        self,
        experiment: int | None = None,
        *,
        run: int | None = None,
        batchset: int | None = None,
    ) -> pd.DataFrame:
        """Return the rows of an experiment, a run of it, or a batchset of each run."""
        ...


def _of_executions(table: str, doc: str) -> ExecutionRows:
    """Return the method of `Results` for a table of executions."""

    def rows(
        self: "Results",
        experiment: int | None = None,
        *,
        run: int | None = None,
        batchset: int | None = None,
    ) -> pd.DataFrame:
        return self._table(table, experiment, run, batchset)

    rows.__name__, rows.__doc__ = table, doc
    return rows  # type: ignore[return-value]


class ExperimentRows(Protocol):
    """A method that gives rows of an experiment, or of all that were loaded."""

    def __call__(self, experiment: int | None = None) -> pd.DataFrame:
        """Return the rows of an experiment."""
        ...


def _of_experiment(table: str, doc: str) -> ExperimentRows:
    """Return the method of `Results` for a table of experiments."""

    def rows(self: "Results", experiment: int | None = None) -> pd.DataFrame:
        return self._table(table, experiment)

    rows.__name__, rows.__doc__ = table, doc
    return rows  # type: ignore[return-value]


class Results:
    """The tables of a store or an export; see `load`.

    Every method takes the number of an experiment, or `None` for all that were loaded. Tables of
    executions also take the number of a run, and of a batchset in each run.
    """

    def __init__(
        self, source: Source, experiment: int | None = None, progress: Progress | None = None
    ) -> None:
        self._source = source
        self._only = experiment
        self._progress = progress
        self._experiments = self._frame("experiment", Selection(experiment))
        if self._experiments.empty:
            raise self._no_experiment(experiment)

    def __repr__(self) -> str:
        """Name the source and its experiments."""
        return f"Results({self.name!r}, experiments {self.experiments})"

    @property
    def name(self) -> str:
        """The source's name, without a password."""
        return self._source.name

    @property
    def version(self) -> int:
        """The version of the store's schema, one of `store.VERSIONS`."""
        return self._source.version

    @property
    def experiments(self) -> list[int]:
        """The numbers of the experiments."""
        return [int(number) for number in self._experiments["experiment"]]

    def experiment(self, experiment: int | None = None) -> pd.DataFrame:
        """Return the experiments: their file, seed, machine and times."""
        found = self._experiments
        wanted = self._selection(experiment).experiment
        chosen = found if wanted is None else found[found["experiment"] == wanted]
        return chosen.reset_index(drop=True)

    executions = _of_executions(
        "executions", "Return all executions that are planned, and what was measured of those done."
    )
    attempts = _of_executions(
        "attempts", "Return each time that an execution was tried, and how it ended."
    )
    kinds = _of_executions("kinds", "Return each kind of transaction of each execution.")
    intervals = _of_executions("intervals", "Return each interval of each execution.")
    interval_kinds = _of_executions(
        "interval_kinds", "Return each kind of transaction in each interval; nothing in version 1."
    )
    histograms = _of_executions(
        "histograms", "Return each latency seen in an interval, and how often. This is large."
    )
    limits = _of_executions("limits", "Return the decisions of controllers.")
    classes = _of_executions("classes", "Return what the clients of each scheduling class saw.")
    trees = _of_executions("trees", "Return the looks at the trees of the embedded engine.")
    troubles = _of_executions(
        "troubles", "Return errors, conflicts and other DBMSes that were running."
    )
    conditions = _of_experiment(
        "conditions", "Return the workloads' consistency conditions, and whether they held."
    )
    analyses = _of_experiment(
        "analyses", "Return the times that the analysis protocol was applied; none in version 1."
    )
    tap_counts = _of_experiment(
        "tap_counts", "Return what each step of each analysis counted; nothing in version 1."
    )
    tap_drops = _of_experiment(
        "tap_drops", "Return what each analysis dropped, and why; nothing in version 1."
    )
    thrashing_points = _of_experiment(
        "thrashing_points", "Return the thrashing points of all analyses."
    )

    thrashing_posteriors = _of_experiment(
        "thrashing_posteriors",
        "Return how probable each outcome of each thrashing point is; nothing before version 7.",
    )

    def latest_points(self, experiment: int | None = None) -> pd.DataFrame:
        """Return the thrashing points of each experiment's latest analysis.

        Rows of schema version 1 do not name their analysis. Where an experiment has no other, the
        latest row of each batchset is taken.
        """
        points = self.thrashing_points(experiment)
        latest = self._latest(experiment)
        of_latest = points["analysis"] == points["experiment"].map(latest)
        never = ~points["experiment"].isin(latest.index)
        last = ~points.duplicated(_BATCHSET, keep="last")
        return points[of_latest | (never & last)].reset_index(drop=True)

    def latest_posteriors(self, experiment: int | None = None) -> pd.DataFrame:
        """Return the outcomes, with their probabilities, of the points of `latest_points`."""
        found = self.thrashing_posteriors(experiment)
        latest = found["point"].isin(self.latest_points(experiment)["id"])
        return found[latest].reset_index(drop=True)

    def latest_drops(self, experiment: int | None = None) -> pd.DataFrame:
        """Return what each experiment's latest analysis dropped, and why."""
        drops = self.tap_drops(experiment)
        of_latest = drops["analysis"] == drops["experiment"].map(self._latest(experiment))
        return drops[of_latest].reset_index(drop=True)

    def samples(
        self, experiment: int | None = None, *, executions: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return the retained batchset instances of the latest analysis, as `shapes.SAMPLES`.

        `mode` is what the function `mode` says; batchsets of other mixes, or of other workloads
        than the thrashing study's, are left out (`latest_points` has them). `numProcs` is what was
        planned, or what the DBMS was seen to have where all there are were asked for; it is missing
        where that could not be seen, as at a server that was there before. `TP` is infinite where
        throughput never fell, and the MPL below the fall where levels in between are missing; it
        lies from `low` on and below `high`. Where throughput fell from the lowest level that was
        planned `low` is 0, also of analyses before `tap v2`, which kept that level there: nothing
        is known of where it had held (left-censored). `ATPT` is the mean over all transactions of
        the retained executions; of analyses of schema version 1, which do not keep it, over all
        that were measured. The column `rule` is the rule's version by which TP was found; `host`
        is who measured it, as in `curves`.

        - experiment: Its number; `None` is all that were analysed.
        - executions: What `executions` gave for it, where that is at hand.

        Raises `SampleError`: there is no analysis, or nothing was retained.
        """
        points = self.latest_points(experiment)
        if points.empty:
            raise self._no_points(experiment)
        if executions is None:
            executions = self.executions(experiment)
        found = points.merge(_batchsets(executions), on=_BATCHSET, validate="one_to_one")
        mixes = zip(*(found[kind] for kind in _MIX), strict=True)
        found["mode"] = [mode(dict(zip(_MIX, mix, strict=True))) for mix in mixes]
        found = found[found["mode"].notna()].reset_index(drop=True)
        if found.empty:
            raise SampleError(
                f"none of the {len(points)} batchsets that were retained of "
                f"{self._of(experiment)} is of the thrashing study's reads or updates alone",
                "samples are made of experiments of the scenario `thrash` with one of the two: "
                "take one of those",
            )
        thrashed = found["high"].notna()
        table = found[_BATCHSET].assign(
            host=found["host"],
            dbms=found["subject"],
            mode=found["mode"],
            numProcs=_processors(found),
            PK=found["primary_key"],
            SF=found["sf_percent"],
            ROSE=found["rose_percent"],
            ATPT=found["atpt_ms"].fillna(found["atpt_measured"]),
            TP=_point(found),
            low=found["low"].where(~thrashed | (found["low"] > found["lowest_mpl"]), 0),
            high=found["high"].fillna(np.inf),
            thrashed=thrashed,
            rule=found["rule"],
        )
        return shapes.check(table, shapes.SAMPLES, f"samples of {self._of(experiment)}")

    def outcomes(self, samples: pd.DataFrame) -> pd.DataFrame | None:
        """Return what the thrashing points of samples may be, as `censored.regress` takes them.

        A row for each outcome of each sample: `sample`, its place in `samples` from 0; `low` and
        `high`, as in samples; `prior` and `probability`. `None` where a sample has no posterior:
        analysed before schema version 7.

        - samples: What `samples` gave, or some of its rows.
        """
        found = [self.latest_posteriors(int(number)) for number in samples["experiment"].unique()]
        places = samples[_BATCHSET].assign(sample=np.arange(len(samples)))
        table = places.merge(pd.concat(found), on=_BATCHSET)
        if table["sample"].nunique() < len(samples):
            return None
        table["high"] = table["high"].fillna(np.inf)
        return table[["sample", "low", "high", "prior", "probability"]]

    def curves(
        self, experiment: int | None = None, *, executions: pd.DataFrame | None = None
    ) -> pd.DataFrame:
        """Return throughput and latency against MPL, a row for each batch that was executed.

        Executions that the experiment's latest analysis dropped are left out. Columns: experiment,
        run, batchset, mpl, subject, processors (planned, or seen where all were asked for, missing
        where they could not be seen), primary_key, workload, `host` that measured it (several,
        separated by commas, only in stores of before schema version 5), `n` executions, `tps`
        their mean, `tps_sd` their standard deviation, `tps_low` and `tps_high` the 95 % confidence
        interval of the mean by Student's t (NaN, as the deviation, for n = 1), `mean_ms` over all
        transactions, `p50_ms`, `p95_ms` and `p99_ms` as means over the executions' percentiles,
        and `TP`: infinite where throughput never fell, NaN where the batchset was not analysed or
        not retained.

        - experiment: Its number; `None` is all.
        - executions: What `executions` gave for it, where that is at hand.
        """
        if executions is None:
            executions = self.executions(experiment)
        dropped = executions["execution"].isin(self.latest_drops(experiment)["execution"].dropna())
        done = executions[executions["attempt"].notna() & ~dropped]
        done = done.assign(
            processors=_processors(done),
            total_ms=done["mean_ms"] * done["transactions"],
        )
        table = done.groupby(_BATCH, as_index=False).agg(
            subject=("subject", "first"),
            processors=("processors", "first"),
            primary_key=("primary_key", "first"),
            workload=("workload", "first"),
            host=("host", _hosts),
            n=("tps", "size"),
            tps=("tps", "mean"),
            tps_sd=("tps", "std"),
            tps_low=("tps", "mean"),
            tps_high=("tps", "mean"),
            mean_ms=("total_ms", "sum"),
            p50_ms=("p50_ms", "mean"),
            p95_ms=("p95_ms", "mean"),
            p99_ms=("p99_ms", "mean"),
            transactions=("transactions", "sum"),
        )
        half = _half_width(table["n"].to_numpy(), table["tps_sd"].to_numpy())
        table["tps_low"] -= half
        table["tps_high"] += half
        table["mean_ms"] = table["mean_ms"] / table.pop("transactions").replace(0, np.nan)
        points = self.latest_points(experiment)
        points = points.assign(TP=_point(points))
        return table.merge(points[[*_BATCHSET, "TP"]], on=_BATCHSET, how="left")

    def _latest(self, experiment: int | None) -> "pd.Series[int]":
        """Return the number of each experiment's latest analysis."""
        return self.analyses(experiment).groupby("experiment")["analysis"].max()

    def _table(
        self,
        name: str,
        experiment: int | None,
        run: int | None = None,
        batchset: int | None = None,
    ) -> pd.DataFrame:
        wanted = self._selection(experiment).experiment
        return self._frame(name, Selection(wanted, run, batchset))

    def _frame(self, name: str, selection: Selection) -> pd.DataFrame:
        table = TABLES[name]
        return _to_frame(self._source.read(table, selection, self._progress), table, self.name)

    def _selection(self, experiment: int | None) -> Selection:
        if experiment is None:
            return Selection(self._only)
        if experiment not in self.experiments:
            raise self._no_experiment(experiment)
        return Selection(experiment)

    def _no_experiment(self, experiment: int | None) -> StoreError:
        if experiment is None:
            return StoreError(
                f"{self.name} has no experiment", "run one with `tidegate lab run FILE` first"
            )
        known = [int(n) for n in self._frame("experiment", Selection())["experiment"]]
        numbers = ", ".join(map(str, known)) or "none"
        return StoreError(
            f"{self.name} has no experiment {experiment}; it has {numbers}",
            "see `tidegate lab list` for their names",
        )

    def _no_points(self, experiment: int | None) -> SampleError:
        of = self._of(experiment)
        if self.analyses(experiment).empty:
            number = "EXPERIMENT" if experiment is None else experiment
            return SampleError(
                f"{of} was not analysed", f"apply the protocol with `tidegate lab tap {number}`"
            )
        return SampleError(
            f"the latest analysis of {of} retained no batchset",
            "see in `tap_drops` why they were dropped, and run the experiment longer",
        )

    def _of(self, experiment: int | None) -> str:
        number = self._only if experiment is None else experiment
        return self.name if number is None else f"experiment {number}"


def _point(points: pd.DataFrame) -> np.ndarray:
    """Return each thrashing point: ∞ where throughput never fell, else the MPL before the fall."""
    known = points["thrashing_point"].astype("float64").fillna(points["low"])
    return np.where(points["high"].notna(), known, np.inf)


def _batchsets(executions: pd.DataFrame) -> pd.DataFrame:
    """Return what is the same in all executions of a batchset, and ATPT over those measured."""
    executions = executions.assign(total_ms=executions["mean_ms"] * executions["transactions"])
    of_batchset = executions.groupby(_BATCHSET)
    same = ["subject", "processors_planned", "processors", "primary_key"]
    same += ["sf_percent", "rose_percent", *_MIX]
    found = of_batchset[same].first()
    found["host"] = of_batchset["host"].agg(_hosts)
    found["lowest_mpl"] = of_batchset["mpl"].min()
    sums = of_batchset[["total_ms", "transactions"]].sum()
    found["atpt_measured"] = sums["total_ms"] / sums["transactions"].replace(0, np.nan)
    return found.reset_index()


def _hosts(hosts: "pd.Series[str]") -> str | None:
    """Return the names of hosts, of several separated by commas; `None` where none is known."""
    return ", ".join(sorted(hosts.dropna().unique())) or None


def _processors(table: pd.DataFrame) -> "pd.Series[float]":
    """Return the processors planned, or else those seen: 0, which is "not seen", is missing."""
    planned, seen = table["processors_planned"], table["processors"]
    return planned.where(planned > 0, seen.where(seen > 0)).astype("float64")


def _half_width(n: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return half of the 95 % confidence interval of a mean, by Student's t."""
    # `ppf` is NaN without a degree of freedom, as the deviation is.
    return np.asarray(stats.t.ppf(0.975, n - 1) * sd / np.sqrt(n))


def _to_frame(found: pa.Table, table: ExportTable, source: str) -> pd.DataFrame:
    """Return the columns as pandas has them, giving up each one of Arrow's on the way."""
    columns = dict(zip(found.column_names, found.columns, strict=True))
    del found
    frame: dict[str, object] = {}
    for name, kind in table.columns.items():
        column = columns.pop(name)
        if kind == "whole" and column.null_count:
            raise StoreError(
                f"{source}: {table.name} has a row without `{name}`",
                "the store is damaged: use another copy, or its export",
            )
        if name == "seed":
            frame[name] = pd.array(column.to_pylist(), dtype="Int64")
        elif kind == "whole?":
            frame[name] = column.cast(pa.float64(), safe=False).to_numpy()
        elif kind == "text":
            frame[name] = column.to_pandas().astype(object).to_numpy()
        else:
            frame[name] = column.to_numpy()
        del column
    return pd.DataFrame(frame, copy=False)
