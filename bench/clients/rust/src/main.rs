//! The checks with tokio-postgres. A check fails with a text that begins with `differs` or `error`.

use std::fmt::{Debug, Display};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt, pin_mut};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::sync::mpsc;
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSqlOwned, ToSql};
use tokio_postgres::{AsyncMessage, Client, Config, Error, NoTls, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

const STATEMENTS: i32 = 1200;
const BOUND: Duration = Duration::from_secs(240);
const TEXT: &str = "naïve café – Ἀθήνα – 日本語 – العربية – 🐘";

type Outcome<T = ()> = Result<T, String>;
type Check = (&'static str, fn(Client) -> Pin<Box<dyn Future<Output = Outcome>>>);

/// Makes a check of an async function.
macro_rules! checks {
    ($($name:ident as $text:literal),* $(,)?) => {
        const CHECKS: &[Check] = &[$(($text, |client| Box::pin($name(client)))),*];
    };
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn megabytes() -> usize {
    variable("CHECK_MEGABYTES").parse().unwrap_or(50)
}

fn said(error: impl Display) -> String {
    format!("error: {error}")
}

fn told(error: Error) -> String {
    match error.as_db_error() {
        Some(database) => format!("error: {} {}", database.code().code(), database.message()),
        None => format!("error: {error}"),
    }
}

fn equal<T: PartialEq + Debug>(found: T, wanted: T) -> Outcome {
    if found == wanted {
        return Ok(());
    }
    Err(format!("differs: {found:.150?} instead of {wanted:.150?}"))
}

fn fails<T>(code: &SqlState, outcome: Result<T, Error>) -> Outcome {
    match outcome {
        Err(error) if error.code() == Some(code) => Ok(()),
        Err(error) => Err(told(error).replacen("error", "differs", 1)),
        Ok(_) => Err(format!("differs: no error {}", code.code())),
    }
}

fn configuration() -> Config {
    let mut config = Config::new();
    config
        .host(variable("PGHOST"))
        .port(variable("PGPORT").parse().unwrap_or(5432))
        .user(variable("PGUSER"))
        .password(variable("PGPASSWORD"))
        .dbname(variable("PGDATABASE"))
        .application_name("checks")
        .ssl_mode(SslMode::Require);
    if variable("PGSSLMODE") == "disable" {
        config.ssl_mode(SslMode::Disable);
    }
    config
}

fn encryption() -> Outcome<MakeRustlsConnect> {
    let mut roots = RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(variable("PGSSLROOTCERT")).map_err(said)?;
    roots.add(authority).map_err(said)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(said)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Connects; the task sends what comes unasked to the channel, and ends with the client.
async fn connected(
    config: &Config,
) -> Result<(Client, mpsc::UnboundedReceiver<AsyncMessage>), String> {
    let (client, mut connection) = config.connect(encryption()?).await.map_err(told)?;
    let (sender, receiver) = mpsc::unbounded_channel();
    tokio::task::spawn_local(async move {
        let mut messages =
            futures_util::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            let _ = sender.send(message);
        }
    });
    Ok((client, receiver))
}

async fn connect() -> Outcome<Client> {
    Ok(connected(&configuration()).await?.0)
}

async fn value<T: FromSqlOwned>(
    client: &Client,
    query: &str,
    parameters: &[&(dyn ToSql + Sync)],
) -> Outcome<T> {
    let row = client.query_one(query, parameters).await.map_err(told)?;
    row.try_get(0).map_err(said)
}

async fn run(client: &Client, sql: &str) -> Outcome {
    client.batch_execute(sql).await.map_err(told)
}

/// Others that hold a transaction each, so that the next statement meets another backend.
async fn occupied() -> Outcome<Vec<Client>> {
    let mut others = Vec::new();
    for _ in 0..3 {
        let other = connect().await?;
        run(&other, "BEGIN; SELECT 1").await?;
        others.push(other);
    }
    Ok(others)
}

async fn check_connect(client: Client) -> Outcome {
    equal(value::<String>(&client, "SELECT current_user::text", &[]).await?, "postgres".into())?;
    let mut config = configuration();
    config.options("-c work_mem=5MB");
    let (other, _) = connected(&config).await?;
    equal(value::<String>(&other, "SHOW work_mem", &[]).await?, "5MB".into())
}

async fn unknown_database(_: Client) -> Outcome {
    let mut config = configuration();
    config.dbname("nowhere");
    fails(&SqlState::INVALID_CATALOG_NAME, config.connect(encryption()?).await)
}

async fn many_connections(_: Client) -> Outcome {
    for number in 0..100 {
        let client = connect().await?;
        equal(value::<i32>(&client, "SELECT $1::int", &[&number]).await?, number)?;
    }
    Ok(())
}

async fn query(client: Client) -> Outcome {
    let rows = client.query("SELECT i, NULL::text FROM generate_series(1, 3) i", &[]).await;
    let rows = rows.map_err(told)?;
    equal(rows.iter().map(|row| row.get(0)).collect(), vec![1, 2, 3])?;
    equal(rows[0].get::<_, Option<String>>(1), None)
}

async fn multi_statement(client: Client) -> Outcome {
    let messages = client.simple_query("SELECT 1; SELECT 2; SELECT 3").await.map_err(told)?;
    let rows = messages.iter().filter(|message| matches!(message, SimpleQueryMessage::Row(_)));
    equal(rows.count(), 3)
}

async fn prepared(client: Client) -> Outcome {
    let statement = client.prepare("SELECT $1::int + 1").await.map_err(told)?;
    for number in 0..20 {
        let row = client.query_one(&statement, &[&number]).await.map_err(told)?;
        equal(row.get(0), number + 1)?;
    }
    let _others = occupied().await?;
    let row = client.query_one(&statement, &[&41]).await.map_err(told)?;
    equal(row.get(0), 42)
}

async fn prepared_many(client: Client) -> Outcome {
    let mut statements = Vec::new();
    for number in 0..STATEMENTS {
        let query = format!("SELECT {number} + $1::int");
        statements.push(client.prepare(&query).await.map_err(told)?);
    }
    for (statement, number) in statements.iter().zip(0..) {
        let row = client.query_one(statement, &[&1]).await.map_err(told)?;
        equal(row.get(0), number + 1)?;
    }
    Ok(())
}

async fn deallocate(client: Client) -> Outcome {
    let statement = client.prepare("SELECT 1").await.map_err(told)?;
    run(&client, "DEALLOCATE ALL").await?;
    fails(&SqlState::INVALID_SQL_STATEMENT_NAME, client.query(&statement, &[]).await)?;
    equal(value(&client, "SELECT 2", &[]).await?, 2)
}

async fn discard_all(client: Client) -> Outcome {
    run(&client, "SET work_mem = '5MB'").await?;
    run(&client, "DISCARD ALL").await?;
    equal(value::<String>(&client, "SHOW work_mem", &[]).await?, "4MB".into())
}

async fn plan_changed(client: Client) -> Outcome {
    run(&client, "DROP TABLE IF EXISTS c_plan; CREATE TABLE c_plan (a int)").await?;
    let statement = client.prepare("SELECT * FROM c_plan").await.map_err(told)?;
    run(&client, "ALTER TABLE c_plan ADD b int").await?;
    fails(&SqlState::FEATURE_NOT_SUPPORTED, client.query(&statement, &[]).await)
}

async fn sql_prepare(client: Client) -> Outcome {
    run(&client, "PREPARE by_sql AS SELECT 42").await?;
    let others = occupied().await?;
    run(&client, "EXECUTE by_sql").await?;
    let outcome = others[0].batch_execute("EXECUTE by_sql").await;
    fails(&SqlState::INVALID_SQL_STATEMENT_NAME, outcome)
}

async fn transaction(mut client: Client) -> Outcome {
    run(&client, "DROP TABLE IF EXISTS c_transaction; CREATE TABLE c_transaction (a int)").await?;
    for number in [1, 2] {
        let started = client.transaction().await.map_err(told)?;
        let insert = "INSERT INTO c_transaction VALUES ($1)";
        started.execute(insert, &[&number]).await.map_err(told)?;
        if number == 2 {
            started.commit().await.map_err(told)?;
        } else {
            started.rollback().await.map_err(told)?;
        }
    }
    equal(value(&client, "SELECT array_agg(a) FROM c_transaction", &[]).await?, vec![2])
}

async fn savepoint(mut client: Client) -> Outcome {
    let mut outer = client.transaction().await.map_err(told)?;
    let inner = outer.transaction().await.map_err(told)?;
    fails(&SqlState::DIVISION_BY_ZERO, inner.query("SELECT 1/0", &[]).await)?;
    inner.rollback().await.map_err(told)?;
    let row = outer.query_one("SELECT 1", &[]).await.map_err(told)?;
    equal(row.get(0), 1)?;
    outer.commit().await.map_err(told)
}

async fn error(client: Client) -> Outcome {
    fails(&SqlState::UNDEFINED_TABLE, client.query("SELECT 1 FROM nowhere", &[]).await)?;
    equal(value(&client, "SELECT 1", &[]).await?, 1)
}

async fn error_in_transaction(client: Client) -> Outcome {
    run(&client, "BEGIN").await?;
    fails(&SqlState::DIVISION_BY_ZERO, client.batch_execute("SELECT 1/0").await)?;
    fails(&SqlState::IN_FAILED_SQL_TRANSACTION, client.batch_execute("SELECT 1").await)?;
    run(&client, "ROLLBACK").await?;
    equal(value(&client, "SELECT 1", &[]).await?, 1)
}

async fn read_only(mut client: Client) -> Outcome {
    let started = client.build_transaction().read_only(true).start().await.map_err(told)?;
    let create = started.batch_execute("CREATE TABLE never (a int)").await;
    fails(&SqlState::READ_ONLY_SQL_TRANSACTION, create)
}

async fn copy_in(client: Client) -> Outcome {
    run(&client, "DROP TABLE IF EXISTS c_copy; CREATE TABLE c_copy (a int)").await?;
    let sink = client.copy_in("COPY c_copy FROM STDIN").await.map_err(told)?;
    pin_mut!(sink);
    for number in 0..100_000 {
        sink.feed(Bytes::from(format!("{number}\n"))).await.map_err(told)?;
    }
    equal(sink.finish().await.map_err(told)?, 100_000)?;
    equal(value::<i64>(&client, "SELECT sum(a) FROM c_copy", &[]).await?, 4_999_950_000)
}

async fn copy_out(client: Client) -> Outcome {
    let query = "COPY (SELECT generate_series(1, 100000)) TO STDOUT";
    let stream = client.copy_out(query).await.map_err(told)?;
    pin_mut!(stream);
    let mut count = 0;
    while let Some(piece) = stream.next().await {
        count += piece.map_err(told)?.iter().filter(|&&byte| byte == b'\n').count();
    }
    equal(count, 100_000)
}

async fn copy_abort(client: Client) -> Outcome {
    run(&client, "DROP TABLE IF EXISTS c_copy_abort; CREATE TABLE c_copy_abort (a int)").await?;
    let given_up = client.copy_in("COPY c_copy_abort FROM STDIN").await.map_err(told)?;
    {
        pin_mut!(given_up);
        given_up.send(Bytes::from_static(b"1\n")).await.map_err(told)?;
    }
    let sink = client.copy_in("COPY c_copy_abort FROM STDIN").await.map_err(told)?;
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"no number\n")).await.map_err(told)?;
    fails(&SqlState::INVALID_TEXT_REPRESENTATION, sink.finish().await)?;
    equal(value::<i64>(&client, "SELECT count(*) FROM c_copy_abort", &[]).await?, 0)
}

async fn cancel(client: Client) -> Outcome {
    let token = client.cancel_token();
    let asked = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        if variable("PGSSLMODE") == "disable" {
            token.cancel_query(NoTls).await.map_err(told)
        } else {
            token.cancel_query(encryption()?).await.map_err(told)
        }
    };
    let (slow, asked) = tokio::join!(client.batch_execute("SELECT pg_sleep(30)"), asked);
    asked?;
    fails(&SqlState::QUERY_CANCELED, slow)?;
    equal(value(&client, "SELECT 1", &[]).await?, 1)
}

