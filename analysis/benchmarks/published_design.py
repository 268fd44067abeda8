"""How long the study's pipeline takes on its published design: 70,000 executions.

Writes a store with planted truth, runs ``tables`` and ``report`` on it, each in a process of its
own, and prints time and memory. The order is two minutes and 2 GiB for both together.

    cd analysis && .venv/bin/python benchmarks/published_design.py
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate_analysis import examples


@dataclass(frozen=True)
class Cost:
    """What a process took: seconds by the clock and of processors, and its largest memory."""

    wall_s: float
    cpu_s: float
    peak_mib: float

    def __str__(self) -> str:
        return f"{self.wall_s:6.1f} s wall  {self.cpu_s:6.1f} s CPU  {self.peak_mib:6.0f} MiB peak"


def measured(*words: str) -> Cost:
    """Run a command of the package, and return what it took."""
    command = [sys.executable, "-m", "tidegate_analysis", *words]
    began = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    # Linux gives the peak in KiB.
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def main() -> None:
    """Write the store, run both commands, print what they took."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        store = str(examples.write_store(directory / "published.db", examples.PUBLISHED))
        costs = []
        for command in ("tables", "report"):
            costs.append(measured(command, store, "1", "--out", str(directory / command)))
            print(f"{command:8}{costs[-1]}")
        both = Cost(
            sum(cost.wall_s for cost in costs),
            sum(cost.cpu_s for cost in costs),
            max(cost.peak_mib for cost in costs),
        )
        print(f"{'both':8}{both}")


if __name__ == "__main__":
    main()
