"""The checks with asyncpg, which prepares every statement and speaks the binary format."""

import asyncio
import contextlib
import datetime
import decimal
import functools
import io
import uuid

import asyncpg

from checks import MEGABYTES, STATEMENTS, TEXT, Differs, check, equal, run

BOUND_S = 240


def raised(kind):
    """Let a block end with an error of this kind only."""
    class Expected:
        async def __aenter__(self):
            return self

        async def __aexit__(self, found, error, _):
            if found is None:
                raise Differs(f"no {kind.__name__}")
            self.error = error
            return isinstance(error, kind)

    return Expected()


def waits(function):
    """Add a coroutine to the checks."""
    @functools.wraps(function)
    def whole():
        asyncio.run(asyncio.wait_for(function(), BOUND_S))

    return check(whole)


@contextlib.asynccontextmanager
async def connect(**options):
    settings = {"application_name": "checks", **options.pop("server_settings", {})}
    connection = await asyncpg.connect(server_settings=settings, **options)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


@contextlib.asynccontextmanager
async def occupied(count=3):
    """Let others hold a transaction each, so that the next statement meets another backend."""
    async with contextlib.AsyncExitStack() as stack:
        others = [await stack.enter_async_context(connect()) for _ in range(count)]
        for other in others:
            await stack.enter_async_context(other.transaction())
            await other.fetchval("SELECT 1")
        yield others


@waits
async def connect_():
    async with connect(server_settings={"search_path": "pg_catalog"}) as connection:
        equal(await connection.fetchval("SELECT current_user::text"), "postgres")
        equal(await connection.fetchval("SHOW search_path"), "pg_catalog")
        equal(connection.get_settings().application_name, "checks")


@waits
async def unknown_database():
    async with raised(asyncpg.InvalidCatalogNameError):
        await asyncpg.connect(database="nowhere")


@waits
async def many_connections():
    for number in range(100):
        async with connect() as connection:
            equal(await connection.fetchval("SELECT $1::int", number), number)


@waits
async def query():
    async with connect() as connection:
        rows = await connection.fetch("SELECT i, NULL, i::text FROM generate_series(1, 3) i")
        equal([tuple(row) for row in rows], [(1, None, "1"), (2, None, "2"), (3, None, "3")])
        equal(await connection.fetch("SELECT 1 WHERE false"), [])


@waits
async def multi_statement():
    async with connect() as connection:
        equal(await connection.execute("SELECT 1; SELECT 2 WHERE false"), "SELECT 0")


@waits
async def prepared():
    async with connect() as connection:
        statement = await connection.prepare("SELECT $1::int + 1")
        for number in range(20):
            equal(await statement.fetchval(number), number + 1)
        async with occupied(), connection.transaction():
            equal(await statement.fetchval(41), 42)


@waits
async def prepared_many():
    async with connect(statement_cache_size=0) as connection:
        statements = [await connection.prepare(f"SELECT {number} + $1::int")
                      for number in range(STATEMENTS)]
        for number, statement in enumerate(statements):
            equal(await statement.fetchval(1), number + 1)


@waits
async def prepared_shared():
    async with connect() as one, connect() as two:
        mine = await one.prepare("SELECT 'one'", name="shared")
        yours = await two.prepare("SELECT 'two'", name="shared")
        for _ in range(5):
            async with occupied(1):
                equal(await mine.fetchval(), "one")
            equal(await yours.fetchval(), "two")


@waits
async def deallocate():
    async with connect(statement_cache_size=0) as connection:
        statement = await connection.prepare("SELECT 1", name="mine")
        await connection.execute("DEALLOCATE ALL")
        async with raised(asyncpg.InvalidSQLStatementNameError):
            await statement.fetchval()
        equal(await connection.fetchval("SELECT 2"), 2)


@waits
async def discard_all():
    async with connect() as connection:
        await connection.execute("SET work_mem = '5MB'")
        await connection.execute("DISCARD ALL")
        await connection.reload_schema_state()
        equal(await connection.fetchval("SHOW work_mem"), "4MB")


@waits
async def plan_changed():
    async with connect() as connection:
        await connection.execute("DROP TABLE IF EXISTS c_plan; CREATE TABLE c_plan (a int);"
                                 "INSERT INTO c_plan VALUES (1)")
        equal(tuple(await connection.fetchrow("SELECT * FROM c_plan")), (1,))
        await connection.execute("ALTER TABLE c_plan ADD b int")
        # asyncpg prepares it again by itself.
        equal(tuple(await connection.fetchrow("SELECT * FROM c_plan")), (1, None))


@waits
async def sql_prepare():
    async with connect() as connection:
        await connection.execute("PREPARE by_sql AS SELECT 42")
        async with occupied() as others:
            equal(await connection.execute("EXECUTE by_sql"), "SELECT 1")
            async with raised(asyncpg.InvalidSQLStatementNameError):
                await others[0].execute("EXECUTE by_sql")


