// The checks with pgx: its own interface in all its modes, its pool, its pipeline and database/sql.
package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
)

const (
	statements = 1200
	bound      = 240 * time.Second
	text       = "naïve café – Ἀθήνα – 日本語 – العربية – 🐘"
)

// differs is the panic of a check that found something else than it expected.
type differs string

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func equal(found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(differs(fmt.Sprintf("%.150s instead of %.150s", fmt.Sprint(found), fmt.Sprint(wanted))))
	}
}

// fails expects an error with this SQLSTATE.
func fails(code string, err error) *pgconn.PgError {
	var found *pgconn.PgError
	if !errors.As(err, &found) {
		panic(differs(fmt.Sprintf("%v instead of SQLSTATE %s", err, code)))
	}
	equal(found.Code, code)
	return found
}

func megabytes() int {
	count, err := strconv.Atoi(os.Getenv("CHECK_MEGABYTES"))
	if err != nil {
		return 50
	}
	return count
}

// connected runs work on a connection with these settings of a connection string.
func connected(ctx context.Context, options string, work func(*pgx.Conn)) {
	config, err := pgx.ParseConfig("application_name=checks " + options)
	must(err)
	connection, err := pgx.ConnectConfig(ctx, config)
	must(err)
	defer func() { _ = connection.Close(context.Background()) }()
	work(connection)
}

func value[T any](ctx context.Context, c *pgx.Conn, query string, arguments ...any) T {
	var found T
	must(c.QueryRow(ctx, query, arguments...).Scan(&found))
	return found
}

func exec(ctx context.Context, c *pgx.Conn, query string, arguments ...any) error {
	_, err := c.Exec(ctx, query, arguments...)
	return err
}

// occupied lets others hold a transaction each, so that the next statement meets another backend.
func occupied(ctx context.Context, work func(other *pgx.Conn)) {
	var last *pgx.Conn
	for range 3 {
		other, err := pgx.Connect(ctx, "")
		must(err)
		defer func() { _ = other.Close(context.Background()) }()
		must(exec(ctx, other, "BEGIN"))
		must(exec(ctx, other, "SELECT 1"))
		last = other
	}
	work(last)
}

type named struct {
	name string
	work func(context.Context, *pgx.Conn)
}

