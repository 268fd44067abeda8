// The checks with node-postgres and its modules for cursors, streams and COPY.

"use strict";

const fs = require("node:fs");
const { Readable } = require("node:stream");
const { pipeline } = require("node:stream/promises");
const { setTimeout: sleep } = require("node:timers/promises");
const pg = require("pg");
const Cursor = require("pg-cursor");
const QueryStream = require("pg-query-stream");
const copy = require("pg-copy-streams");

const MEGABYTES = Number(process.env.CHECK_MEGABYTES ?? 50);
const STATEMENTS = 1200;
const BOUND_MS = 240_000;
const TEXT = "naïve café – Ἀθήνα – 日本語 – العربية – 🐘";

class Differs extends Error {}

function equal(found, wanted) {
  const [left, right] = [found, wanted].map((value) => String(JSON.stringify(value)));
  if (left !== right) {
    throw new Differs(`${left.slice(0, 150)} instead of ${right.slice(0, 150)}`);
  }
}

function configuration(options = {}) {
  const tls = process.env.PGSSLMODE === "disable"
    ? false
    : { ca: fs.readFileSync(process.env.PGSSLROOTCERT), rejectUnauthorized: true };
  return { application_name: "checks", ssl: tls, enableChannelBinding: true, ...options };
}

async function connected(work, options) {
  const client = new pg.Client(configuration(options));
  client.on("error", () => {});
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.end();
  }
}

async function value(client, query, values) {
  const { rows } = await client.query({ text: query, values, rowMode: "array" });
  return rows[0][0];
}

// Lets others hold a transaction each, so that the next statement meets another backend.
async function occupied(work, count = 3) {
  const others = [];
  try {
    for (let i = 0; i < count; i += 1) {
      const other = new pg.Client(configuration());
      await other.connect();
      others.push(other);
      await other.query("BEGIN");
      await other.query("SELECT 1");
    }
    return await work(others);
  } finally {
    await Promise.all(others.map((other) => other.end()));
  }
}

async function fails(code, work) {
  try {
    await work();
  } catch (error) {
    equal(error.code, code);
    return error;
  }
  throw new Differs(`no error ${code}`);
}