@waits
async def transaction():
    async with connect() as connection:
        await connection.execute("DROP TABLE IF EXISTS c_transaction;"
                                 "CREATE TABLE c_transaction (a int)")
        started = connection.transaction()
        await started.start()
        await connection.execute("INSERT INTO c_transaction VALUES (1)")
        await started.rollback()
        async with connection.transaction():
            await connection.execute("INSERT INTO c_transaction VALUES (2)")
        equal(await connection.fetchval("SELECT array_agg(a) FROM c_transaction"), [2])


@waits
async def savepoint():
    async with connect() as connection, connection.transaction():
        async with raised(asyncpg.DivisionByZeroError):
            async with connection.transaction():
                await connection.fetchval("SELECT 1/0")
        equal(await connection.fetchval("SELECT 1"), 1)


@waits
async def error():
    async with connect() as connection:
        async with raised(asyncpg.UndefinedTableError) as found:
            await connection.fetchval("SELECT 1 FROM nowhere")
        equal((found.error.sqlstate, found.error.position), ("42P01", "15"))
        equal(await connection.fetchval("SELECT 1"), 1)


@waits
async def error_in_transaction():
    async with connect() as connection:
        await connection.execute("BEGIN")
        async with raised(asyncpg.DivisionByZeroError):
            await connection.execute("SELECT 1/0")
        async with raised(asyncpg.InFailedSQLTransactionError):
            await connection.execute("SELECT 1")
        await connection.execute("ROLLBACK")
        equal(await connection.fetchval("SELECT 1"), 1)


@waits
async def read_only():
    async with connect() as connection:
        async with raised(asyncpg.ReadOnlySQLTransactionError):
            async with connection.transaction(isolation="serializable", readonly=True):
                await connection.execute("CREATE TABLE never (a int)")


@waits
async def copy_in():
    async with connect() as connection:
        await connection.execute("DROP TABLE IF EXISTS c_copy; CREATE TABLE c_copy (a int, b text)")
        rows = [(number, f"text {number}") for number in range(100_000)]
        done = await connection.copy_records_to_table("c_copy", records=rows)
        equal(done, "COPY 100000")
        equal(await connection.fetchval("SELECT sum(a) FROM c_copy"), sum(range(100_000)))


@waits
async def copy_out():
    found = io.BytesIO()
    async with connect() as connection:
        query = "SELECT i, repeat('x', 100) FROM generate_series(1, $1::int) i"
        await connection.copy_from_query(query, 100_000, output=found)
        equal(found.getvalue().count(b"\n"), 100_000)
        equal(await connection.fetchval("SELECT 1"), 1)


@waits
async def copy_abort():
    async def broken():
        yield (1,)
        raise ZeroDivisionError

    async with connect() as connection:
        await connection.execute("DROP TABLE IF EXISTS c_copy_abort;"
                                 "CREATE TABLE c_copy_abort (a int)")
        async with raised(ZeroDivisionError):
            await connection.copy_records_to_table("c_copy_abort", records=broken())
        equal(await connection.fetchval("SELECT count(*) FROM c_copy_abort"), 0)


@waits
async def cancel():
    async with connect() as connection:
        async with raised(asyncio.TimeoutError):
            await connection.fetchval("SELECT pg_sleep(30)", timeout=0.3)
        equal(await connection.fetchval("SELECT 1"), 1)
        task = asyncio.create_task(connection.fetchval("SELECT pg_sleep(30)"))
        await asyncio.sleep(0.3)
        task.cancel()
        async with raised(asyncio.CancelledError):
            await task
        equal(await connection.fetchval("SELECT 1"), 1)


@waits
async def batch():
    async with connect() as connection:
        await connection.execute("DROP TABLE IF EXISTS c_batch; CREATE TABLE c_batch (a int)")
        rows = [(number,) for number in range(5000)]
        await connection.executemany("INSERT INTO c_batch VALUES ($1)", rows)
        equal(await connection.fetchval("SELECT count(*) FROM c_batch"), 5000)


@waits
async def large_result():
    async with connect() as connection:
        query = "SELECT repeat('x', 1000000) FROM generate_series(1, $1::int)"
        found = await connection.fetch(query, MEGABYTES)
        equal(sum(len(row[0]) for row in found), MEGABYTES * 1_000_000)


@waits
async def large_parameter():
    text = "0123456789" * 100_000 * MEGABYTES
    async with connect() as connection:
        equal(await connection.fetchval("SELECT length($1::text)", text), len(text))
        # The text is part of the named statement that is prepared.
        equal(await connection.fetchval(f"SELECT length('{text}')"), len(text))


