"""The checks with psycopg 3; connections are made from libpq's variables."""

import concurrent.futures
import contextlib
import datetime
import decimal
import threading
import uuid

import psycopg
import psycopg_pool
from psycopg import errors, pq, sql
from psycopg.types.json import Jsonb

from checks import MEGABYTES, STATEMENTS, TEXT, Differs, check, equal, raises, run


def connect(**options):
    return psycopg.connect(**{"autocommit": True, "application_name": "checks", **options})


def value(connection, query, parameters=None, **options):
    return connection.execute(query, parameters, **options).fetchone()[0]


@contextlib.contextmanager
def occupied(count=3):
    """Let others hold a transaction each, so that the next statement meets another backend."""
    with contextlib.ExitStack() as stack:
        others = [stack.enter_context(connect(autocommit=False)) for _ in range(count)]
        for other in others:
            other.execute("SELECT 1")
        yield others
        for other in others:
            other.rollback()


def table(connection, name, columns):
    connection.execute(f"DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns})")


@check
def connect_():
    with connect() as connection:
        equal(value(connection, "SELECT current_user"), "postgres")
        equal(value(connection, "SHOW application_name"), "checks")
        equal(connection.info.dbname, "postgres")
        equal(connection.info.parameter_status("client_encoding"), "UTF8")
        equal(connection.info.parameter_status("application_name"), "checks")
        equal(connection.info.transaction_status, pq.TransactionStatus.IDLE)
    with connect(options="-c search_path=pg_catalog -c work_mem=5MB") as connection:
        equal(value(connection, "SHOW work_mem"), "5MB")
        equal(value(connection, "SHOW search_path"), "pg_catalog")


@check
def unknown_database():
    error = raises(psycopg.OperationalError, lambda: connect(dbname="nowhere"))
    if 'database "nowhere" does not exist' not in str(error):
        raise Differs(str(error))


@check
def many_connections():
    for number in range(100):
        with connect() as connection:
            equal(value(connection, "SELECT %s::int", [number]), number)


@check
def query():
    with connect() as connection:
        rows = connection.execute("SELECT i, NULL, i::text FROM generate_series(1, 3) i").fetchall()
        equal(rows, [(1, None, "1"), (2, None, "2"), (3, None, "3")])
        equal(connection.execute("SELECT 1 WHERE false").fetchall(), [])
        equal(connection.execute("").statusmessage, None)


@check
def multi_statement():
    with connect() as connection:
        cursor = connection.execute("SELECT 1; SELECT 2; SELECT 3")
        found = [cursor.fetchone()[0]]
        while cursor.nextset():
            found.append(cursor.fetchone()[0])
        equal(found, [1, 2, 3])


@check
def prepared():
    with connect() as connection:
        for number in range(20):
            equal(value(connection, "SELECT %s::int + 1", [number], prepare=True), number + 1)
            if number % 5 == 0:
                with occupied(), connection.transaction():
                    found = value(connection, "SELECT %s::int + 1", [number], prepare=True)
                    equal(found, number + 1)


@check
def prepared_many():
    with connect() as connection:
        connection.prepared_max = None
        for _ in range(2):
            for number in range(STATEMENTS):
                query = f"SELECT {number} + %s::int"
                equal(value(connection, query, [1], prepare=True), number + 1)


@check
def prepared_shared():
    with connect() as one, connect() as two:
        # psycopg counts from 0 on each connection, so the names are the same.
        for number in range(5):
            equal(value(one, f"SELECT 'one', {number}", prepare=True), "one")
            equal(value(two, f"SELECT 'two', {number}", prepare=True), "two")
        for number in range(5):
            with occupied(1):
                equal(value(one, f"SELECT 'one', {number}", prepare=True), "one")
            equal(value(two, f"SELECT 'two', {number}", prepare=True), "two")


@check
def deallocate():
    with connect() as connection:
        equal(value(connection, "SELECT 40 + %s::int", [2], prepare=True), 42)
        connection.execute("DEALLOCATE ALL")
        equal(value(connection, "SELECT 40 + %s::int", [2], prepare=True), 42)
        connection.pgconn.prepare(b"mine", b"SELECT 'mine'")
        connection.execute("DEALLOCATE mine")
        result = connection.pgconn.exec_prepared(b"mine", [])
        equal(result.error_field(pq.DiagnosticField.SQLSTATE), b"26000")
        connection.prepared_max = 3
        for number in range(20):
            equal(value(connection, f"SELECT {number}", prepare=True), number)


@check
def discard_all():
    with connect() as connection:
        equal(value(connection, "SELECT 40 + %s::int", [2], prepare=True), 42)
        connection.execute("SET work_mem = '5MB'")
        connection.execute("DISCARD ALL")
        equal(value(connection, "SHOW work_mem"), "4MB")
        equal(value(connection, "SELECT 40 + %s::int", [2], prepare=True), 42)


