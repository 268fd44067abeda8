"""Make `store.sql` and the exports beside it: `python make.py PATH-OF-TIDEGATE`.

The store is what the laboratory makes of `tiny.toml` on the simulated subject, analysed twice, with
rows added that a simulation does not have: failures, troubles with awkward texts, limits, classes,
trees, a violated condition, executions that took too long, one that is not done. The exports are
the laboratory's own, so that what reads both is held to what it writes.
"""

import gzip
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

ADDED = """
INSERT INTO attempt VALUES (9001, 1, 2, 1, -1, 1700000000000000);
INSERT INTO failure VALUES (9001, 'the subject said "no", and' || char(10) || 'went away');
INSERT INTO attempt VALUES (9002, 2, 2, 1, 9223372036854775807, 1700000000000001);
INSERT INTO trouble VALUES (1, 'error', '40001', 7);
INSERT INTO trouble VALUES (1, 'error', '', 1);
INSERT INTO trouble VALUES (1, 'conflict', 'ä, "quoted" | and' || char(13) || char(10), 2);
INSERT INTO trouble VALUES (1, 'conflict', 'Z', 3);
INSERT INTO trouble VALUES (2, 'other DBMS', 'NULL', 1);
INSERT INTO limit_seen VALUES (1, 1, 1.0, 1.0, 8, 16, 'up, since tps rose', 101.25, 7.5);
INSERT INTO limit_seen VALUES (1, 2, 2.0, 1.0, 16, 8, '', 1e-9, 15.0);
INSERT INTO class_seen VALUES (1, 'normal', 10, 1.5, 1.0, 2.0, 3.0, 4.0);
INSERT INTO class_seen VALUES (1, 'high', 1, 0.1, 0.1, 0.1, 0.1, 0.30000000000000004);
INSERT INTO tree_seen VALUES (1, 1, 'orders', 0.0, 3, 90, 0.5, 10, 2, 1, '[0.5,0.25]');
INSERT INTO tree_seen VALUES (1, 2, 'orders', 1.0, 4, 91, 0.75, 20, 3, 2, NULL);
INSERT INTO consistency (start, batchset, condition, violation)
VALUES (1, 1, 'sums agree', 'they differ by 1');
DROP TRIGGER measurement_taken_no_update;
UPDATE measurement_taken SET seconds = 20
WHERE execution IN (SELECT id FROM execution WHERE batchset = 2 AND mpl = 128)
OR execution = (SELECT MIN(id) FROM execution WHERE batchset = 3);
"""

#: What belongs to an attempt that measured. One execution loses its own: it is still to be done.
DONE = ("kind", "interval_seen", "interval_kind", "measurement_taken", "attempt")
UNDONE = "SELECT MAX(id) FROM execution WHERE batchset = 2 AND mpl = 128"


def main(tidegate: str) -> None:
    """Write all files anew."""
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store.db"

        def lab(*words: str) -> None:
            subprocess.run(
                [tidegate, "lab", *words, "--store", str(store)], check=True, capture_output=True
            )

        lab("run", str(HERE / "tiny.toml"), "--preset", "longer")
        lab("tap", "1")
        connection = sqlite3.connect(store)
        connection.executescript(ADDED)
        attempt = f"SELECT attempt FROM measurement WHERE execution = ({UNDONE})"
        (number,) = connection.execute(attempt).fetchone()
        for table in DONE:
            key = "id" if table == "attempt" else "attempt"
            connection.execute(f"DROP TRIGGER {table}_no_delete")
            connection.execute(f"DELETE FROM {table} WHERE {key} = {number}")
        connection.commit()
        connection.close()
        lab("tap", "1")
        for form in ("csv", "parquet", "json"):
            shutil.rmtree(HERE / form, ignore_errors=True)
            lab("export", "1", "--format", form, "--out", str(HERE / form))
        connection = sqlite3.connect(store)
        # Triggers refuse changes, and a reader makes none.
        lines = [line for line in connection.iterdump() if "TRIGGER" not in line]
        connection.close()
    # Without a moment in it, so that the same store gives the same bytes.
    (HERE / "store.sql.gz").write_bytes(gzip.compress("\n".join(lines).encode(), mtime=0))


if __name__ == "__main__":
    main(sys.argv[1])