async fn pipeline(client: Client) -> Outcome {
    let statement = client.prepare("SELECT $1::int").await.map_err(told)?;
    let numbers: Vec<i32> = (0..2000).collect();
    let parameters: Vec<[&(dyn ToSql + Sync); 1]> =
        numbers.iter().map(|number| [number as &(dyn ToSql + Sync)]).collect();
    let answers = join_all(parameters.iter().map(|each| client.query_one(&statement, each))).await;
    for (answer, number) in answers.into_iter().zip(numbers) {
        equal(answer.map_err(told)?.get(0), number)?;
    }
    Ok(())
}

async fn pipeline_error(client: Client) -> Outcome {
    let (first, wrong, last) = tokio::join!(
        client.batch_execute("SELECT 1"),
        client.batch_execute("SELECT 1/0"),
        client.batch_execute("SELECT 2"),
    );
    first.map_err(told)?;
    fails(&SqlState::DIVISION_BY_ZERO, wrong)?;
    last.map_err(told)
}

async fn large_result(client: Client) -> Outcome {
    let query = "SELECT repeat('x', 1000000) FROM generate_series(1, $1::int)";
    let count = i32::try_from(megabytes()).map_err(said)?;
    let rows = client.query(query, &[&count]).await.map_err(told)?;
    equal(rows.iter().map(|row| row.get::<_, &str>(0).len()).sum(), megabytes() * 1_000_000)
}