@check
def plan_changed():
    with connect() as connection:
        table(connection, "c_plan", "a int")
        connection.execute("INSERT INTO c_plan VALUES (1)")
        # By libpq: psycopg prepares again by itself.
        connection.pgconn.prepare(b"plan", b"SELECT * FROM c_plan")
        equal(connection.pgconn.exec_prepared(b"plan", []).get_value(0, 0), b"1")
        connection.execute("ALTER TABLE c_plan ADD b int")
        result = connection.pgconn.exec_prepared(b"plan", [])
        equal(result.error_field(pq.DiagnosticField.SQLSTATE), b"0A000")


@check
def sql_prepare():
    with connect() as connection:
        connection.execute("PREPARE by_sql (int) AS SELECT $1 + 1")
        with occupied() as others:
            equal(value(connection, "EXECUTE by_sql (41)"), 42)
            raises(errors.InvalidSqlStatementName, others[0].execute, "EXECUTE by_sql (1)")
        connection.execute("DEALLOCATE by_sql")


@check
def transaction():
    with connect(autocommit=False) as connection:
        table(connection, "c_transaction", "a int")
        connection.commit()
        connection.execute("INSERT INTO c_transaction VALUES (1)")
        equal(connection.info.transaction_status, pq.TransactionStatus.INTRANS)
        connection.rollback()
        connection.execute("INSERT INTO c_transaction VALUES (2)")
        connection.commit()
        equal(connection.execute("SELECT a FROM c_transaction").fetchall(), [(2,)])


@check
def savepoint():
    with connect() as connection:
        table(connection, "c_savepoint", "a int")
        with connection.transaction():
            connection.execute("INSERT INTO c_savepoint VALUES (1)")
            with contextlib.suppress(errors.DivisionByZero), connection.transaction():
                connection.execute("INSERT INTO c_savepoint VALUES (2)")
                connection.execute("SELECT 1/0")
            with connection.transaction():
                connection.execute("INSERT INTO c_savepoint VALUES (3)")
        equal(connection.execute("SELECT a FROM c_savepoint").fetchall(), [(1,), (3,)])


@check
def error():
    with connect() as connection:
        found = raises(errors.UndefinedTable, connection.execute, "SELECT 1 FROM nowhere")
        equal(found.diag.message_primary, 'relation "nowhere" does not exist')
        equal(found.diag.statement_position, "15")
        equal(found.diag.severity, "ERROR")
        equal(value(connection, "SELECT 1"), 1)


@check
def error_in_transaction():
    with connect(autocommit=False) as connection:
        raises(errors.DivisionByZero, connection.execute, "SELECT 1/0")
        raises(errors.InFailedSqlTransaction, connection.execute, "SELECT 1")
        equal(connection.info.transaction_status, pq.TransactionStatus.INERROR)
        connection.rollback()
        equal(value(connection, "SELECT 1"), 1)


@check
def read_only():
    with connect(autocommit=False) as connection:
        connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        connection.read_only = True
        equal(value(connection, "SHOW transaction_isolation"), "serializable")
        raises(errors.ReadOnlySqlTransaction, connection.execute, "CREATE TABLE never (a int)")
        connection.rollback()
        connection.read_only, connection.isolation_level = None, None
        equal(value(connection, "SHOW transaction_isolation"), "read committed")


@check
def copy_in():
    with connect() as connection:
        table(connection, "c_copy", "a int, b text")
        with connection.cursor() as cursor:
            with cursor.copy("COPY c_copy FROM STDIN") as copy:
                for number in range(100_000):
                    copy.write_row((number, f"text {number}"))
            equal(cursor.rowcount, 100_000)
        equal(value(connection, "SELECT sum(a) FROM c_copy"), sum(range(100_000)))


@check
def copy_out():
    with connect() as connection, connection.cursor() as cursor:
        query = "COPY (SELECT i, repeat('x', 100) FROM generate_series(1, 100000) i) TO STDOUT"
        with cursor.copy(query) as copy:
            equal(sum(1 for _ in copy.rows()), 100_000)
        equal(value(connection, "SELECT 1"), 1)


@check
def copy_abort():
    with connect() as connection:
        table(connection, "c_copy_abort", "a int")

        def give_up():
            with connection.cursor().copy("COPY c_copy_abort FROM STDIN") as copy:
                copy.write_row((1,))
                raise ZeroDivisionError

        def wrong():
            with connection.cursor().copy("COPY c_copy_abort FROM STDIN") as copy:
                copy.write("no number\n")

        raises(ZeroDivisionError, give_up)
        raises(errors.InvalidTextRepresentation, wrong)
        equal(value(connection, "SELECT count(*) FROM c_copy_abort"), 0)


