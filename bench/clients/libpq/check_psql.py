"""The checks with psql and pgbench: each is a script for them, and what they have to print."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "python"))

from checks import CHECKS, MEGABYTES, TEXT, Differs, check, equal, run  # noqa: E402

BOUND_S = 240
# Ends as the process, so that its own words are on standard output only.
PSQL = ["psql", "-X", "-w", "-At", "-q"]


def command(*arguments, stdin="", **environment):
    """Run a program; return its exit code, standard output and standard error."""
    done = subprocess.run(arguments, input=stdin, text=True, capture_output=True, timeout=BOUND_S,
                          env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def psql(script, *options, **environment):
    """Run a script by standard input, in which each line is sent by itself; stop at no error."""
    _, output, errors = command(*PSQL, *options, stdin=script, **environment)
    return output + errors


def shows(script, *wanted, **environment):
    """Compare what a script prints, line by line."""
    equal(psql(script, **environment).splitlines(), list(wanted))


@contextlib.contextmanager
def occupied(count=3):
    """Hold transactions of others while psql is asked over its standard input."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            other = stack.enter_context(Session())
            equal(other.ask("BEGIN; SELECT 1;"), ["1"])
        yield


class Session:
    """A psql that is asked one thing after the other."""

    def __enter__(self):
        self.process = subprocess.Popen(PSQL, text=True, stdin=subprocess.PIPE, bufsize=1,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(BOUND_S)
        self.process.stdout.close()

    def ask(self, script):
        """Return the lines that a script prints."""
        self.process.stdin.write(f"{script}\n\\echo the end\n")
        lines = []
        for line in self.process.stdout:
            if line == "the end\n":
                return lines
            lines.append(line.rstrip("\n"))
        raise Differs(f"psql ended: {lines}")


@check
def connect_():
    shows("SELECT current_user;\nSHOW application_name;\n", "postgres", "psql")
    shows("SHOW work_mem;\n", "5MB", PGOPTIONS="-c work_mem=5MB")


@check
def unknown_database():
    if 'FATAL:  database "nowhere" does not exist' not in (said := psql("", PGDATABASE="nowhere")):
        raise Differs(said)


@check
def query():
    shows("SELECT i, NULL, i::text FROM generate_series(1, 2) i;\n;\nSELECT 1 WHERE false;\n",
          "1||1", "2||2")
    shows("SELECT 1 AS a, 'x' AS b \\gset\n\\echo :a :b\n", "1 x")
    shows("SELECT 'SELECT ' || i FROM generate_series(1, 3) i \\gexec\n", "1", "2", "3")


@check
def multi_statement():
    code, output, _ = command(*PSQL, "-c", "SELECT 1; SELECT 2; SELECT 3")
    equal((code, output), (0, "1\n2\n3\n"))


@check
def describe():
    _, output, errors = command(*PSQL, "-c", "\\d pg_class", "-c", "\\dt *.*", "-c", "\\df now",
                                "-c", "\\l", "-c", "\\du", "-c", "\\dconfig work_mem")
    equal(errors, "")
    equal("relname" in output and "now" in output and "4MB" in output, True)


@check
def sql_prepare():
    with Session() as session:
        session.ask("PREPARE by_sql (int) AS SELECT $1 + 1;")
        with occupied():
            equal(session.ask("EXECUTE by_sql (41);"), ["42"])


@check
def transaction():
    shows("DROP TABLE IF EXISTS c_transaction;\nCREATE TABLE c_transaction (a int);\n"
          "BEGIN;\nINSERT INTO c_transaction VALUES (1);\nROLLBACK;\n"
          "BEGIN;\nINSERT INTO c_transaction VALUES (2);\nCOMMIT;\nTABLE c_transaction;\n", "2",
          PGOPTIONS="-c client_min_messages=warning")


@check
def savepoint():
    shows("\\set ON_ERROR_ROLLBACK on\nBEGIN;\nSELECT 1/0;\nSELECT 2;\nCOMMIT;\n", "2",
          "ERROR:  division by zero")


@check
def error():
    shows("\\set VERBOSITY verbose\nSELECT 1 FROM nowhere;\n\\echo :SQLSTATE :ERROR\n",
          "42P01 true", 'ERROR:  42P01: relation "nowhere" does not exist',
          "LINE 1: SELECT 1 FROM nowhere;", "                      ^",
          "LOCATION:  parserOpenTable, parse_relation.c:1392")


@check
def error_in_transaction():
    found = psql("BEGIN;\nSELECT 1/0;\nSELECT 1;\nROLLBACK;\nSELECT 2;\n").splitlines()
    equal(found, ["2", "ERROR:  division by zero",
                  "ERROR:  current transaction is aborted, commands ignored until end of "
                  "transaction block"])


@check
def copy_in():
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory, "rows")
        path.write_text("".join(f"{i}\ttext {i}\n" for i in range(100_000)))
        shows("SET client_min_messages = warning;\nDROP TABLE IF EXISTS c_copy;\n"
              "CREATE TABLE c_copy (a int, b text);\n"
              f"\\copy c_copy FROM '{path}'\nSELECT sum(a) FROM c_copy;\n", "4999950000")


