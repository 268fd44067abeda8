// The checks with pgjdbc; `java -cp postgresql.jar Checks.java` compiles and runs them.

import java.io.ByteArrayOutputStream;
import java.io.StringReader;
import java.math.BigDecimal;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Savepoint;
import java.sql.Statement;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyIn;
import org.postgresql.util.PSQLException;

final class Checks {
    static final int STATEMENTS = 1200;
    static final int BOUND_S = 240;
    static final String TEXT = "naïve café – Ἀθήνα – 日本語 – العربية – 🐘";
    static final int MEGABYTES =
        Integer.parseInt(System.getenv().getOrDefault("CHECK_MEGABYTES", "50"));

    interface Check {
        void run(Connection connection) throws Exception;
    }

    static final class Differs extends RuntimeException {
        Differs(String text) {
            super(text);
        }
    }

    static void equal(Object found, Object wanted) {
        if (!Objects.equals(found, wanted)) {
            throw new Differs("%.150s instead of %.150s".formatted(found, wanted));
        }
    }

    static SQLException fails(String code, Callable<?> work) throws Exception {
        try {
            work.call();
        } catch (SQLException error) {
            equal(error.getSQLState(), code);
            return error;
        }
        throw new Differs("no error " + code);
    }

    /** Connects from libpq's variables, with these properties of the driver. */
    static Connection connect(String... options) throws SQLException {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        properties.setProperty("sslmode", System.getenv("PGSSLMODE"));
        properties.setProperty("sslrootcert", System.getenv("PGSSLROOTCERT"));
        properties.setProperty("ApplicationName", "checks");
        properties.setProperty("socketTimeout", String.valueOf(BOUND_S));
        String database = "postgres";
        for (int i = 0; i < options.length; i += 2) {
            if (options[i].equals("database")) {
                database = options[i + 1];
            } else {
                properties.setProperty(options[i], options[i + 1]);
            }
        }
        String server = System.getenv("PGHOST") + ":" + System.getenv("PGPORT");
        return DriverManager.getConnection("jdbc:postgresql://" + server + "/" + database,
            properties);
    }