var checks = []named{
	{"connect", func(ctx context.Context, c *pgx.Conn) {
		equal(value[string](ctx, c, "SELECT current_user::text"), "postgres")
		equal(c.PgConn().ParameterStatus("application_name"), "checks")
		connected(ctx, "work_mem=5MB", func(c *pgx.Conn) {
			equal(value[string](ctx, c, "SHOW work_mem"), "5MB")
		})
	}},
	{"unknown_database", func(ctx context.Context, _ *pgx.Conn) {
		_, err := pgx.Connect(ctx, "dbname=nowhere")
		fails("3D000", err)
	}},
	{"many_connections", func(ctx context.Context, _ *pgx.Conn) {
		for i := range 100 {
			connected(ctx, "", func(c *pgx.Conn) { equal(value[int](ctx, c, "SELECT $1::int", i), i) })
		}
	}},
	{"query", func(ctx context.Context, c *pgx.Conn) {
		rows, err := c.Query(ctx, "SELECT i, i::text AS t FROM generate_series(1, 3) i")
		must(err)
		found, err := pgx.CollectRows(rows, pgx.RowToMap)
		must(err)
		equal(len(found), 3)
		equal(found[2]["i"], int32(3))
	}},
	{"query_modes", queryModes},
	{"multi_statement", func(ctx context.Context, c *pgx.Conn) {
		results, err := c.PgConn().Exec(ctx, "SELECT 1; SELECT 2; SELECT 3").ReadAll()
		must(err)
		equal(len(results), 3)
		equal(string(results[2].Rows[0][0]), "3")
	}},
	{"prepared", func(ctx context.Context, c *pgx.Conn) {
		_, err := c.Prepare(ctx, "plus", "SELECT $1::int + 1")
		must(err)
		for i := range 20 {
			equal(value[int](ctx, c, "plus", i), i+1)
		}
		occupied(ctx, func(*pgx.Conn) { equal(value[int](ctx, c, "plus", 41), 42) })
		must(c.Deallocate(ctx, "plus"))
	}},
	{"prepared_many", func(ctx context.Context, c *pgx.Conn) {
		for range 2 {
			for i := range statements {
				name := fmt.Sprintf("s%d", i)
				_, err := c.Prepare(ctx, name, fmt.Sprintf("SELECT %d + $1::int", i))
				must(err)
				equal(value[int](ctx, c, name, 1), i+1)
			}
		}
	}},
	{"prepared_shared", func(ctx context.Context, one *pgx.Conn) {
		connected(ctx, "", func(two *pgx.Conn) {
			for c, said := range map[*pgx.Conn]string{one: "one", two: "two"} {
				_, err := c.Prepare(ctx, "shared", "SELECT '"+said+"'")
				must(err)
			}
			for range 5 {
				occupied(ctx, func(*pgx.Conn) { equal(value[string](ctx, one, "shared"), "one") })
				equal(value[string](ctx, two, "shared"), "two")
			}
		})
	}},
	{"deallocate", func(ctx context.Context, c *pgx.Conn) {
		_, err := c.Prepare(ctx, "mine", "SELECT 1")
		must(err)
		must(c.DeallocateAll(ctx))
		equal(value[int](ctx, c, "SELECT 2"), 2)
		_, err = c.PgConn().ExecPrepared(ctx, "mine", nil, nil, nil).Close()
		fails("26000", err)
	}},
	{"discard_all", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "SET work_mem = '5MB'"))
		must(exec(ctx, c, "DISCARD ALL", pgx.QueryExecModeSimpleProtocol))
		found := value[string](ctx, c, "SHOW work_mem", pgx.QueryExecModeSimpleProtocol)
		equal(found, "4MB")
	}},
	{"plan_changed", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DROP TABLE IF EXISTS c_plan"))
		must(exec(ctx, c, "CREATE TABLE c_plan (a int)"))
		_, err := c.Prepare(ctx, "plan", "SELECT * FROM c_plan")
		must(err)
		must(exec(ctx, c, "plan"))
		must(exec(ctx, c, "ALTER TABLE c_plan ADD b int"))
		fails("0A000", exec(ctx, c, "plan"))
	}},
	{"sql_prepare", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "PREPARE by_sql AS SELECT 42"))
		occupied(ctx, func(other *pgx.Conn) {
			must(exec(ctx, c, "EXECUTE by_sql", pgx.QueryExecModeSimpleProtocol))
			fails("26000", exec(ctx, other, "EXECUTE by_sql", pgx.QueryExecModeSimpleProtocol))
		})
	}},
	{"transaction", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DROP TABLE IF EXISTS c_transaction"))
		must(exec(ctx, c, "CREATE TABLE c_transaction (a int)"))
		for i, end := range []func(pgx.Tx) error{
			func(t pgx.Tx) error { return t.Rollback(ctx) }, func(t pgx.Tx) error { return t.Commit(ctx) },
		} {
			transaction, err := c.Begin(ctx)
			must(err)
			must(exec(ctx, c, "INSERT INTO c_transaction VALUES ($1)", i))
			must(end(transaction))
		}
		equal(value[[]int](ctx, c, "SELECT array_agg(a) FROM c_transaction"), []int{1})
	}},
	{"savepoint", func(ctx context.Context, c *pgx.Conn) {
		must(pgx.BeginFunc(ctx, c, func(outer pgx.Tx) error {
			fails("22012", pgx.BeginFunc(ctx, outer, func(inner pgx.Tx) error {
				_, err := inner.Exec(ctx, "SELECT 1/0")
				return err
			}))
			equal(value[int](ctx, c, "SELECT 1"), 1)
			return nil
		}))
	}},
	{"error", func(ctx context.Context, c *pgx.Conn) {
		found := fails("42P01", exec(ctx, c, "SELECT 1 FROM nowhere"))
		equal(found.Message, `relation "nowhere" does not exist`)
		equal(found.Position, int32(15))
		equal(value[int](ctx, c, "SELECT 1"), 1)
	}},
	{"error_in_transaction", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "BEGIN"))
		fails("22012", exec(ctx, c, "SELECT 1/0"))
		fails("25P02", exec(ctx, c, "SELECT 1"))
		must(exec(ctx, c, "ROLLBACK"))
		equal(value[int](ctx, c, "SELECT 1"), 1)
	}},
	{"read_only", func(ctx context.Context, c *pgx.Conn) {
		options := pgx.TxOptions{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly}
		transaction, err := c.BeginTx(ctx, options)
		must(err)
		fails("25006", exec(ctx, c, "CREATE TABLE never (a int)"))
		must(transaction.Rollback(ctx))
	}},
	{"copy_in", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DROP TABLE IF EXISTS c_copy"))
		must(exec(ctx, c, "CREATE TABLE c_copy (a int, b text)"))
		source := pgx.CopyFromSlice(100_000, func(i int) ([]any, error) {
			return []any{i, fmt.Sprintf("text %d", i)}, nil
		})
		count, err := c.CopyFrom(ctx, pgx.Identifier{"c_copy"}, []string{"a", "b"}, source)
		must(err)
		equal(count, int64(100_000))
		equal(value[int](ctx, c, "SELECT sum(a) FROM c_copy"), 4_999_950_000)
	}},
	{"copy_out", func(ctx context.Context, c *pgx.Conn) {
		var found bytes.Buffer
		query := "COPY (SELECT generate_series(1, 100000)) TO STDOUT"
		_, err := c.PgConn().CopyTo(ctx, &found, query)
		must(err)
		equal(bytes.Count(found.Bytes(), []byte("\n")), 100_000)
		equal(value[int](ctx, c, "SELECT 1"), 1)
	}},
	{"copy_abort", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DROP TABLE IF EXISTS c_copy_abort"))
		must(exec(ctx, c, "CREATE TABLE c_copy_abort (a int)"))
		reader, writer := io.Pipe()
		go func() {
			_, _ = writer.Write([]byte("1\n"))
			_ = writer.CloseWithError(errors.New("given up"))
		}()
		_, err := c.PgConn().CopyFrom(ctx, reader, "COPY c_copy_abort FROM STDIN")
		fails("57014", err)
		_, err = c.PgConn().CopyFrom(ctx, strings.NewReader("x\n"), "COPY c_copy_abort FROM STDIN")
		fails("22P02", err)
		equal(value[int](ctx, c, "SELECT count(*) FROM c_copy_abort"), 0)
	}},
	{"cancel", func(ctx context.Context, c *pgx.Conn) {
		timer := time.AfterFunc(300*time.Millisecond, func() { _ = c.PgConn().CancelRequest(ctx) })
		defer timer.Stop()
		fails("57014", exec(ctx, c, "SELECT pg_sleep(30)"))
		equal(value[int](ctx, c, "SELECT 1"), 1)
	}},
	{"pipeline", func(ctx context.Context, c *pgx.Conn) {
		batch := &pgx.Batch{}
		for i := range 2000 {
			batch.Queue("SELECT $1::int", i)
		}
		results := c.SendBatch(ctx, batch)
		for i := range 2000 {
			var found int
			must(results.QueryRow().Scan(&found))
			equal(found, i)
		}
		must(results.Close())
		rawPipeline(ctx, c)
	}},
	{"pipeline_error", func(ctx context.Context, c *pgx.Conn) {
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		batch.Queue("SELECT 1/$1::int", 0)
		batch.Queue("SELECT 2")
		fails("22012", c.SendBatch(ctx, batch).Close())
		equal(value[int](ctx, c, "SELECT 1"), 1)
	}},
	{"batch", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DROP TABLE IF EXISTS c_batch"))
		must(exec(ctx, c, "CREATE TABLE c_batch (a int)"))
		batch := &pgx.Batch{}
		for i := range 5000 {
			batch.Queue("INSERT INTO c_batch VALUES ($1)", i)
		}
		must(c.SendBatch(ctx, batch).Close())
		equal(value[int](ctx, c, "SELECT count(*) FROM c_batch"), 5000)
	}},
	{"large_result", func(ctx context.Context, c *pgx.Conn) {
		query := "SELECT repeat('x', 1000000) FROM generate_series(1, $1::int)"
		rows, err := c.Query(ctx, query, megabytes())
		must(err)
		sum := 0
		for rows.Next() {
			sum += len(rows.RawValues()[0])
		}
		must(rows.Err())
		equal(sum, megabytes()*1_000_000)
	}},
	{"large_parameter", func(ctx context.Context, c *pgx.Conn) {
		large := strings.Repeat("0123456789", 100_000*megabytes())
		equal(value[int](ctx, c, "SELECT length($1::text)", large), len(large))
		equal(value[int](ctx, c, "SELECT length('"+large+"')"), len(large))
	}},
	{"notice", func(ctx context.Context, _ *pgx.Conn) {
		config, err := pgx.ParseConfig("")
		must(err)
		var found []string
		config.OnNotice = func(_ *pgconn.PgConn, notice *pgconn.Notice) {
			found = append(found, notice.Message)
		}
		c, err := pgx.ConnectConfig(ctx, config)
		must(err)
		must(exec(ctx, c, "DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$"))
		must(c.Close(ctx))
		equal(found, []string{"said 1"})
	}},
	{"set", func(ctx context.Context, c *pgx.Conn) {
		settings := map[string]string{"work_mem": "7MB", "search_path": "pg_catalog",
			"timezone": "Asia/Tokyo", "statement_timeout": "12345ms", "my.tenant": "seven"}
		for name, wanted := range settings {
			must(exec(ctx, c, "SET "+name+" = '"+wanted+"'"))
		}
		occupied(ctx, func(other *pgx.Conn) {
			for name, wanted := range settings {
				equal(value[string](ctx, c, "SHOW "+name), wanted)
			}
			equal(value[string](ctx, other, "SHOW work_mem"), "4MB")
		})
	}},
	{"statement_timeout", func(ctx context.Context, _ *pgx.Conn) {
		connected(ctx, "statement_timeout=200", func(c *pgx.Conn) {
			occupied(ctx, func(*pgx.Conn) { fails("57014", exec(ctx, c, "SELECT pg_sleep(10)")) })
		})
	}},
	{"pool", func(ctx context.Context, _ *pgx.Conn) {
		pool, err := pgxpool.New(ctx, "pool_max_conns=8")
		must(err)
		defer pool.Close()
		tasks(func(i int) error {
			var found int
			err := pool.QueryRow(ctx, "SELECT $1::int", i).Scan(&found)
			if err == nil && found != i {
				err = fmt.Errorf("%d instead of %d", found, i)
			}
			return err
		})
	}},
	{"pool_database_sql", func(ctx context.Context, _ *pgx.Conn) {
		pool, err := sql.Open("pgx", "")
		must(err)
		pool.SetMaxOpenConns(8)
		statement, err := pool.PrepareContext(ctx, "SELECT $1::int")
		must(err)
		tasks(func(i int) error {
			var found int
			err := statement.QueryRowContext(ctx, i).Scan(&found)
			if err == nil && found != i {
				err = fmt.Errorf("%d instead of %d", found, i)
			}
			return err
		})
		must(pool.Close())
	}},
	{"notify", func(ctx context.Context, listener *pgx.Conn) {
		must(exec(ctx, listener, "LISTEN c_channel"))
		connected(ctx, "", func(sender *pgx.Conn) {
			occupied(ctx, func(*pgx.Conn) {
				must(exec(ctx, sender, "NOTIFY c_channel, 'hello'"))
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				found, err := listener.WaitForNotification(short)
				must(err)
				equal(found.Payload, "hello")
			})
		})
	}},
	{"cursor", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "BEGIN"))
		must(exec(ctx, c, "DECLARE c_cursor CURSOR FOR SELECT generate_series(1, 1000)"))
		equal(value[int](ctx, c, "FETCH ABSOLUTE 500 FROM c_cursor"), 500)
		must(exec(ctx, c, "COMMIT"))
	}},
	{"cursor_hold", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9)"))
		occupied(ctx, func(*pgx.Conn) { equal(value[int](ctx, c, "FETCH 1 FROM c_hold"), 1) })
	}},
	{"temp_table", func(ctx context.Context, c *pgx.Conn) {
		must(exec(ctx, c, "CREATE TEMP TABLE c_temporary (a int)"))
		occupied(ctx, func(other *pgx.Conn) {
			equal(value[int](ctx, c, "SELECT count(*) FROM c_temporary"), 0)
			fails("42P01", exec(ctx, other, "SELECT 1 FROM c_temporary"))
		})
	}},
	{"advisory_lock", func(ctx context.Context, c *pgx.Conn) {
		equal(value[bool](ctx, c, "SELECT pg_try_advisory_lock(4715)"), true)
		occupied(ctx, func(other *pgx.Conn) {
			equal(value[bool](ctx, other, "SELECT pg_try_advisory_lock(4715)"), false)
			equal(value[bool](ctx, c, "SELECT pg_advisory_unlock(4715)"), true)
		})
	}},
	{"types", func(ctx context.Context, c *pgx.Conn) {
		moment := time.Date(2020, 1, 2, 3, 4, 5, 678_000, time.UTC)
		equal(value[time.Time](ctx, c, "SELECT $1::timestamptz", moment).UTC(), moment)
		equal(value[[]byte](ctx, c, "SELECT $1::bytea", []byte{0, 1, 255}), []byte{0, 1, 255})
		equal(value[[]string](ctx, c, "SELECT $1::text[]", []string{"a", "b"}), []string{"a", "b"})
		equal(value[float64](ctx, c, "SELECT $1::float8", 1.5), 1.5)
		equal(value[*string](ctx, c, "SELECT $1::text", nil), (*string)(nil))
		found := value[map[string]any](ctx, c, "SELECT $1::jsonb", map[string]any{"a": 1})
		equal(found, map[string]any{"a": 1.0})
		equal(value[[16]byte](ctx, c, "SELECT $1::uuid", [16]byte{1, 2}), [16]byte{1, 2})
	}},
	{"unicode", func(ctx context.Context, c *pgx.Conn) {
		equal(value[string](ctx, c, "SELECT $1::text", text), text)
		equal(value[string](ctx, c, "SELECT '"+text+"'"), text)
	}},
}