@check
def copy_out():
    _, output, _ = command(*PSQL, "-c", "\\copy (SELECT generate_series(1, 100000)) TO STDOUT")
    equal(output.count("\n"), 100_000)


@check
def copy_abort():
    shows("SET client_min_messages = warning;\nDROP TABLE IF EXISTS c_copy_abort;\n"
          "CREATE TABLE c_copy_abort (a int);\nCOPY c_copy_abort FROM STDIN;\nno number\n\\.\n"
          "SELECT count(*) FROM c_copy_abort;\n", "0",
          'ERROR:  invalid input syntax for type integer: "no number"',
          'CONTEXT:  COPY c_copy_abort, line 1, column a: "no number"')


@check
def cancel():
    # Another session waits until it runs.
    marked = "SELECT pg_sleep(30) /* to be cancelled */"
    running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = '{}';\n"
    with subprocess.Popen([*PSQL, "-c", marked], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + BOUND_S
        while psql(running.format(marked)).strip() != "1" and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=BOUND_S)
    equal(errors, "Cancel request sent\nERROR:  canceling statement due to user request\n")


@check
def large_result():
    _, output, _ = command(*PSQL, "-c", "SELECT repeat('x', 1000000) "
                           f"FROM generate_series(1, {MEGABYTES})")
    equal(len(output), MEGABYTES * 1_000_001)


@check
def large_parameter():
    text = "0123456789" * 100_000 * MEGABYTES
    shows(f"SELECT length('{text}');\n", str(len(text)))


@check
def notice():
    shows("DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$;\n", "NOTICE:  said 1")


@check
def set_():
    with Session() as session:
        session.ask("SET work_mem = '7MB'; SET search_path = pg_catalog; SET my.tenant = 'seven';")
        with occupied():
            equal(session.ask("SHOW work_mem; SHOW search_path; SHOW my.tenant;"),
                  ["7MB", "pg_catalog", "seven"])


@check
def statement_timeout():
    with Session() as session:
        session.ask("SET statement_timeout = '200ms';")
        with occupied():
            equal(session.ask("SELECT pg_sleep(10);"),
                  ["ERROR:  canceling statement due to statement timeout"])


@check
def notify():
    with Session() as session:
        session.ask("LISTEN c_channel;")
        with occupied():
            psql("NOTIFY c_channel, 'hello';\n")
            found = "\n".join(session.ask("SELECT 1;"))
    if '"c_channel" with payload "hello"' not in found:
        raise Differs(found)


@check
def cursor():
    shows("\\set FETCH_COUNT 100\nSELECT count(*) FROM generate_series(1, 10000);\n", "10000")
    _, output, _ = command(*PSQL, "-v", "FETCH_COUNT=100", "-c",
                           "SELECT generate_series(1, 10000)")
    equal(output.count("\n"), 10_000)


@check
def cursor_hold():
    with Session() as session:
        session.ask("DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9);")
        with occupied():
            equal(session.ask("FETCH 2 FROM c_hold;"), ["1", "2"])


@check
def temp_table():
    with Session() as session:
        session.ask("CREATE TEMP TABLE c_temporary (a int);")
        with occupied():
            equal(session.ask("SELECT count(*) FROM c_temporary;"), ["0"])


@check
def unicode():
    shows(f"SELECT '{TEXT}';\n", TEXT)
    shows("SELECT convert_from('\\xc3a9', 'UTF8') = U&'\\00e9';\n", "t", PGCLIENTENCODING="LATIN1")


@check
def service_programs():
    """pg_dump and what else uses libpq's cursors, settings and COPY."""
    if not shutil.which("pg_dump"):
        return
    psql("DROP TABLE IF EXISTS c_dumped;\nCREATE TABLE c_dumped AS SELECT generate_series(1, 9);\n")
    code, output, errors = command("pg_dump", "--table=c_dumped")
    equal((code, errors, output.count("COPY public.c_dumped")), (0, "", 1))


def pgbench(protocol, *options):
    """Run some transactions of pgbench without an error or a failed transaction."""
    code, output, errors = command("pgbench", "-n", "-M", protocol, "-t", "20", *options)
    equal((code, [line for line in errors.splitlines() if not line.startswith("pgbench (")]),
          (0, []))
    count = re.search(r"actually processed: (\d+)", output)
    if not count or not int(count[1]) or re.search(r"failed transactions: [1-9]", output):
        raise Differs(output)


def add_pgbench():
    """Add a check for each of pgbench's protocols, and for its pipelines."""
    for protocol in ("simple", "extended", "prepared"):
        CHECKS[f"pgbench_{protocol}"] = lambda protocol=protocol: (
            pgbench(protocol, "-c", "8"), pgbench(protocol, "-S", "-c", "8", "-C"))

    def pipeline():
        with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
            script.write("\\startpipeline\n" + "SELECT 1;\n" * 50 + "\\endpipeline\n")
            script.flush()
            for protocol in ("extended", "prepared"):
                pgbench(protocol, "-c", "8", "-f", script.name)

    CHECKS["pgbench_pipeline"] = pipeline


if __name__ == "__main__":
    add_pgbench()
    run(" and ".join(command(name, "--version")[1].strip() for name in ("psql", "pgbench")))