    static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    static Object value(Connection connection, String sql, Object... parameters)
        throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            return value(statement, parameters);
        }
    }

    static Object value(PreparedStatement statement, Object... parameters) throws SQLException {
        for (int i = 0; i < parameters.length; i++) {
            statement.setObject(i + 1, parameters[i]);
        }
        try (ResultSet rows = statement.executeQuery()) {
            rows.next();
            return rows.getObject(1);
        }
    }

    /** Lets others hold a transaction each, so that the next statement meets another backend. */
    static void occupied(Check work) throws Exception {
        List<Connection> others = new ArrayList<>();
        try {
            for (int i = 0; i < 3; i++) {
                Connection other = connect();
                others.add(other);
                other.setAutoCommit(false);
                execute(other, "SELECT 1");
            }
            work.run(others.get(0));
        } finally {
            for (Connection other : others) {
                other.close();
            }
        }
    }

    static void table(Connection connection, String name, String columns) throws SQLException {
        execute(connection, "DROP TABLE IF EXISTS " + name);
        execute(connection, "CREATE TABLE " + name + " (" + columns + ")");
    }

    static final Map<String, Check> CHECKS = new LinkedHashMap<>();

    static void connections() {
        CHECKS.put("connect", connection -> {
            equal(value(connection, "SELECT current_user::text"), "postgres");
            equal(value(connection, "SHOW application_name"), "checks");
            equal(connection.isValid(5), true);
            try (Connection other = connect("options", "-c work_mem=5MB")) {
                equal(value(other, "SHOW work_mem"), "5MB");
            }
        });
        CHECKS.put("unknown_database", ignored ->
            fails("3D000", () -> connect("database", "nowhere")));
        CHECKS.put("many_connections", ignored -> {
            for (int i = 0; i < 100; i++) {
                try (Connection connection = connect()) {
                    equal(value(connection, "SELECT ?::int", i), i);
                }
            }
        });
        CHECKS.put("pool", ignored -> pool());
        CHECKS.put("notify", listener -> {
            execute(listener, "LISTEN c_channel");
            occupied(other -> {
                try (Connection sender = connect()) {
                    execute(sender, "NOTIFY c_channel, 'hello'");
                }
                PGNotification[] found = listener.unwrap(PGConnection.class).getNotifications(5000);
                equal(found == null ? 0 : found.length, 1);
                equal(found[0].getParameter(), "hello");
            });
        });
    }

    static void pool() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(8);
        ThreadLocal<Connection> own = new ThreadLocal<>();
        List<Future<Object>> answers = new ArrayList<>();
        for (int i = 0; i < 1000; i++) {
            int number = i;
            answers.add(threads.submit(() -> {
                if (own.get() == null) {
                    own.set(connect());
                }
                return value(own.get(), "SELECT ?::int", number);
            }));
        }
        for (int i = 0; i < 1000; i++) {
            equal(answers.get(i).get(), i);
        }
        threads.shutdown();
        threads.awaitTermination(5, TimeUnit.SECONDS);
    }

    static void queries() {
        CHECKS.put("query", connection -> {
            try (Statement statement = connection.createStatement();
                ResultSet rows =
                    statement.executeQuery("SELECT i, NULL FROM generate_series(1, 3) i")) {
                for (int i = 1; rows.next(); i++) {
                    equal(rows.getInt(1), i);
                    equal(rows.getObject(2), null);
                }
            }
        });
        CHECKS.put("query_modes", ignored -> {
            for (String mode : List.of("simple", "extended", "extendedForPrepared",
                "extendedCacheEverything")) {
                try (Connection connection = connect("preferQueryMode", mode)) {
                    for (int i = 0; i < 20; i++) {
                        equal(value(connection, "SELECT ?::int + 1", i), i + 1);
                    }
                    occupied(other -> equal(value(connection, "SELECT ?::int + 1", 41), 42));
                }
            }
        });
        CHECKS.put("multi_statement", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.execute("SELECT 1; SELECT 2");
                equal(statement.getMoreResults(), true);
                statement.getResultSet().next();
            }
        });
        CHECKS.put("large_result", connection -> {
            String query = "SELECT repeat('x', 1000000) FROM generate_series(1, " + MEGABYTES + ")";
            long sum = 0;
            try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery(query)) {
                while (rows.next()) {
                    sum += rows.getString(1).length();
                }
            }
            equal(sum, MEGABYTES * 1_000_000L);
        });
        CHECKS.put("large_parameter", connection -> {
            String large = "0123456789".repeat(100_000 * MEGABYTES);
            equal(value(connection, "SELECT length(?::text)", large), large.length());
        });
        CHECKS.put("notice", connection -> {
            try (Statement statement = connection.createStatement()) {
                statement.execute("DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$");
                equal(statement.getWarnings().getMessage(), "said 1");
            }
        });
        CHECKS.put("cancel", connection -> {
            try (Statement statement = connection.createStatement()) {
                Thread other = new Thread(() -> {
                    try {
                        Thread.sleep(300);
                        statement.cancel();
                    } catch (Exception error) {
                        System.err.println(error);
                    }
                });
                other.start();
                fails("57014", () -> statement.execute("SELECT pg_sleep(30)"));
                other.join();
                statement.setQueryTimeout(1);
                fails("57014", () -> statement.execute("SELECT pg_sleep(30)"));
                statement.setQueryTimeout(0);
            }
            equal(value(connection, "SELECT 1"), 1);
        });
        CHECKS.put("types", Checks::types);
        CHECKS.put("unicode", connection -> {
            equal(value(connection, "SELECT ?::text", TEXT), TEXT);
            equal(value(connection, "SELECT '" + TEXT + "'"), TEXT);
        });
    }

    static void types(Connection connection) throws Exception {
        try (Connection binary = connect("prepareThreshold", "-1")) {
            for (Connection each : List.of(connection, binary)) {
                equal(value(each, "SELECT ?::int8", 7L), 7L);
                equal(value(each, "SELECT ?::float8", 1.5), 1.5);
                BigDecimal number = new BigDecimal("12345678901234567890.123");
                equal(value(each, "SELECT ?::numeric", number), number);
                equal(value(each, "SELECT ?::bool", true), true);
                UUID token = UUID.fromString("12345678-1234-5678-1234-567812345678");
                equal(value(each, "SELECT ?::uuid", token), token);
                byte[] bytes = {0, 1, -1};
                equal(Arrays.equals((byte[]) value(each, "SELECT ?::bytea", bytes), bytes), true);
                Array parts = each.createArrayOf("text", new Object[] {"a", null});
                Array found = (Array) value(each, "SELECT ?::text[]", parts);
                equal(Arrays.asList((Object[]) found.getArray()), Arrays.asList("a", null));
                OffsetDateTime at = OffsetDateTime.of(2020, 1, 2, 3, 4, 5, 678_000, ZoneOffset.UTC);
                try (PreparedStatement statement = each.prepareStatement("SELECT ?::timestamptz")) {
                    statement.setObject(1, at);
                    ResultSet rows = statement.executeQuery();
                    rows.next();
                    equal(rows.getObject(1, OffsetDateTime.class).toInstant(), at.toInstant());
                }
            }
        }
    }

    static void prepared() {
        CHECKS.put("prepared", connection -> {
            // The driver gives it a name from the fifth execution on.
            try (PreparedStatement statement = connection.prepareStatement("SELECT ?::int + 1")) {
                for (int i = 0; i < 20; i++) {
                    equal(value(statement, i), i + 1);
                }
                occupied(other -> equal(value(statement, 41), 42));
            }
        });
        CHECKS.put("prepared_many", ignored -> {
            try (Connection connection =
                connect("prepareThreshold", "1", "preparedStatementCacheQueries", "2000")) {
                for (int round = 0; round < 2; round++) {
                    for (int i = 0; i < STATEMENTS; i++) {
                        equal(value(connection, "SELECT " + i + " + ?::int", 1), i + 1);
                    }
                }
            }
        });
        CHECKS.put("prepared_shared", ignored -> {
            try (Connection one = connect("prepareThreshold", "1");
                Connection two = connect("prepareThreshold", "1")) {
                for (int i = 0; i < 5; i++) {
                    occupied(other -> equal(value(one, "SELECT 'one'"), "one"));
                    equal(value(two, "SELECT 'two'"), "two");
                }
            }
        });
        CHECKS.put("deallocate", ignored -> {
            try (Connection connection = connect("prepareThreshold", "1")) {
                equal(value(connection, "SELECT ?::int", 1), 1);
                // The driver notices this and prepares again.
                execute(connection, "DEALLOCATE ALL");
                equal(value(connection, "SELECT ?::int", 2), 2);
            }
        });
        CHECKS.put("discard_all", ignored -> {
            try (Connection connection = connect("prepareThreshold", "1")) {
                equal(value(connection, "SELECT ?::int", 1), 1);
                execute(connection, "SET work_mem = '5MB'");
                execute(connection, "DISCARD ALL");
                equal(value(connection, "SHOW work_mem"), "4MB");
                equal(value(connection, "SELECT ?::int", 2), 2);
            }
        });
        CHECKS.put("plan_changed", ignored -> {
            try (Connection connection = connect("prepareThreshold", "1")) {
                table(connection, "c_plan", "a int");
                execute(connection, "INSERT INTO c_plan VALUES (1)");
                equal(value(connection, "SELECT * FROM c_plan"), 1);
                execute(connection, "ALTER TABLE c_plan ADD b int");
                // The driver prepares it again by itself outside transactions.
                equal(value(connection, "SELECT * FROM c_plan"), 1);
            }
        });
        CHECKS.put("sql_prepare", connection -> {
            execute(connection, "PREPARE by_sql (int) AS SELECT $1 + 1");
            occupied(other -> {
                equal(value(connection, "EXECUTE by_sql (41)"), 42);
                fails("26000", () -> value(other, "EXECUTE by_sql (1)"));
            });
        });
        CHECKS.put("batch", ignored -> {
            for (String rewrite : List.of("false", "true")) {
                try (Connection connection = connect("reWriteBatchedInserts", rewrite)) {
                    batch(connection);
                }
            }
        });
    }

    static void batch(Connection connection) throws Exception {
        table(connection, "c_batch", "a int CHECK (a >= 0)");
        try (PreparedStatement statement =
            connection.prepareStatement("INSERT INTO c_batch VALUES (?)")) {
            for (int i = 0; i < 5000; i++) {
                statement.setInt(1, i);
                statement.addBatch();
            }
            equal(statement.executeBatch().length, 5000);
            for (int i : new int[] {1, -1, 2}) {
                statement.setInt(1, i);
                statement.addBatch();
            }
            try {
                statement.executeBatch();
                throw new Differs("no error in the batch");
            } catch (BatchUpdateException error) {
                equal(error.getSQLState(), "23514");
            }
        }
        equal(value(connection, "SELECT count(DISTINCT a) FROM c_batch"), 5000L);
    }

    static void transactions() {
        CHECKS.put("transaction", connection -> {
            table(connection, "c_transaction", "a int");
            connection.setAutoCommit(false);
            execute(connection, "INSERT INTO c_transaction VALUES (1)");
            connection.rollback();
            execute(connection, "INSERT INTO c_transaction VALUES (2)");
            connection.commit();
            equal(value(connection, "SELECT sum(a) FROM c_transaction"), 2L);
        });
        CHECKS.put("savepoint", connection -> {
            connection.setAutoCommit(false);
            Savepoint point = connection.setSavepoint("s");
            fails("22012", () -> value(connection, "SELECT 1/0"));
            connection.rollback(point);
            equal(value(connection, "SELECT 1"), 1);
            connection.commit();
        });
        CHECKS.put("autosave", ignored -> {
            try (Connection connection = connect("autosave", "always")) {
                connection.setAutoCommit(false);
                fails("22012", () -> value(connection, "SELECT 1/0"));
                equal(value(connection, "SELECT 1"), 1);
            }
        });
        CHECKS.put("error", connection -> {
            PSQLException error = (PSQLException) fails("42P01", () ->
                value(connection, "SELECT 1 FROM nowhere"));
            equal(error.getServerErrorMessage().getPosition(), 15);
            equal(value(connection, "SELECT 1"), 1);
        });
        CHECKS.put("error_in_transaction", connection -> {
            connection.setAutoCommit(false);
            fails("22012", () -> value(connection, "SELECT 1/0"));
            fails("25P02", () -> value(connection, "SELECT 1"));
            connection.rollback();
            equal(value(connection, "SELECT 1"), 1);
        });
        CHECKS.put("read_only", connection -> {
            connection.setReadOnly(true);
            connection.setTransactionIsolation(Connection.TRANSACTION_SERIALIZABLE);
            connection.setAutoCommit(false);
            fails("25006", () -> {
                execute(connection, "CREATE TABLE never (a int)");
                return null;
            });
            connection.rollback();
            equal(value(connection, "SHOW transaction_isolation"), "serializable");
        });
        CHECKS.put("cursor", connection -> {
            connection.setAutoCommit(false);
            long sum = 0;
            try (Statement statement = connection.createStatement()) {
                statement.setFetchSize(100);
                ResultSet rows =
                    statement.executeQuery("SELECT i FROM generate_series(1, 10000) i");
                while (rows.next()) {
                    sum += rows.getInt(1);
                }
            }
            equal(sum, 50_005_000L);
            connection.commit();
        });
    }

    static void copies() {
        CHECKS.put("copy_in", connection -> {
            table(connection, "c_copy", "a int, b text");
            StringBuilder lines = new StringBuilder();
            for (int i = 0; i < 100_000; i++) {
                lines.append(i).append("\ttext ").append(i).append('\n');
            }
            long count = connection.unwrap(PGConnection.class).getCopyAPI()
                .copyIn("COPY c_copy FROM STDIN", new StringReader(lines.toString()));
            equal(count, 100_000L);
            equal(value(connection, "SELECT sum(a) FROM c_copy"), 4_999_950_000L);
        });
        CHECKS.put("copy_out", connection -> {
            ByteArrayOutputStream found = new ByteArrayOutputStream();
            long count = connection.unwrap(PGConnection.class).getCopyAPI()
                .copyOut("COPY (SELECT generate_series(1, 100000)) TO STDOUT", found);
            equal(count, 100_000L);
            equal(value(connection, "SELECT 1"), 1);
        });
        CHECKS.put("copy_abort", connection -> {
            table(connection, "c_copy_abort", "a int");
            CopyIn copy = connection.unwrap(PGConnection.class).getCopyAPI()
                .copyIn("COPY c_copy_abort FROM STDIN");
            copy.writeToCopy("1\n".getBytes(), 0, 2);
            copy.cancelCopy();
            fails("22P02", () -> connection.unwrap(PGConnection.class).getCopyAPI()
                .copyIn("COPY c_copy_abort FROM STDIN", new StringReader("no number\n")));
            equal(value(connection, "SELECT count(*) FROM c_copy_abort"), 0L);
        });
    }

    static void states() {
        CHECKS.put("set", connection -> {
            Map<String, String> settings = Map.of("work_mem", "7MB", "search_path", "pg_catalog",
                "statement_timeout", "12345ms", "my.tenant", "seven");
            for (Map.Entry<String, String> setting : settings.entrySet()) {
                execute(connection, "SET " + setting.getKey() + " = '" + setting.getValue() + "'");
            }
            occupied(other -> {
                for (Map.Entry<String, String> setting : settings.entrySet()) {
                    equal(value(connection, "SHOW " + setting.getKey()), setting.getValue());
                }
                equal(value(other, "SHOW work_mem"), "4MB");
            });
        });
        CHECKS.put("set_schema", connection -> {
            connection.setSchema("pg_catalog");
            connection.setClientInfo("ApplicationName", "other");
            occupied(other -> {
                equal(connection.getSchema(), "pg_catalog");
                equal(value(connection, "SHOW application_name"), "other");
                equal(other.getSchema(), "public");
            });
        });
        CHECKS.put("statement_timeout", ignored -> {
            try (Connection connection = connect("options", "-c statement_timeout=200")) {
                occupied(other ->
                    fails("57014", () -> value(connection, "SELECT pg_sleep(10)")));
            }
        });
        CHECKS.put("cursor_hold", connection -> {
            String declare = "DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9)";
            execute(connection, declare);
            occupied(other -> equal(value(connection, "FETCH 1 FROM c_hold"), 1));
        });
        CHECKS.put("temp_table", connection -> {
            execute(connection, "CREATE TEMP TABLE c_temporary (a int)");
            occupied(other -> {
                equal(value(connection, "SELECT count(*) FROM c_temporary"), 0L);
                fails("42P01", () -> value(other, "SELECT 1 FROM c_temporary"));
            });
        });
        CHECKS.put("advisory_lock", connection -> {
            equal(value(connection, "SELECT pg_try_advisory_lock(4716)"), true);
            occupied(other -> {
                equal(value(other, "SELECT pg_try_advisory_lock(4716)"), false);
                equal(value(connection, "SELECT pg_advisory_unlock(4716)"), true);
            });
        });
    }

    public static void main(String[] wanted) throws Exception {
        connections();
        queries();
        prepared();
        transactions();
        copies();
        states();
        System.out.println("version pgjdbc " + org.postgresql.util.DriverInfo.DRIVER_VERSION
            + ", Java " + System.getProperty("java.version"));
        for (Map.Entry<String, Check> check : CHECKS.entrySet()) {
            if (wanted.length > 0 && !List.of(wanted).contains(check.getKey())) {
                continue;
            }
            String outcome = "ok";
            try (Connection connection = connect()) {
                check.getValue().run(connection);
            } catch (Differs error) {
                outcome = "differs: " + error.getMessage();
            } catch (Throwable error) {
                outcome = "error: " + error;
            }
            System.out.println(check.getKey() + " " + String.join(" ", outcome.split("\\s+")));
        }
        System.exit(0);
    }
}