async fn large_parameter(client: Client) -> Outcome {
    let large = "0123456789".repeat(100_000 * megabytes());
    let length = i32::try_from(large.len()).map_err(said)?;
    equal(value(&client, "SELECT length($1::text)", &[&large]).await?, length)?;
    equal(value(&client, &format!("SELECT length('{large}')"), &[]).await?, length)
}

async fn notice(_: Client) -> Outcome {
    let (client, mut messages) = connected(&configuration()).await?;
    run(&client, "DO $$ BEGIN RAISE NOTICE 'said %', 1; END $$").await?;
    match messages.recv().await {
        Some(AsyncMessage::Notice(notice)) => equal(notice.message(), "said 1"),
        other => Err(format!("differs: {other:?}")),
    }
}

async fn set(client: Client) -> Outcome {
    let settings = [("work_mem", "7MB"), ("search_path", "pg_catalog"), ("my.tenant", "seven")];
    for (name, wanted) in settings {
        run(&client, &format!("SET {name} = '{wanted}'")).await?;
    }
    let others = occupied().await?;
    for (name, wanted) in settings {
        equal(value::<String>(&client, &format!("SHOW {name}"), &[]).await?, wanted.into())?;
    }
    equal(value::<String>(&others[0], "SHOW work_mem", &[]).await?, "4MB".into())
}