const CHECKS = {
  connect: () => connected(async (client) => {
    equal(await value(client, "SELECT current_user"), "postgres");
    equal(await value(client, "SHOW application_name"), "checks");
    equal(await value(client, "SHOW work_mem"), "5MB");
  }, { options: "-c work_mem=5MB" }),

  unknown_database: () => fails("3D000", () => connected(() => {}, { database: "nowhere" })),

  many_connections: async () => {
    for (let i = 0; i < 100; i += 1) {
      equal(await connected((client) => value(client, "SELECT $1::int", [i])), i);
    }
  },

  query: () => connected(async (client) => {
    const query = "SELECT i, NULL, i::text FROM generate_series(1, 2) i";
    const { rows } = await client.query({ text: query, rowMode: "array" });
    equal(rows, [[1, null, "1"], [2, null, "2"]]);
    equal((await client.query("SELECT 1 WHERE false")).rows, []);
    equal((await client.query("")).rows, []);
  }),

  multi_statement: () => connected(async (client) => {
    const results = await client.query("SELECT 1 AS a; SELECT 2 AS a");
    equal(results.map((result) => result.rows[0].a), [1, 2]);
  }),

  prepared: () => connected(async (client) => {
    const text = "SELECT $1::int + 1 AS a";
    const query = (n) => client.query({ name: "plus", text, values: [n] });
    for (let i = 0; i < 20; i += 1) {
      equal((await query(i)).rows[0].a, i + 1);
    }
    await occupied(async () => equal((await query(41)).rows[0].a, 42));
  }),

  prepared_many: () => connected(async (client) => {
    for (let round = 0; round < 2; round += 1) {
      for (let i = 0; i < STATEMENTS; i += 1) {
        const text = `SELECT ${i} + $1::int AS a`;
        equal((await client.query({ name: `s${i}`, text, values: [1] })).rows[0].a, i + 1);
      }
    }
  }),

  prepared_shared: () => connected((one) => connected(async (two) => {
    const ask = async (client, said) =>
      (await client.query({ name: "shared", text: `SELECT '${said}' AS a` })).rows[0].a;
    for (let i = 0; i < 5; i += 1) {
      await occupied(async () => equal(await ask(one, "one"), "one"), 1);
      equal(await ask(two, "two"), "two");
    }
  })),

  deallocate: () => connected(async (client) => {
    await client.query({ name: "mine", text: "SELECT 1" });
    await client.query("DEALLOCATE ALL");
    await fails("26000", () => client.query({ name: "mine", text: "SELECT 1" }));
    equal(await value(client, "SELECT 2"), 2);
  }),

  discard_all: () => connected(async (client) => {
    await client.query("SET work_mem = '5MB'");
    await client.query("DISCARD ALL");
    equal(await value(client, "SHOW work_mem"), "4MB");
  }),

  plan_changed: () => connected(async (client) => {
    await client.query("DROP TABLE IF EXISTS c_plan; CREATE TABLE c_plan (a int)");
    const query = { name: "plan", text: "SELECT * FROM c_plan" };
    await client.query(query);
    await client.query("ALTER TABLE c_plan ADD b int");
    const error = await fails("0A000", () => client.query(query));
    equal(error.message, "cached plan must not change result type");
  }),

  sql_prepare: () => connected(async (client) => {
    await client.query("PREPARE by_sql (int) AS SELECT $1 + 1");
    await occupied(async ([other]) => {
      equal(await value(client, "EXECUTE by_sql (41)"), 42);
      await fails("26000", () => other.query("EXECUTE by_sql (1)"));
    });
  }),

  transaction: () => connected(async (client) => {
    await client.query("DROP TABLE IF EXISTS c_transaction; CREATE TABLE c_transaction (a int)");
    for (const [number, end] of [[1, "ROLLBACK"], [2, "COMMIT"]]) {
      await client.query("BEGIN");
      await client.query("INSERT INTO c_transaction VALUES ($1)", [number]);
      await client.query(end);
    }
    equal(await value(client, "SELECT array_agg(a) FROM c_transaction"), [2]);
  }),

  savepoint: () => connected(async (client) => {
    await client.query("BEGIN");
    await client.query("SAVEPOINT s");
    await fails("22012", () => client.query("SELECT 1/0"));
    await client.query("ROLLBACK TO SAVEPOINT s");
    equal(await value(client, "SELECT 1"), 1);
    await client.query("COMMIT");
  }),

  error: () => connected(async (client) => {
    const error = await fails("42P01", () => client.query("SELECT 1 FROM nowhere"));
    equal([error.message, error.position], ['relation "nowhere" does not exist', "15"]);
    equal(await value(client, "SELECT 1"), 1);
  }),

  error_in_transaction: () => connected(async (client) => {
    await client.query("BEGIN");
    await fails("22012", () => client.query("SELECT 1/0"));
    await fails("25P02", () => client.query("SELECT 1"));
    await client.query("ROLLBACK");
    equal(await value(client, "SELECT 1"), 1);
  }),

  read_only: () => connected(async (client) => {
    await client.query("BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY");
    await fails("25006", () => client.query("CREATE TABLE never (a int)"));
    await client.query("ROLLBACK");
  }),

  copy_in: () => connected(async (client) => {
    await client.query("DROP TABLE IF EXISTS c_copy; CREATE TABLE c_copy (a int, b text)");
    const lines = function* () {
      for (let i = 0; i < 100_000; i += 1) yield `${i}\ttext ${i}\n`;
    };
    await pipeline(Readable.from(lines()), client.query(copy.from("COPY c_copy FROM STDIN")));
    equal(await value(client, "SELECT sum(a) FROM c_copy"), "4999950000");
  }),

  copy_out: () => connected(async (client) => {
    const stream = client.query(copy.to("COPY (SELECT generate_series(1, 100000)) TO STDOUT"));
    let count = 0;
    for await (const chunk of stream) count += chunk.toString().split("\n").length - 1;
    equal(count, 100_000);
    equal(await value(client, "SELECT 1"), 1);
  }),

  copy_abort: () => connected(async (client) => {
    await client.query("DROP TABLE IF EXISTS c_copy_abort; CREATE TABLE c_copy_abort (a int)");
    const broken = function* () {
      yield "1\n";
      throw new Error("given up");
    };
    try {
      const target = client.query(copy.from("COPY c_copy_abort FROM STDIN"));
      await pipeline(Readable.from(broken()), target);
      throw new Differs("no error");
    } catch (error) {
      if (error instanceof Differs) throw error;
    }
    equal(await value(client, "SELECT count(*) FROM c_copy_abort"), "0");
  }),

  cancel: () => connected(async (client) => {
    const { processID, secretKey } = client;
    const slow = fails("57014", () => client.query("SELECT pg_sleep(30)"));
    await sleep(300);
    const other = new pg.Connection(configuration());
    const ended = new Promise((done) => other.once("end", done));
    other.on("error", () => {});
    other.once("connect", () => other.cancel(processID, secretKey));
    other.once("sslconnect", () => other.cancel(processID, secretKey));
    other.connect(Number(process.env.PGPORT), process.env.PGHOST);
    await Promise.all([slow, ended]);
    equal(await value(client, "SELECT 1"), 1);
  }),

  // Queries wait in the client, but for the next, which is sent before the last has been read.
  pipeline: () => connected(async (client) => {
    const tasks = Array.from({ length: 2000 }, (_, i) => value(client, "SELECT $1::int", [i]));
    equal((await Promise.all(tasks)).every((found, i) => found === i), true);
  }),

  large_result: () => connected(async (client) => {
    const query = "SELECT repeat('x', 1000000) AS a FROM generate_series(1, $1)";
    const { rows } = await client.query(query, [MEGABYTES]);
    equal(rows.reduce((sum, row) => sum + row.a.length, 0), MEGABYTES * 1_000_000);
  }),

  large_parameter: () => connected(async (client) => {
    const text = "0123456789".repeat(100_000 * MEGABYTES);
    equal(await value(client, "SELECT length($1::text)", [text]), text.length);
    const query = { name: "large", text: `SELECT length('${text}') AS a` };
    equal((await client.query(query)).rows[0].a, text.length);
  }),

  notice: () => connected(async (client) => {
    const found = [];
    client.on("notice", (notice) => found.push(notice.message));
    await client.query("DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$");
    equal(found, ["said 1"]);
  }),

  set: () => connected(async (client) => {
    const settings = { work_mem: "7MB", search_path: "pg_catalog", timezone: "Asia/Tokyo",
      statement_timeout: "12345ms", "my.tenant": "seven" };
    for (const [name, wanted] of Object.entries(settings)) {
      await client.query(`SET ${name} = '${wanted}'`);
    }
    await occupied(async ([other]) => {
      for (const [name, wanted] of Object.entries(settings)) {
        equal(await value(client, `SHOW ${name}`), wanted);
      }
      equal(await value(other, "SHOW work_mem"), "4MB");
    });
  }),

  statement_timeout: () => connected((client) => occupied(() =>
    fails("57014", () => client.query("SELECT pg_sleep(10)"))), { statement_timeout: 200 }),

  pool: async () => {
    const pool = new pg.Pool(configuration({ max: 8 }));
    const tasks = Array.from({ length: 1000 }, (_, i) => value(pool, "SELECT $1::int", [i]));
    equal((await Promise.all(tasks)).every((found, i) => found === i), true);
    await pool.end();
  },

  notify: () => connected((listener) => connected(async (sender) => {
    await listener.query("LISTEN c_channel");
    const found = new Promise((done) => listener.once("notification", done));
    await occupied(async () => {
      await sender.query("NOTIFY c_channel, 'hello'");
      const said = await Promise.race([found, sleep(5000, { payload: "nothing" })]);
      equal(said.payload, "hello");
    });
  })),

  cursor: () => connected(async (client) => {
    await client.query("BEGIN");
    const cursor = client.query(new Cursor("SELECT i FROM generate_series(1, 1000) i"));
    equal((await cursor.read(10)).length, 10);
    await cursor.close();
    const stream = client.query(new QueryStream("SELECT i FROM generate_series(1, 10000) i"));
    let sum = 0;
    for await (const row of stream) sum += row.i;
    equal(sum, 50_005_000);
    await client.query("COMMIT");
  }),

  cursor_hold: () => connected(async (client) => {
    await client.query("DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9)");
    await occupied(async () => equal(await value(client, "FETCH 1 FROM c_hold"), 1));
  }),

  temp_table: () => connected(async (client) => {
    await client.query("CREATE TEMP TABLE c_temporary (a int)");
    await occupied(async ([other]) => {
      equal(await value(client, "SELECT count(*) FROM c_temporary"), "0");
      await fails("42P01", () => other.query("SELECT 1 FROM c_temporary"));
    });
  }),

  advisory_lock: () => connected(async (client) => {
    equal(await value(client, "SELECT pg_try_advisory_lock(4714)"), true);
    await occupied(async ([other]) => {
      equal(await value(other, "SELECT pg_try_advisory_lock(4714)"), false);
      equal(await value(client, "SELECT pg_advisory_unlock(4714)"), true);
    });
  }),

  types: () => connected(async (client) => {
    const sent = [["7", "int8"], [1.5, "float8"], [true, "bool"], [null, "text"],
      [{ a: [1, null] }, "jsonb"], [["a", null], "text[]"], ["12.30", "numeric"]];
    for (const [wanted, kind] of sent) {
      equal(await value(client, `SELECT $1::${kind}`, [wanted]), wanted);
    }
    const bytes = await value(client, "SELECT $1::bytea", [Buffer.from([0, 1, 255])]);
    equal([...bytes], [0, 1, 255]);
    const binary = { text: "SELECT $1::int AS a", values: [7], binary: true };
    equal((await client.query(binary)).rows[0].a, 7);
  }),

  unicode: () => connected(async (client) => {
    equal(await value(client, "SELECT $1::text", [TEXT]), TEXT);
    equal(await value(client, `SELECT '${TEXT}'`), TEXT);
  }),
};

async function main() {
  console.log("version", `node-postgres ${require("pg/package.json").version}, `
    + `node ${process.version}`);
  const asked = process.argv.slice(2);
  for (const [name, work] of Object.entries(CHECKS)) {
    if (asked.length > 0 && !asked.includes(name)) continue;
    const timeout = new AbortController();
    const bound = sleep(BOUND_MS, null, { signal: timeout.signal }).then(() => {
      throw new Error(`still running after ${BOUND_MS / 1000} s`);
    });
    bound.catch(() => {});
    try {
      await Promise.race([work(), bound]);
      console.log(name, "ok");
    } catch (error) {
      const kind = error instanceof Differs ? "differs" : "error";
      const said = `${error.code ?? ""} ${error.message}`;
      console.log(name, `${kind}: ${said.split(/\s+/).filter(Boolean).join(" ")}`);
    }
    timeout.abort();
  }
  process.exit(0);
}

main();
