"""An experiment as the report looks at it: its frames, and what each batchset is called.

A batchset is called by what is not the same in all batchsets of its experiment: "embedded, 2
processors, SF 0.1 %" where the experiment varies these three. The same values, one column each, are
what the advice pairs batchsets by.

Where the experiment was analysed, what is drawn, fitted and advised is made of the executions that
its latest analysis left; the others were dropped for a violation, and would be the highest levels
more often than not.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd

from tidegate_analysis.errors import AnalysisError
from tidegate_analysis.report import _words as words
from tidegate_analysis.results import ExecutionRows, Results, mode
from tidegate_analysis.store.source import json_object

BATCHSET: Final = ["run", "batchset"]
BATCH: Final = [*BATCHSET, "mpl"]
#: Why a section is missing where `View.done` is empty.
NOTHING: Final = "no execution was measured, or the analysis protocol dropped all that were"


@dataclass(frozen=True)
class View:
    """An experiment of results. Frames are loaded when they are first looked at."""

    results: Results
    number: int

    @cached_property
    def about(self) -> Mapping[str, Any]:
        table = self.results.experiment(self.number)
        if table.empty:
            raise AnalysisError(
                f"experiment {self.number} is not in the store",
                "`tidegate lab list` shows those that are; give the number of one",
            )
        return {str(key): value for key, value in table.iloc[0].to_dict().items()}

    @cached_property
    def name(self) -> str:
        return str(self.about["name"])

    @cached_property
    def scenario(self) -> str:
        """Return what the experiment varies."""
        return str(self.about["scenario"])

    @cached_property
    def executions(self) -> pd.DataFrame:
        return self.results.executions(self.number)

    @cached_property
    def measured(self) -> pd.DataFrame:
        return self.executions[self.executions["tps"].notna()]

    @cached_property
    def dropped(self) -> pd.DataFrame:
        """Return why the latest analysis dropped executions; some for more than one reason."""
        drops = self.results.latest_drops(self.number)
        return drops[drops["execution"].notna()]

    @cached_property
    def done(self) -> pd.DataFrame:
        """Return the executions that were measured and not dropped."""
        return self.measured[~self.measured["execution"].isin(self.dropped["execution"])]

    @cached_property
    def batchsets(self) -> pd.DataFrame:
        """Return a row for each batchset: run, batchset, `label`, `subject`, and its values."""
        first = self.executions.drop_duplicates(BATCHSET).reset_index(drop=True)
        values = pd.DataFrame([_values(row) for row in records(first)], index=first.index)
        table = pd.concat([first[BATCHSET], values], axis=1)
        varied = [str(name) for name in values if len(values[name].astype(str).unique()) > 1]
        table["label"] = [
            ", ".join(text for name in varied if (text := _value_text(name, row[name])))
            or row["subject"]
            for row in records(values)
        ]
        repeated = table["label"].duplicated(keep=False)
        where = "run " + table["run"].astype(str) + ", batchset " + table["batchset"].astype(str)
        table.loc[repeated, "label"] += " (" + where[repeated] + ")"
        return table

    def own(self, row: Mapping[str, Any]) -> pd.DataFrame:
        is_own = (self.done["run"] == row["run"]) & (self.done["batchset"] == row["batchset"])
        own: pd.DataFrame = self.done[is_own]
        return own

    @cached_property
    def factors(self) -> list[str]:
        """Return the columns of `batchsets` that hold a batchset's values."""
        return [str(name) for name in self.batchsets if name not in (*BATCHSET, "label")]

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Return the batches, with their batchset's label and values."""
        if self.done.empty:
            return pd.DataFrame(columns=[*BATCH, "label", "tps", "n"])
        table = self.results.curves(self.number, executions=self.done)
        table = table[table["tps"].notna()]
        extra = [name for name in self.batchsets if name in BATCHSET or name not in table]
        merged = table.merge(self.batchsets[extra], on=BATCHSET, how="left")
        merged["TP"] = merged["TP"].astype("float64")
        return merged.sort_values(BATCH, kind="stable").reset_index(drop=True)

    @cached_property
    def has_curves(self) -> bool:
        """Return whether any batchset was measured at more than one level."""
        return bool((self.summary["levels"] > 1).any())

    @property
    def is_controlled(self) -> bool:
        """Return whether a controller sets the limit, so that a level is where it starts."""
        return self.scenario in ("autotune", "switch", "sensitivity")

    @cached_property
    def level(self) -> str:
        """Return what a level is called at an axis."""
        return "limit to start with" if self.is_controlled else "MPL"

    @cached_property
    def points(self) -> pd.DataFrame:
        """Return the latest thrashing point of each batchset that was retained."""
        return self.results.latest_points(self.number)

    @cached_property
    def posteriors(self) -> pd.DataFrame:
        """Return the outcomes of these points with their probabilities; none in older stores."""
        return self.results.latest_posteriors(self.number)

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Return a row for each batchset: where it is best, how it ends, where it thrashes.

        `loss` is that at the last level that was planned for the batchset: missing where it was not
        measured, or dropped, which befalls those first that lose most.
        """
        return _summary(self.curves, self.executions)

    def selected(self, frame: ExecutionRows, chosen: Sequence[int]) -> pd.DataFrame:
        """Return the rows of some executions of a frame that is too large to be loaded whole."""
        rows = self.done[self.done["execution"].isin(list(chosen))].drop_duplicates(BATCHSET)
        pairs = zip(rows["run"], rows["batchset"], strict=True)
        pieces = [frame(self.number, run=int(r), batchset=int(b)) for r, b in pairs]
        table = pd.concat(pieces, ignore_index=True)
        return table[table["execution"].isin(list(chosen))]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _summary(curves: pd.DataFrame, planned: pd.DataFrame) -> pd.DataFrame:
    """Return for each batchset its best batch, its last, and the lowest within 5 % of the best."""
    columns = [*BATCHSET, "label", "subject", "levels", "n", "best_mpl", "best_tps", "good_mpl"]
    if curves.empty:
        return pd.DataFrame(columns=[*columns, "good_tps", "last_mpl", "last_tps", "loss", "TP"])
    groups = curves.groupby(BATCHSET, sort=True)
    best = curves.loc[groups["tps"].idxmax()].set_index(BATCHSET)
    last = curves.loc[groups["mpl"].idxmax()].set_index(BATCHSET)
    top = groups["tps"].transform("max")
    good = curves[curves["tps"] >= 0.95 * top].drop_duplicates(BATCHSET).set_index(BATCHSET)
    table = pd.DataFrame(
        {
            "label": best["label"],
            "subject": best["subject"],
            "levels": groups["mpl"].nunique(),
            "n": groups["n"].min(),
            "best_mpl": best["mpl"],
            "best_tps": best["tps"],
            "good_mpl": good["mpl"],
            "good_tps": good["tps"],
            "last_mpl": last["mpl"],
            "last_tps": last["tps"],
            "TP": groups["TP"].first(),
        }
    )
    loss = 1 - table["last_tps"] / table["best_tps"].where(table["best_tps"] > 0)
    is_last = table["last_mpl"] == planned.groupby(BATCHSET)["mpl"].max().reindex(table.index)
    table["loss"] = loss.where(is_last)
    return table.reset_index()


#: How a value of a batchset is said in its name; `{}` is the value.
_VALUE_TEXTS: Final = {
    "subject": "{}",
    "workload": "{}",
    "mode": "{}",
    "numProcs": "{} processors",
    "PK": "PK {}",
    "isolation": "{}",
    "sf": "SF {} %",
    "rose": "ROSE {} %",
    "scale": "scale {}",
    "control": "{}",
    "priority": "{}",
    "then": "then {}",
    "buffer": "buffer {}",
    "split": "split {}",
    "clients": "{} clients",
    "arrivals": "arrivals {}",
    "settings": "settings {}",
}


def _value_text(name: str, value: Any) -> str:
    if value is None or value == "" or (isinstance(value, float) and np.isnan(value)):
        return ""
    if name == "numProcs" and value == 1:
        return "1 processor"
    if name == "PK":
        return "primary key" if value else "no primary key"
    if isinstance(value, float):
        value = words.value(value)
    return _VALUE_TEXTS.get(name, name.replace("_", " ") + " {}").format(value)


def _values(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a batchset under short names: its run's, workload's and treatment's."""
    workload, treatment = _json(row, "workload_values"), _json(row, "treatment")
    values: dict[str, Any] = {
        "subject": str(row["subject"]),
        "numProcs": int(row["processors_planned"] or 0),
        "PK": bool(row["primary_key"]),
        "isolation": row["isolation"] or "",
        "settings": _short(_json(row, "settings_planned")),
        "workload": str(row["workload"]),
        # Other mixes and workloads are groups of their own.
        "mode": mode(row) or str(row["workload"]),
    }
    if values["numProcs"] == 0:
        values["numProcs"] = "all"
    named = {"kind", "primary_key", "reads", "updates", "changes", "joins"}
    values |= {key: _short(value) for key, value in workload.items() if key not in named}
    return values | _treated(treatment)