async fn statement_timeout(client: Client) -> Outcome {
    run(&client, "SET statement_timeout = '200ms'").await?;
    let _others = occupied().await?;
    fails(&SqlState::QUERY_CANCELED, client.batch_execute("SELECT pg_sleep(10)").await)
}

async fn notify(_: Client) -> Outcome {
    let (listener, mut messages) = connected(&configuration()).await?;
    let sender = connect().await?;
    run(&listener, "LISTEN c_channel").await?;
    let _others = occupied().await?;
    run(&sender, "NOTIFY c_channel, 'hello'").await?;
    match tokio::time::timeout(Duration::from_secs(5), messages.recv()).await {
        Ok(Some(AsyncMessage::Notification(found))) => equal(found.payload(), "hello"),
        other => Err(format!("differs: {other:?}")),
    }
}

async fn cursor(mut client: Client) -> Outcome {
    let started = client.transaction().await.map_err(told)?;
    let portal = started.bind("SELECT generate_series(1, 1000)", &[]).await.map_err(told)?;
    let mut sum = 0;
    loop {
        let rows = started.query_portal(&portal, 100).await.map_err(told)?;
        sum += rows.iter().map(|row| row.get::<_, i32>(0)).sum::<i32>();
        if rows.is_empty() {
            return equal(sum, 500_500);
        }
    }
}