@waits
async def notice():
    found = []
    async with connect() as connection:
        connection.add_log_listener(lambda _, message: found.append(message.message))
        await connection.execute("DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$")
        await asyncio.sleep(0)
    equal(found, ["said 1"])


SETTINGS = {"work_mem": "7MB", "search_path": "pg_catalog", "timezone": "Asia/Tokyo",
            "statement_timeout": "12345ms", "my.tenant": "seven"}


@waits
async def set_():
    async with connect() as connection:
        for name, wanted in SETTINGS.items():
            await connection.execute(f"SET {name} = '{wanted}'")
        async with occupied():
            for name, wanted in SETTINGS.items():
                equal(await connection.fetchval(f"SHOW {name}"), wanted)


@waits
async def set_leak():
    async with connect() as connection:
        await connection.execute("SET work_mem = '7MB'")
        await connection.execute("SELECT set_config('my.tenant', 'seven', false)")
        async with occupied() as others:
            for other in others:
                equal(await other.fetchval("SHOW work_mem"), "4MB")
                found = await other.fetchval("SELECT current_setting('my.tenant', true)")
                equal(found or None, None)


@waits
async def reset():
    async with connect() as connection:
        await connection.execute("SET work_mem = '7MB'")
        await connection.reset()
        equal(await connection.fetchval("SHOW work_mem"), "4MB")


@waits
async def statement_timeout():
    async with connect() as connection:
        await connection.execute("SET statement_timeout = '200ms'")
        async with occupied(), raised(asyncpg.QueryCanceledError):
            await connection.execute("SELECT pg_sleep(10)")


@waits
async def pool():
    async with asyncpg.create_pool(min_size=2, max_size=8) as own:
        tasks = [own.fetchval("SELECT $1::int", number) for number in range(1000)]
        equal(await asyncio.gather(*tasks), list(range(1000)))


@waits
async def notify():
    found = asyncio.Queue()
    async with connect() as listener, connect() as sender:
        await listener.add_listener("c_channel", lambda *said: found.put_nowait(said[2:]))
        async with occupied():
            await sender.execute("NOTIFY c_channel, 'hello'")
            equal(await asyncio.wait_for(found.get(), 5), ("c_channel", "hello"))


@waits
async def cursor():
    async with connect() as connection, connection.transaction():
        total = 0
        async for row in connection.cursor("SELECT i FROM generate_series(1, 10000) i"):
            total += row[0]
        equal(total, 50_005_000)


@waits
async def cursor_hold():
    async with connect() as connection:
        await connection.execute("DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9)")
        async with occupied():
            rows = await connection.fetch("FETCH 5 FROM c_hold")
        equal([row[0] for row in rows], [1, 2, 3, 4, 5])


@waits
async def temp_table():
    async with connect() as connection:
        await connection.execute("CREATE TEMP TABLE c_temporary (a int)")
        async with occupied() as others:
            equal(await connection.fetchval("SELECT count(*) FROM c_temporary"), 0)
            async with raised(asyncpg.UndefinedTableError):
                await others[0].fetch("SELECT 1 FROM c_temporary")


@waits
async def advisory_lock():
    async with connect() as connection:
        equal(await connection.fetchval("SELECT pg_try_advisory_lock(4713)"), True)
        async with occupied() as others:
            equal(await others[0].fetchval("SELECT pg_try_advisory_lock(4713)"), False)
            equal(await connection.fetchval("SELECT pg_advisory_unlock(4713)"), True)


@waits
async def types():
    values = [
        (7, "int8"), (decimal.Decimal("12345678901234567890.123"), "numeric"), (1.5, "float8"),
        (True, "bool"), (b"\x00\x01\xff", "bytea"), (datetime.date(2000, 2, 29), "date"),
        (datetime.timedelta(days=3, seconds=7), "interval"), (["a", None, "c"], "text[]"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 678, datetime.timezone.utc), "timestamptz"),
        (uuid.UUID("12345678123456781234567812345678"), "uuid"), (None, "text"),
        ('{"a": [1, null]}', "jsonb"), (asyncpg.Range(1, 5), "int4range"),
    ]
    async with connect() as connection:
        for sent, kind in values:
            equal(await connection.fetchval(f"SELECT $1::{kind}", sent), sent)
        # The types of an enum are looked up by queries of asyncpg's own.
        await connection.execute("DROP TYPE IF EXISTS c_mood; CREATE TYPE c_mood AS ENUM ('sad')")
        equal(await connection.fetchval("SELECT ARRAY['sad'::c_mood]"), ["sad"])


@waits
async def unicode():
    async with connect() as connection:
        equal(await connection.fetchval("SELECT $1::text", TEXT), TEXT)
        equal(await connection.fetchval(f"SELECT '{TEXT}'"), TEXT)


if __name__ == "__main__":
    run(f"asyncpg {asyncpg.__version__}")