@check
def cancel():
    with connect() as connection:
        for ask in (connection.cancel, connection.cancel_safe):
            timer = threading.Timer(0.3, ask)
            timer.start()
            raises(errors.QueryCanceled, connection.execute, "SELECT pg_sleep(30)")
            timer.join()
            equal(value(connection, "SELECT 1"), 1)


@check
def pipeline():
    with connect() as connection:
        with connection.pipeline():
            cursors = [connection.execute("SELECT %s::int", [i]) for i in range(2000)]
        equal([cursor.fetchone()[0] for cursor in cursors], list(range(2000)))
        with connection.pipeline(), connection.transaction():
            cursor = connection.execute("SELECT 'inside'")
        equal(cursor.fetchone()[0], "inside")


@check
def pipeline_error():
    with connect() as connection:
        def among_others():
            with connection.pipeline() as pipeline:
                connection.execute("SELECT 1")
                connection.execute("SELECT 1/%s", [0])
                connection.execute("SELECT 2")
                pipeline.sync()

        raises(errors.DivisionByZero, among_others)
        equal(value(connection, "SELECT 1"), 1)


@check
def batch():
    with connect() as connection:
        table(connection, "c_batch", "a int")
        with connection.cursor() as cursor:
            rows = [(number,) for number in range(5000)]
            cursor.executemany("INSERT INTO c_batch VALUES (%s)", rows)
            equal(cursor.rowcount, 5000)
            cursor.executemany("SELECT %s::int", rows[:10], returning=True)
            equal(cursor.fetchone()[0], 0)
        equal(value(connection, "SELECT count(DISTINCT a) FROM c_batch"), 5000)