async fn cursor_hold(client: Client) -> Outcome {
    run(&client, "DECLARE c_hold CURSOR WITH HOLD FOR SELECT generate_series(1, 9)").await?;
    let _others = occupied().await?;
    equal(value(&client, "FETCH 1 FROM c_hold", &[]).await?, 1)
}

async fn temp_table(client: Client) -> Outcome {
    run(&client, "CREATE TEMP TABLE c_temporary (a int)").await?;
    let others = occupied().await?;
    equal(value::<i64>(&client, "SELECT count(*) FROM c_temporary", &[]).await?, 0)?;
    let outcome = others[0].batch_execute("SELECT 1 FROM c_temporary").await;
    fails(&SqlState::UNDEFINED_TABLE, outcome)
}

async fn advisory_lock(client: Client) -> Outcome {
    equal(value(&client, "SELECT pg_try_advisory_lock(4717)", &[]).await?, true)?;
    let others = occupied().await?;
    equal(value(&others[0], "SELECT pg_try_advisory_lock(4717)", &[]).await?, false)?;
    equal(value(&client, "SELECT pg_advisory_unlock(4717)", &[]).await?, true)
}

async fn types(client: Client) -> Outcome {
    equal(value(&client, "SELECT $1::int8", &[&7_i64]).await?, 7_i64)?;
    equal(value(&client, "SELECT $1::float8", &[&1.5_f64]).await?, 1.5_f64)?;
    equal(value(&client, "SELECT $1::bytea", &[&vec![0_u8, 1, 255]]).await?, vec![0_u8, 1, 255])?;
    let parts = vec![Some("a".to_owned()), None];
    equal(value(&client, "SELECT $1::text[]", &[&parts]).await?, parts.clone())?;
    equal(value(&client, "SELECT $1::text", &[&None::<String>]).await?, None::<String>)
}

async fn unicode(client: Client) -> Outcome {
    equal(value::<String>(&client, "SELECT $1::text", &[&TEXT]).await?, TEXT.into())?;
    equal(value::<String>(&client, &format!("SELECT '{TEXT}'"), &[]).await?, TEXT.into())
}

checks! {
    check_connect as "connect", unknown_database as "unknown_database",
    many_connections as "many_connections", query as "query",
    multi_statement as "multi_statement", prepared as "prepared",
    prepared_many as "prepared_many", deallocate as "deallocate", discard_all as "discard_all",
    plan_changed as "plan_changed", sql_prepare as "sql_prepare", transaction as "transaction",
    savepoint as "savepoint", error as "error", error_in_transaction as "error_in_transaction",
    read_only as "read_only", copy_in as "copy_in", copy_out as "copy_out",
    copy_abort as "copy_abort", cancel as "cancel", pipeline as "pipeline",
    pipeline_error as "pipeline_error", large_result as "large_result",
    large_parameter as "large_parameter", notice as "notice", set as "set",
    statement_timeout as "statement_timeout", notify as "notify", cursor as "cursor",
    cursor_hold as "cursor_hold", temp_table as "temp_table", advisory_lock as "advisory_lock",
    types as "types", unicode as "unicode",
}

/// Runs a check on a connection of its own.
async fn outcome(check: &Check) -> Outcome {
    let client = connect().await?;
    tokio::time::timeout(BOUND, check.1(client)).await.map_err(said)?
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    println!("version tokio-postgres 0.7");
    let all = async {
        for check in CHECKS {
            if asked.is_empty() || asked.iter().any(|name| name == check.0) {
                let said = outcome(check).await.err().unwrap_or_else(|| "ok".into());
                println!("{} {}", check.0, said.split_whitespace().collect::<Vec<_>>().join(" "));
            }
        }
    };
    tokio::task::LocalSet::new().run_until(all).await;
}
