"""The checks with SQLAlchemy over psycopg 3, psycopg2 and asyncpg; names end with the driver's."""

import asyncio
import concurrent.futures
import os
import ssl

import sqlalchemy
from sqlalchemy import Column, Integer, LargeBinary, Text, func, insert, orm, select, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, UUID
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine

from checks import CHECKS, MEGABYTES, TEXT, Differs, check, equal, run

# Others of a pool that hold a transaction each.
OTHERS = 3


class Base(orm.DeclarativeBase):
    """The mapped tables."""


class Row(Base):
    """A row with columns of many types."""

    __tablename__ = "c_alchemy"
    id = Column(Integer, primary_key=True)
    name = Column(Text, unique=True)
    data = Column(JSONB)
    parts = Column(ARRAY(Integer))
    bytes = Column(LargeBinary)
    token = Column(UUID)


def url(driver):
    """Where to connect, for a driver; libpq's variables say the rest."""
    host, port, password = (os.environ[f"PG{name}"] for name in ("HOST", "PORT", "PASSWORD"))
    return f"postgresql+{driver}://postgres:{password}@{host}:{port}/postgres"


def engine(driver, **options):
    return sqlalchemy.create_engine(url(driver), pool_size=8, **options)


def both(function):
    """Add a check for each of the two drivers that do not need a loop."""
    for driver in ("psycopg", "psycopg2"):
        def whole(driver=driver):
            made = engine(driver)
            try:
                function(made)
            finally:
                made.dispose()

        CHECKS[f"{function.__name__.removesuffix('_')}_{driver}"] = whole
    return function


def error_code(function):
    """Return the SQLSTATE of the error that a call raises."""
    try:
        function()
    except DBAPIError as error:
        return getattr(error.orig, "sqlstate", None) or getattr(error.orig, "pgcode", None)
    raise Differs("no error")


@both
def connect_(made):
    with made.connect() as connection:
        equal(connection.scalar(text("SELECT current_user::text")), "postgres")


@both
def mapped(made):
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    token = "12345678-1234-5678-1234-567812345678"
    with orm.Session(made) as session, session.begin():
        session.add(Row(id=1, name=TEXT, data={"a": [1]}, parts=[1, 2], bytes=b"\0\xff"))
        session.add_all([Row(id=i, name=f"row {i}") for i in range(2, 500)])
    with orm.Session(made) as session:
        found = session.get(Row, 1)
        equal((found.name, found.data, found.parts, bytes(found.bytes)),
              (TEXT, {"a": [1]}, [1, 2], b"\0\xff"))
        equal(session.scalar(select(func.count()).select_from(Row)), 499)
        equal(str(session.scalar(text(f"SELECT '{token}'::uuid"))), token)


@both
def error_in_transaction(made):
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    with orm.Session(made) as session:
        session.add_all([Row(id=1, name="same"), Row(id=2, name="same")])
        try:
            session.commit()
        except IntegrityError:
            session.rollback()
        equal(session.scalar(select(func.count()).select_from(Row)), 0)


@both
def savepoint(made):
    with made.begin() as connection:
        with connection.begin_nested() as nested:
            connection.execute(text("SELECT 1"))
            nested.rollback()
        equal(connection.scalar(text("SELECT 1")), 1)


@both
def isolation(made):
    own = made.execution_options(isolation_level="SERIALIZABLE")
    with own.connect() as connection:
        equal(connection.scalar(text("SHOW transaction_isolation")), "serializable")
    with made.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
        connection.execute(text("VACUUM pg_class"))


@both
def batch(made):
    Base.metadata.drop_all(made)
    Base.metadata.create_all(made)
    with made.begin() as connection:
        connection.execute(insert(Row), [{"id": i, "name": f"n{i}"} for i in range(5000)])
        ids = connection.scalars(insert(Row).returning(Row.id),
                                 [{"id": i, "name": f"n{i}"} for i in range(5000, 8000)])
        equal(len(ids.all()), 3000)


@both
def large_result(made):
    with made.connect().execution_options(stream_results=True) as connection:
        count = MEGABYTES * 10_000
        rows = connection.execute(
            text(f"SELECT i, repeat('x', 90) FROM generate_series(1, {count}) i"))
        equal(sum(row[0] for row in rows), count * (count + 1) // 2)


@both
def pool(made):
    def task(number):
        with made.connect() as connection:
            return connection.scalar(text("SELECT :n").bindparams(n=number))

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        equal(list(threads.map(task, range(1000))), list(range(1000)))


@both
def set_(made):
    with made.connect() as connection:
        connection.execute(text("SET search_path = pg_catalog"))
        connection.commit()
        others = [made.connect() for _ in range(OTHERS)]
        for other in others:
            other.execute(text("SELECT 1"))
        equal(connection.scalar(text("SHOW search_path")), "pg_catalog")
        for other in others:
            other.close()


@both
def reflection(made):
    Base.metadata.create_all(made)
    found = sqlalchemy.inspect(made)
    equal("c_alchemy" in found.get_table_names(), True)
    equal(len(found.get_columns("c_alchemy")), 6)


@both
def statement_timeout(made):
    def slow():
        with made.connect() as connection:
            connection.execute(text("SET LOCAL statement_timeout = '200ms'"))
            connection.execute(text("SELECT pg_sleep(10)"))

    equal(error_code(slow), "57014")


@check
def pool_asyncpg():
    async def whole():
        options = {}
        if os.environ["PGSSLMODE"] != "disable":
            options["ssl"] = ssl.create_default_context(cafile=os.environ["PGSSLROOTCERT"])
        made = create_async_engine(url("asyncpg"), pool_size=8, connect_args=options)

        async def task(number):
            async with made.begin() as connection:
                return await connection.scalar(text("SELECT :n + 0").bindparams(n=number))

        found = await asyncio.gather(*(task(number) for number in range(500)))
        await made.dispose()
        equal(found, list(range(500)))

    asyncio.run(whole())


if __name__ == "__main__":
    run(f"SQLAlchemy {sqlalchemy.__version__}")
