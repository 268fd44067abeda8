"""Who measured: in frames, as a block of models, and as a warning of the report."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import edit

from tidegate_analysis import estimate, load
from tidegate_analysis.errors import SampleError
from tidegate_analysis.examples import ExampleDesign, write_store
from tidegate_analysis.model import study
from tidegate_analysis.report import _header
from tidegate_analysis.report._view import View


def two_hosts(path: Path, runs: str) -> Path:
    """Write a store whose runs of a condition were measured by another host."""
    return edit(
        write_store(path, ExampleDesign(repetitions=2)),
        "INSERT INTO machine VALUES (2, 'beta', 'none', 8, 16384, 'none')",
        f"UPDATE start SET machine = 2 WHERE run IN ({runs})",
        # A batchset of two hosts has no series of its own in a store of before version 5.
        f"UPDATE series SET host = 'beta' WHERE batchset IN "
        f"(SELECT id FROM batchset WHERE run IN ({runs}))",
    )


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose runs with primary keys are the second host's."""
    return two_hosts(tmp_path / "s.db", "SELECT id FROM run WHERE primary_key = 1")


def test_frames_name_the_host(store: Path) -> None:
    """The host is in every frame of what was measured, and in those that are derived."""
    results = load(store)
    for frame in (
        results.executions(),
        results.attempts(),
        results.kinds(),
        results.intervals(run=1),
        results.histograms(run=1, batchset=1),
        results.curves(),
        results.samples(),
    ):
        assert set(frame["host"]) <= {"example", "beta"}
    keys = results.curves().groupby("primary_key")["host"].unique()
    assert [list(hosts) for hosts in keys] == [["example"], ["beta"]]


def test_what_no_longer_counts_is_in_attempts_only(store: Path) -> None:
    """A later series of another host takes the place of the one before."""
    before = load(store)
    measured = before.executions(run=1, batchset=1)
    edit(store, "INSERT INTO series (batchset, number, host) VALUES (1, 2, 'beta')")
    results = load(store)
    assert results.executions(run=1, batchset=1)["tps"].isna().all()
    for frame in (results.intervals, results.kinds, results.histograms):
        assert frame(run=1, batchset=1).empty
        assert len(frame(run=1)) < len(getattr(before, frame.__name__)(run=1)) + 1
    outcomes = results.attempts(run=1, batchset=1)["outcome"]
    assert list(outcomes) == ["superseded"] * len(measured)
    # Without a condition, too.
    assert not results.intervals().merge(measured[["execution"]], on="execution").size


def test_hosts_are_blocks() -> None:
    """A difference between hosts is no effect of what they happened to measure."""
    random = np.random.default_rng(11)
    n = 400
    host = random.choice(["alpha", "beta"], n)
    x = random.normal(size=n) + (host == "beta")
    y = 2 * x + 5 * (host == "beta") + random.normal(size=n)
    samples = pd.DataFrame({"x": x, "y": y, "host": host, "dbms": "one"})
    naive = estimate.regress(samples, "y", ["x"])
    blocked = estimate.regress(samples, "y", ["x"], block="host")
    assert naive.raw.low[0] > 2.5
    assert blocked.raw.low[0] < 2 < blocked.raw.high[0]
    assert blocked.explained.parameters == naive.explained.parameters + 1
    # As least squares with an indicator says.
    columns = np.column_stack([x, np.ones(n), host == "beta"]).astype(float)
    expected = np.linalg.lstsq(columns, y, rcond=None)[0][0]
    assert blocked.raw.coefficients[0] == pytest.approx(expected)


def test_a_factor_that_is_the_hosts_is_refused_with_its_reason(store: Path) -> None:
    """Nothing separates them, so nothing is estimated."""
    samples = load(store).samples()
    reads = samples[(samples["mode"] == "read") & samples["thrashed"]]
    with pytest.raises(SampleError, match="`PK` cannot be told from `host`"):
        estimate.fit(study("refined, read"), reads, block="host")
    assert estimate.fit(study("refined, read"), reads).n == len(reads)


def test_the_report_warns(store: Path) -> None:
    """Hosts, and what cannot be told from them, are said at the report's head."""
    edit(
        store,
        "INSERT INTO tap_count VALUES "
        "(1, '1', 'confounded_with_host', 'primary_key', 'factor', NULL, 1, 1, NULL)",
    )
    said = " ".join(_header.missing(View(load(store), 1)))
    assert "2 hosts measured: beta and example" in said
    assert "`primary_key` cannot be told from the hosts" in said
    assert "Several hosts measured" not in said
