"""The checks with psycopg2, which sends every statement as one simple query."""

import concurrent.futures
import contextlib
import datetime
import decimal
import io
import select
import threading

import psycopg2
import psycopg2.extras
import psycopg2.pool
from psycopg2 import errors, extensions

from checks import MEGABYTES, TEXT, Differs, check, equal, raises, run


@contextlib.contextmanager
def connect(autocommit=True, **options):
    """Connect from libpq's variables; psycopg2's own `with` does not close."""
    connection = psycopg2.connect(**{"application_name": "checks", "dsn": "", **options})
    connection.autocommit = autocommit
    with contextlib.closing(connection):
        yield connection


def execute(connection, query, parameters=None):
    cursor = connection.cursor()
    cursor.execute(query, parameters)
    return cursor


def value(connection, query, parameters=None):
    return execute(connection, query, parameters).fetchone()[0]


@contextlib.contextmanager
def occupied(count=3):
    """Let others hold a transaction each, so that the next statement meets another backend."""
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(connect(autocommit=False)) for _ in range(count)]
        for other in others:
            execute(other, "SELECT 1")
        yield others


@check
def connect_():
    with connect() as connection:
        equal(value(connection, "SELECT current_user"), "postgres")
        equal(value(connection, "SHOW application_name"), "checks")
        equal(connection.get_parameter_status("client_encoding"), "UTF8")
        equal(connection.get_transaction_status(), extensions.TRANSACTION_STATUS_IDLE)


@check
def unknown_database():
    error = raises(psycopg2.OperationalError, lambda: connect(dbname="nowhere").__enter__())
    if 'database "nowhere" does not exist' not in str(error):
        raise Differs(str(error))


@check
def many_connections():
    for number in range(100):
        with connect() as connection:
            equal(value(connection, "SELECT %s", [number]), number)


@check
def query():
    with connect() as connection:
        rows = execute(connection, "SELECT i, NULL, i::text FROM generate_series(1, 3) i")
        equal(rows.fetchall(), [(1, None, "1"), (2, None, "2"), (3, None, "3")])
        equal(execute(connection, "SELECT 1 WHERE false").fetchall(), [])


@check
def multi_statement():
    with connect() as connection:
        equal(value(connection, "SELECT 1; SELECT 2; SELECT 3"), 3)


@check
def prepared():
    with connect(autocommit=False) as connection:
        execute(connection, "PREPARE p (int) AS SELECT $1 + 1")
        rows = [(number,) for number in range(100)]
        psycopg2.extras.execute_batch(connection.cursor(), "EXECUTE p (%s)", rows)
        equal(value(connection, "EXECUTE p (41)"), 42)
        execute(connection, "DEALLOCATE p")


@check
def sql_prepare():
    with connect() as connection:
        execute(connection, "PREPARE by_sql (int) AS SELECT $1 + 1")
        with occupied() as others:
            equal(value(connection, "EXECUTE by_sql (41)"), 42)
            raises(errors.InvalidSqlStatementName, execute, others[0], "EXECUTE by_sql (1)")
        execute(connection, "DEALLOCATE by_sql")


@check
def discard_all():
    with connect() as connection:
        execute(connection, "SET work_mem = '5MB'")
        execute(connection, "DISCARD ALL")
        equal(value(connection, "SHOW work_mem"), "4MB")


@check
def transaction():
    with connect(autocommit=False) as connection:
        execute(connection, "DROP TABLE IF EXISTS c_transaction;"
                            "CREATE TABLE c_transaction (a int)")
        connection.commit()
        execute(connection, "INSERT INTO c_transaction VALUES (1)")
        connection.rollback()
        execute(connection, "INSERT INTO c_transaction VALUES (2)")
        connection.commit()
        equal(execute(connection, "SELECT a FROM c_transaction").fetchall(), [(2,)])


@check
def savepoint():
    with connect(autocommit=False) as connection:
        execute(connection, "SAVEPOINT s")
        raises(errors.DivisionByZero, execute, connection, "SELECT 1/0")
        execute(connection, "ROLLBACK TO SAVEPOINT s")
        equal(value(connection, "SELECT 1"), 1)
        connection.commit()