// queryModes runs a query in each way that pgx has to execute one.
func queryModes(ctx context.Context, _ *pgx.Conn) {
	for _, mode := range []string{
		"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol",
	} {
		connected(ctx, "default_query_exec_mode="+mode, func(c *pgx.Conn) {
			for i := range 20 {
				equal(value[int](ctx, c, "SELECT $1::int + 1", i), i+1)
			}
			occupied(ctx, func(*pgx.Conn) {
				equal(value[int](ctx, c, "SELECT $1::int + 1", 41), 42)
			})
		})
	}
}

// rawPipeline sends batches before it reads the first answer.
func rawPipeline(ctx context.Context, c *pgx.Conn) {
	pipeline := c.PgConn().StartPipeline(ctx)
	for i := range 100 {
		parameters := [][]byte{[]byte(strconv.Itoa(i))}
		pipeline.SendQueryParams("SELECT $1::text", parameters, nil, nil, nil)
		must(pipeline.Sync())
	}
	for i := range 100 {
		results, err := pipeline.GetResults()
		must(err)
		read := results.(*pgconn.ResultReader).Read()
		equal(string(read.Rows[0][0]), strconv.Itoa(i))
		_, err = pipeline.GetResults()
		must(err)
	}
	must(pipeline.Close())
}