def _treated(treatment: Mapping[str, Any]) -> dict[str, Any]:
    admission = treatment.get("admission") or {}
    aging = treatment.get("aging") or {}
    return {
        "control": admission.get("control") or "",
        "clients": admission.get("clients") or "",
        "arrivals": _short(treatment.get("arrivals") or ""),
        "priority": _priority(treatment.get("priority")),
        "buffer": treatment.get("buffer") or "",
        "split": aging.get("split") or "",
        "then": _then(treatment.get("exchange")),
    }


def _priority(priority: Mapping[str, Any] | None) -> str:
    """Return where transactions of the high class go first: at the gate, or inside a database."""
    if not priority:
        return ""
    names = {"is_given": "at the gate", "locks": "in lock queues", "processors": "on processors"}
    places = [text for name, text in names.items() if priority.get(name)]
    if not priority.get("locks") and not priority.get("processors"):
        return "priority given" if places else "priority not given"
    return f"priority {words.enumeration(places)}"


def _then(exchange: Any) -> str:
    """Return what the second half of an execution has instead, in few words."""
    if not exchange:
        return ""
    if not isinstance(exchange, dict):
        return str(exchange)
    ((what, value),) = exchange.items() if len(exchange) == 1 else (("", exchange),)
    if isinstance(value, dict):
        return " ".join(str(value[key]) for key in ("kind", "mix") if value.get(key))
    return f"{str(what).lower()} {value}"


def _short(value: Any) -> Any:
    if isinstance(value, dict | list):
        if not value:
            return ""
        return json.dumps(value, sort_keys=True).translate(str.maketrans("", "", '{}"[]'))
    return value


def _json(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    return json_object(row[name], f"`{name}` of execution {row['execution']}")