@check
def error():
    with connect() as connection:
        found = raises(errors.UndefinedTable, execute, connection, "SELECT 1 FROM nowhere")
        equal(found.pgcode, "42P01")
        equal(found.diag.message_primary, 'relation "nowhere" does not exist')
        equal(found.diag.statement_position, "15")
        equal(value(connection, "SELECT 1"), 1)


@check
def error_in_transaction():
    with connect(autocommit=False) as connection:
        raises(errors.DivisionByZero, execute, connection, "SELECT 1/0")
        raises(errors.InFailedSqlTransaction, execute, connection, "SELECT 1")
        connection.rollback()
        equal(value(connection, "SELECT 1"), 1)


@check
def read_only():
    with connect(autocommit=False) as connection:
        connection.set_session("SERIALIZABLE", readonly=True)
        equal(value(connection, "SHOW transaction_isolation"), "serializable")
        raises(errors.ReadOnlySqlTransaction, execute, connection, "CREATE TABLE never (a int)")
        connection.rollback()
    with connect() as connection:
        # With autocommit this is SET SESSION CHARACTERISTICS.
        connection.set_session(readonly=True)
        with occupied():
            raises(errors.ReadOnlySqlTransaction, execute, connection, "CREATE TABLE never (a int)")


@check
def copy_in():
    lines = io.StringIO("".join(f"{number}\ttext {number}\n" for number in range(100_000)))
    with connect() as connection:
        execute(connection, "DROP TABLE IF EXISTS c_copy; CREATE TABLE c_copy (a int, b text)")
        connection.cursor().copy_expert("COPY c_copy FROM STDIN", lines)
        equal(value(connection, "SELECT sum(a) FROM c_copy"), sum(range(100_000)))


@check
def copy_out():
    found = io.StringIO()
    with connect() as connection:
        connection.cursor().copy_expert(
            "COPY (SELECT i FROM generate_series(1, 100000) i) TO STDOUT", found)
        equal(found.getvalue().count("\n"), 100_000)
        equal(value(connection, "SELECT 1"), 1)


@check
def copy_abort():
    class Broken(io.StringIO):
        def read(self, *_):
            raise ZeroDivisionError

    with connect() as connection:
        execute(connection, "DROP TABLE IF EXISTS c_copy_abort; CREATE TABLE c_copy_abort (a int)")
        copy = connection.cursor().copy_expert
        raises(errors.QueryCanceled, copy, "COPY c_copy_abort FROM STDIN", Broken())
        raises(errors.InvalidTextRepresentation, copy, "COPY c_copy_abort FROM STDIN",
               io.StringIO("no number\n"))
        equal(value(connection, "SELECT count(*) FROM c_copy_abort"), 0)


@check
def cancel():
    with connect() as connection:
        timer = threading.Timer(0.3, connection.cancel)
        timer.start()
        raises(errors.QueryCanceled, execute, connection, "SELECT pg_sleep(30)")
        timer.join()
        equal(value(connection, "SELECT 1"), 1)


@check
def batch():
    with connect() as connection:
        execute(connection, "DROP TABLE IF EXISTS c_batch; CREATE TABLE c_batch (a int)")
        rows = [(number,) for number in range(5000)]
        cursor = connection.cursor()
        psycopg2.extras.execute_batch(cursor, "INSERT INTO c_batch VALUES (%s)", rows)
        psycopg2.extras.execute_values(cursor, "INSERT INTO c_batch VALUES %s", rows)
        equal(value(connection, "SELECT count(*) FROM c_batch"), 10_000)


@check
def large_result():
    with connect() as connection:
        query = "SELECT repeat('x', 1000000) FROM generate_series(1, %s)"
        found = execute(connection, query, [MEGABYTES])
        equal(sum(len(row[0]) for row in found), MEGABYTES * 1_000_000)


@check
def large_parameter():
    with connect() as connection:
        text = "0123456789" * 100_000 * MEGABYTES
        equal(value(connection, "SELECT length(%s)", [text]), len(text))