// tasks runs 1,000 calls on 32 threads and expects no error.
func tasks(task func(int) error) {
	failed, numbers := make(chan error, 1000), make(chan int)
	var group sync.WaitGroup
	for range 32 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range numbers {
				if err := task(i); err != nil {
					failed <- err
				}
			}
		}()
	}
	for i := range 1000 {
		numbers <- i
	}
	close(numbers)
	group.Wait()
	close(failed)
	must(<-failed)
}

// outcome runs a check on a connection of its own and says how it went.
func outcome(check named) (said string) {
	defer func() {
		switch found := recover().(type) {
		case nil:
			said = "ok"
		case differs:
			said = "differs: " + string(found)
		default:
			said = "error: " + strings.Join(strings.Fields(fmt.Sprint(found)), " ")
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	connected(ctx, "", func(c *pgx.Conn) { check.work(ctx, c) })
	return "ok"
}

// version is that of pgx in this program.
func version() string {
	build, _ := debug.ReadBuildInfo()
	for _, module := range build.Deps {
		if module.Path == "github.com/jackc/pgx/v5" {
			return module.Version
		}
	}
	return "unknown"
}

func main() {
	fmt.Println("version pgx", version())
	for _, check := range checks {
		if len(os.Args) == 1 || slices.Contains(os.Args[1:], check.name) {
			fmt.Println(check.name, outcome(check))
		}
	}
}