@check
def large_result():
    with connect() as connection:
        query = "SELECT repeat('x', 1000000) FROM generate_series(1, %s)"
        found = connection.execute(query, [MEGABYTES])
        equal(sum(len(row[0]) for row in found), MEGABYTES * 1_000_000)
        count = MEGABYTES * 10_000
        rows = connection.execute(f"SELECT i, repeat('y', 90) FROM generate_series(1, {count}) i")
        equal(sum(row[0] for row in rows), count * (count + 1) // 2)


@check
def large_parameter():
    with connect() as connection:
        text = "0123456789" * 100_000 * MEGABYTES
        for prepare in (False, True):
            found = value(connection, "SELECT length(%s::text)", [text], prepare=prepare)
            equal(found, len(text))
        query = sql.SQL("SELECT length({})").format(sql.Literal(text))
        equal(value(connection, query, prepare=True), len(text))


@check
def notice():
    found = []
    with connect() as connection:
        connection.add_notice_handler(lambda diag: found.append(diag.message_primary))
        connection.execute("DO $$ BEGIN RAISE NOTICE 'said %', 1; RAISE WARNING 'again'; END $$")
    equal(found, ["said 1", "again"])


SETTINGS = {"work_mem": "7MB", "search_path": "pg_catalog", "timezone": "Asia/Tokyo",
            "statement_timeout": "12345ms", "my.tenant": "seven", "enable_seqscan": "off"}


@check
def set_():
    with connect() as connection:
        for name, wanted in SETTINGS.items():
            connection.execute(f"SET {name} = '{wanted}'")
        connection.execute("SELECT set_config('my.other', 'eight', false)")
        with occupied():
            for name, wanted in SETTINGS.items():
                equal(value(connection, f"SHOW {name}"), wanted)
            equal(value(connection, "SHOW my.other"), "eight")


@check
def set_local():
    with connect() as connection:
        with connection.transaction():
            connection.execute("SET LOCAL work_mem = '7MB'")
            equal(value(connection, "SHOW work_mem"), "7MB")
        equal(value(connection, "SHOW work_mem"), "4MB")


@check
def set_leak():
    with connect() as connection:
        for name, wanted in SETTINGS.items():
            connection.execute(f"SET {name} = '{wanted}'")
        connection.execute("SELECT set_config('my.other', 'eight', false)")
        connection.execute("SET ROLE pg_monitor")
        with occupied() as others:
            for other in others:
                equal(value(other, "SHOW work_mem"), "4MB")
                equal(value(other, "SHOW statement_timeout"), "0")
                equal(value(other, "SELECT current_user"), "postgres")
                for name in ("my.tenant", "my.other"):
                    found = value(other, "SELECT current_setting(%s, true)", [name])
                    equal(found or None, None)


@check
def reset():
    with connect(options="-c work_mem=5MB") as connection:
        connection.execute("SET work_mem = '7MB'")
        connection.execute("SET application_name = 'other'")
        equal(connection.info.parameter_status("application_name"), "other")
        connection.execute("RESET ALL")
        equal(value(connection, "SHOW work_mem"), "5MB")
        equal(value(connection, "SHOW application_name"), "checks")


@check
def statement_timeout():
    with connect() as connection:
        connection.execute("SET statement_timeout = '200ms'")
        with occupied():
            raises(errors.QueryCanceled, connection.execute, "SELECT pg_sleep(10)")
        connection.execute("RESET statement_timeout")
        equal(value(connection, "SELECT 1 FROM pg_sleep(0.3)"), 1)


@check
def pool():
    def task(number):
        with pool.connection() as connection:
            return value(connection, "SELECT %s::int", [number])

    with psycopg_pool.ConnectionPool(min_size=2, max_size=8) as pool, \
            concurrent.futures.ThreadPoolExecutor(16) as threads:
        equal(list(threads.map(task, range(1000))), list(range(1000)))


@check
def notify():
    with connect() as listener, connect() as sender:
        listener.execute("LISTEN c_channel")
        with occupied():
            sender.execute("NOTIFY c_channel, 'hello'")
            sender.execute("SELECT pg_notify('c_other', 'not for you')")
            found = [(n.channel, n.payload) for n in listener.notifies(timeout=5, stop_after=1)]
        equal(found, [("c_channel", "hello")])
        listener.execute("UNLISTEN *")


@check
def cursor():
    with connect(autocommit=False) as connection:
        with connection.cursor(name="c_cursor") as found:
            found.itersize = 100
            found.execute("SELECT i FROM generate_series(1, 10000) i")
            equal(sum(row[0] for row in found), 50_005_000)
        with connection.cursor(name="c_scroll", scrollable=True) as found:
            found.execute("SELECT i FROM generate_series(1, 100) i")
            found.scroll(50)
            equal(found.fetchone(), (51,))


@check
def cursor_hold():
    with connect() as connection:
        with connection.cursor(name="c_hold", withhold=True) as found:
            found.execute("SELECT i FROM generate_series(1, 1000) i")
            equal(len(found.fetchmany(10)), 10)
            with occupied() as others:
                equal(found.fetchone(), (11,))
                raises(errors.InvalidCursorName, others[0].execute, "FETCH 1 FROM c_hold")
            equal(len(found.fetchall()), 989)


@check
def temp_table():
    with connect() as connection:
        connection.execute("CREATE TEMP TABLE c_temporary (a int)")
        with occupied() as others:
            connection.execute("INSERT INTO c_temporary VALUES (1)")
            equal(value(connection, "SELECT count(*) FROM c_temporary"), 1)
            raises(errors.UndefinedTable, others[0].execute, "SELECT 1 FROM c_temporary")


@check
def advisory_lock():
    with connect() as connection:
        equal(value(connection, "SELECT pg_try_advisory_lock(4711)"), True)
        with occupied() as others:
            equal(value(others[0], "SELECT pg_try_advisory_lock(4711)"), False)
            equal(value(connection, "SELECT pg_advisory_unlock(4711)"), True)
            equal(value(others[1], "SELECT pg_try_advisory_xact_lock(4711)"), True)


@check
def types():
    values = [
        (7, "int8"), (decimal.Decimal("12345678901234567890.123"), "numeric"), (1.5, "float8"),
        (True, "bool"), (b"\x00\x01\xff", "bytea"), (datetime.date(2000, 2, 29), "date"),
        (datetime.timedelta(days=3, seconds=7), "interval"), (["a", None, "c"], "text[]"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 678, datetime.timezone.utc), "timestamptz"),
        (uuid.UUID("12345678123456781234567812345678"), "uuid"), (None, "text"),
    ]
    with connect() as connection:
        for binary in (False, True):
            for sent, kind in values:
                found = connection.execute(f"SELECT %s::{kind}", [sent], binary=binary).fetchone()
                equal(found[0], sent)
        equal(value(connection, "SELECT %s::jsonb", [Jsonb({"a": [1, None]})]), {"a": [1, None]})


@check
def unicode():
    with connect() as connection:
        equal(value(connection, "SELECT %s::text", [TEXT]), TEXT)
        equal(value(connection, sql.SQL("SELECT {}").format(sql.Literal(TEXT))), TEXT)
        connection.execute("SET client_encoding = 'LATIN1'")
        with occupied():
            equal(value(connection, "SELECT convert_from('\\xc3a9', 'UTF8')"), "é")


if __name__ == "__main__":
    run(f"psycopg {psycopg.__version__}, libpq {pq.version_pretty(pq.version())}")