@check
def notice():
    with connect() as connection:
        execute(connection, "DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$")
        equal(connection.notices, ["NOTICE:  said 1\n"])


@check
def set_():
    with connect() as connection:
        settings = {"work_mem": "7MB", "search_path": "pg_catalog", "timezone": "Asia/Tokyo",
                    "statement_timeout": "12345ms", "my.tenant": "seven"}
        for name, wanted in settings.items():
            execute(connection, f"SET {name} = '{wanted}'")
        with occupied() as others:
            for name, wanted in settings.items():
                equal(value(connection, f"SHOW {name}"), wanted)
            equal(value(others[0], "SHOW work_mem"), "4MB")


@check
def reset():
    with connect() as connection:
        execute(connection, "SET work_mem = '7MB'")
        connection.reset()
        equal(value(connection, "SHOW work_mem"), "4MB")


@check
def statement_timeout():
    with connect(options="-c statement_timeout=200ms") as connection, occupied():
        raises(errors.QueryCanceled, execute, connection, "SELECT pg_sleep(10)")


@check
def pool():
    own = psycopg2.pool.ThreadedConnectionPool(2, 8, "")

    def task(number):
        connection = own.getconn()
        try:
            return value(connection, "SELECT %s", [number])
        finally:
            own.putconn(connection)

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        equal(list(threads.map(task, range(1000))), list(range(1000)))
    own.closeall()


@check
def notify():
    with connect() as listener, connect() as sender:
        execute(listener, "LISTEN c_channel")
        with occupied():
            execute(sender, "NOTIFY c_channel, 'hello'")
            select.select([listener], [], [], 5)
            listener.poll()
            equal([(n.channel, n.payload) for n in listener.notifies], [("c_channel", "hello")])


@check
def cursor():
    with connect(autocommit=False) as connection:
        found = connection.cursor(name="c_cursor")
        found.execute("SELECT i FROM generate_series(1, 10000) i")
        equal(sum(row[0] for row in found), 50_005_000)


@check
def cursor_hold():
    with connect(autocommit=False) as connection:
        found = connection.cursor(name="c_hold", withhold=True)
        found.execute("SELECT i FROM generate_series(1, 1000) i")
        equal(len(found.fetchmany(10)), 10)
        connection.commit()
        with occupied() as others:
            equal(found.fetchone(), (11,))
            raises(errors.InvalidCursorName, execute, others[0], "FETCH 1 FROM c_hold")


@check
def temp_table():
    with connect() as connection:
        execute(connection, "CREATE TEMP TABLE c_temporary (a int)")
        with occupied() as others:
            equal(value(connection, "SELECT count(*) FROM c_temporary"), 0)
            raises(errors.UndefinedTable, execute, others[0], "SELECT 1 FROM c_temporary")


@check
def advisory_lock():
    with connect() as connection:
        equal(value(connection, "SELECT pg_try_advisory_lock(4712)"), True)
        with occupied() as others:
            equal(value(others[0], "SELECT pg_try_advisory_lock(4712)"), False)
            equal(value(connection, "SELECT pg_advisory_unlock(4712)"), True)


@check
def types():
    values = [7, decimal.Decimal("12345678901234567890.123"), 1.5, True, None, ["a", None],
              datetime.date(2000, 2, 29), datetime.timedelta(days=3)]
    with connect() as connection:
        equal(execute(connection, "SELECT %s, %s, %s, %s, %s, %s, %s, %s", values).fetchone(),
              (7, values[1], decimal.Decimal("1.5"), *values[3:]))
        equal(bytes(value(connection, "SELECT %s", [psycopg2.Binary(b"\0\1\xff")])), b"\0\1\xff")
        equal(value(connection, "SELECT %s::jsonb", [psycopg2.extras.Json({"a": 1})]), {"a": 1})


@check
def unicode():
    with connect() as connection:
        equal(value(connection, "SELECT %s", [TEXT]), TEXT)
        connection.set_client_encoding("LATIN1")
        with occupied():
            equal(value(connection, "SELECT 'é'"), "é")


if __name__ == "__main__":
    run(f"psycopg2 {psycopg2.__version__.split()[0]}, libpq {extensions.libpq_version()}")
