//! A closed loop on a real database: what it reports is what the database has.

#![allow(clippy::unwrap_used, reason = "a test's helpers fail the test")]

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_lab::load::{
    Arrivals, Connecting, HIGH_APPLICATION, LoadError, LoadOptions, LoadReport, LoadTarget, Phase,
    Priority, Stage, run, run_phases,
};
use tidegate_subject::client::BlockingClient;
use tidegate_subject::connection::{Connector, Transactional, load};
use tidegate_subject::embedded::{
    self, ClassPriorities, Embedded, EngineDatabase, Service, Serving,
};
use tidegate_subject::mariadb::{self, MariaDb};
use tidegate_subject::postgres::{Authentication, Options, Postgres};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::pgbench::{Scale, Sums};
use tidegate_workload::point_select::PointSelect;
use tidegate_workload::thrash::{Options as ThrashOptions, Thrash};
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::tpcc::{self, Tpcc};
use tidegate_workload::workload::Workload;
use tidegate_workload::{Failure, Session, finish};

const SEED: u64 = 20_060_403;

/// The thrash study's.
const TABLES: [&str; 2] = ["thrash_1", "thrash_2"];

static NEVER: AtomicBool = AtomicBool::new(false);

fn tpcb() -> Arc<dyn Workload> {
    Arc::new(Tpcb::new(Scale::ONE))
}

fn point_select() -> Arc<dyn Workload> {
    Arc::new(PointSelect { scale: Scale::ONE })
}

fn thrash(options: ThrashOptions) -> Arc<dyn Workload> {
    Arc::new(Thrash::new(options).unwrap())
}

fn make_tables(connection: &mut dyn Transactional, workload: &dyn Workload) {
    load(connection, workload, &NEVER, &mut |_| {}).unwrap();
}

fn start(settings: &[(&str, &str)]) -> Postgres {
    let settings = [&[("fsync", "off")], settings].concat();
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Postgres::start(Options {
        settings: settings.iter().map(pair).collect(),
        authentication: Authentication::Trust,
        ..Options::default()
    })
    .unwrap()
}

fn start_loaded() -> Postgres {
    let server = start(&[]);
    make_tables(&mut server.connect().unwrap(), &*tpcb());
    server
}

fn options(url: String, workload: Arc<dyn Workload>, clients: usize) -> LoadOptions<'static> {
    let connecting = Connecting::within(Duration::from_secs(10));
    LoadOptions {
        warmup: Duration::from_millis(300),
        duration: Duration::from_millis(1200),
        interval: Duration::from_millis(250),
        seed: SEED,
        ..LoadOptions::new(LoadTarget::Url { url, connecting }, workload, clients)
    }
}

fn run_quietly(options: &LoadOptions<'_>) -> Result<LoadReport, LoadError> {
    run(options, &AtomicBool::new(false), &mut |_| {})
}

fn sums(connection: &mut impl Transactional) -> Sums {
    let session = Session::immediate(connection);
    finish(Box::pin(async move { Sums::read(&session).await })).unwrap()
}

/// Waits until nobody but `client` is connected, so that nothing is under way any more.
fn wait_until_alone(client: &mut BlockingClient) {
    let others = "SELECT count(*) FROM pg_stat_activity \
                  WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    let deadline = Instant::now() + Duration::from_secs(20);
    while client.value(others).unwrap() != "0" {
        assert!(Instant::now() < deadline, "connections were left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn reported_commits_are_the_servers_history() {
    let server = start_loaded();
    let mut client = server.connect().unwrap();
    let mut expected = 0;
    for (url, clients) in [(server.url(), 1), (server.socket_url(), 24)] {
        let mut stages = Vec::new();
        let options =
            LoadOptions { duration: Duration::from_millis(2200), ..options(url, tpcb(), clients) };
        let report = run(&options, &AtomicBool::new(false), &mut |progress| {
            stages.push(progress.stage);
        })
        .unwrap();
        wait_until_alone(&mut client);
        expected += report.warmup_transactions + report.transactions + report.late_commits;
        let sums = sums(&mut client);
        assert_eq!(sums.history_rows.cast_unsigned(), expected, "seed {SEED}: {report:?}");
        assert!(sums.consistent(), "seed {SEED}: {sums:?}");

        assert!(report.transactions > 0 && report.late_commits <= clients as u64);
        assert_eq!((report.clients, report.stragglers), (clients, clients));
        assert!(report.errors.is_empty() && report.connection_losses == 0);
        let latency = report.latency;
        assert!(0.0 < latency.p50_ms && latency.p50_ms <= latency.p99_ms);
        assert!(latency.p99_ms <= latency.max_ms && report.client_cpu_us > 0.0);
        assert!(stages.contains(&Stage::Measuring), "{stages:?}");
    }
}

/// How many rows of TPC-B's history were written by applications of such a name.
fn written_by(name: &str, client: &mut BlockingClient) -> u64 {
    let of = format!("SELECT count(*) FROM pgbench_history WHERE by LIKE '{name}'");
    client.value(&of).unwrap().parse().unwrap()
}

/// A client has a connection for each class, and each transaction is run on that of its class.
#[test]
fn a_transaction_is_run_on_the_connection_of_its_class() {
    const CLIENTS: usize = 8;
    const CONNECTED: &str = "SELECT string_agg(n::text, ' ') FROM \
                             (SELECT count(*) AS n FROM pg_stat_activity WHERE application_name \
                              IN ('tidegate load', 'tidegate load high') \
                              GROUP BY application_name) AS a";
    let server = start_loaded();
    let mut client = server.connect().unwrap();
    let by = "ALTER TABLE pgbench_history \
              ADD by text NOT NULL DEFAULT current_setting('application_name')";
    client.query(by).unwrap();
    for arrivals in [Arrivals::Closed, Arrivals::Poisson { rate: 1000.0 }] {
        client.query("TRUNCATE pgbench_history").unwrap();
        let options = LoadOptions {
            priority: Some(Priority { high_share: 0.3, is_first: true }),
            arrivals,
            ..options(server.url(), tpcb(), CLIENTS)
        };
        let mut connections = String::new();
        let report = run(&options, &AtomicBool::new(false), &mut |progress| {
            if progress.stage == Stage::Ready {
                connections = client.value(CONNECTED).unwrap();
            }
        })
        .unwrap();
        assert_eq!((connections.as_str(), report.clients), ("8 8", CLIENTS));
        wait_until_alone(&mut client);
        let (high, all) = (written_by(HIGH_APPLICATION, &mut client), written_by("%", &mut client));
        let ended = report.warmup_transactions + report.transactions + report.late_commits;
        assert_eq!(all, ended, "seed {SEED}: {report:?}");
        // Those of the high class before and after the measured time are in the history, too.
        let classes: Vec<u64> = report.classes.iter().map(|class| class.transactions).collect();
        assert_eq!(classes.iter().sum::<u64>(), report.transactions);
        assert!((classes[0]..=all - classes[1]).contains(&high), "{classes:?}, {high} of {all}");
        let (share, error) = (high as f64 / all as f64, (0.21 / all as f64).sqrt());
        assert!((share - 0.3).abs() < 5.0 * error, "seed {SEED}: {share}");
    }
}

#[test]
fn point_selects_change_nothing() {
    let server = start_loaded();
    let report = run_quietly(&options(server.url(), point_select(), 8)).unwrap();
    assert!(report.transactions > 0 && report.errors.is_empty());
    let sums = sums(&mut server.connect().unwrap());
    assert_eq!((sums.history_rows, sums.accounts), (0, 0));
}

#[test]
fn range_updates_change_rows_and_not_their_number() {
    let server = start(&[]);
    let mut client = server.connect().unwrap();
    let rows = |options: ThrashOptions| thrash(ThrashOptions { rows: 3_000, ..options });
    make_tables(&mut client, &*rows(ThrashOptions::read()));
    let fingerprint = |client: &mut BlockingClient, condition: &str| {
        let of = |table| {
            format!("SELECT md5(string_agg(t::text, ',' ORDER BY id1)) FROM {table} t {condition}")
        };
        TABLES.map(|table| client.value(&of(table)).unwrap())
    };
    // The updates keep to the first quarter.
    let (hot, cold) = ("WHERE id1 < 750", "WHERE id1 >= 750");
    let before = (fingerprint(&mut client, hot), fingerprint(&mut client, cold));
    for (of, is_changed) in [(ThrashOptions::read(), false), (ThrashOptions::update(), true)] {
        let report = run_quietly(&options(server.url(), rows(of.clone()), 8)).unwrap();
        assert!(report.transactions > 0, "{report:?}");
        // Deadlocks are possible, nothing else is.
        assert!(report.errors.keys().all(|code| code == "40P01"), "{report:?}");
        wait_until_alone(&mut client);
        assert_eq!(fingerprint(&mut client, hot) != before.0, is_changed, "{of:?}");
        assert_eq!(fingerprint(&mut client, cold), before.1, "{of:?}");
    }
    for table in TABLES {
        let count = client.value(&format!("SELECT count(DISTINCT id1) FROM {table}")).unwrap();
        assert_eq!(count, "3000");
    }
}

#[test]
fn a_switch_is_counted_by_phase() {
    const CLIENTS: usize = 6;
    let server = start_loaded();
    let mut client = server.connect().unwrap();
    let reads = thrash(ThrashOptions { rows: 3_000, ..ThrashOptions::read() });
    make_tables(&mut client, &*reads);
    let phase = |workload| Phase { workload, duration: Duration::from_millis(700) };
    let then = [phase(reads.clone()), phase(tpcb()), phase(reads)];
    let options = options(server.url(), tpcb(), CLIENTS);
    let report = run_phases(&options, &then, &AtomicBool::new(false), &mut |_| {}).unwrap();
    wait_until_alone(&mut client);

    let names: Vec<_> = report.phases.iter().map(|phase| phase.workload).collect();
    assert_eq!(names, ["tpcb", "thrash", "tpcb", "thrash"]);
    let counts: Vec<u64> = report.phases.iter().map(|phase| phase.transactions).collect();
    assert_eq!(counts.iter().sum::<u64>(), report.transactions);
    assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
    assert!(report.errors.is_empty() && report.connection_losses == 0, "{report:?}");
    let ends_s = report.phases.iter().map(|phase| phase.began_s + phase.seconds);
    let begins_s = report.phases.iter().skip(1).map(|phase| phase.began_s);
    assert!(ends_s.zip(begins_s).all(|(end, begin)| begin > end - 1e-9), "{:?}", report.phases);

    // Each TPC-B transaction left a row. A client that had begun one when its phase ended still
    // ends it, and one that had begun a read when its phase ended counts for TPC-B's.
    let history = sums(&mut client).history_rows.cast_unsigned();
    let counted = report.warmup_transactions + counts[0] + counts[2];
    let (clients, slack) = (CLIENTS as u64, 2 * CLIENTS as u64);
    assert!((counted - clients..=counted + slack).contains(&history), "{history} of {counted}");
}

#[test]
fn an_abrupt_stop_leaves_no_transaction_in_part() {
    let server = start_loaded();
    let cancel = AtomicBool::new(false);
    let options =
        LoadOptions { duration: Duration::from_secs(60), ..options(server.url(), tpcb(), 24) };
    let result = run(&options, &cancel, &mut |progress| {
        cancel.store(progress.stage == Stage::Measuring, Ordering::Relaxed);
    });
    assert!(matches!(result, Err(LoadError::Cancelled)), "{result:?}");
    let mut client = server.connect().unwrap();
    wait_until_alone(&mut client);
    let sums = sums(&mut client);
    assert!(sums.history_rows > 0 && sums.consistent(), "seed {SEED}: {sums:?}");
}

#[test]
fn lost_connections_are_counted_while_others_live() {
    let server = start_loaded();
    let mut admin = server.connect().unwrap();
    let mut killed = 0;
    let options =
        LoadOptions { duration: Duration::from_millis(2500), ..options(server.url(), tpcb(), 10) };
    let report = run(&options, &AtomicBool::new(false), &mut |progress| {
        if progress.stage == Stage::Measuring && killed == 0 {
            killed = kill(&mut admin, 4);
        }
    })
    .unwrap();
    assert_eq!(killed, 4);
    assert_eq!(report.connection_losses, 4, "{report:?}");
    assert_eq!((report.clients, report.stragglers), (10, 6));
    wait_until_alone(&mut admin);
    assert!(sums(&mut admin).consistent());
}

#[test]
fn a_lost_connection_ends_a_load_that_needs_all() {
    let server = start_loaded();
    let mut admin = server.connect().unwrap();
    let mut killed = 0;
    let duration = Duration::from_secs(60);
    let options = LoadOptions { needs_all: true, duration, ..options(server.url(), tpcb(), 10) };
    let result = run(&options, &AtomicBool::new(false), &mut |progress| {
        if progress.stage == Stage::Measuring && killed == 0 {
            killed = kill(&mut admin, 4);
        }
    });
    assert!(matches!(result, Err(LoadError::Lost { lost: 1..=4, clients: 10, .. })), "{result:?}");
    let reason = result.unwrap_err().to_string();
    assert!(reason.contains("57P01"), "{reason}");
}

#[test]
fn an_arrival_is_not_given_to_a_client_that_is_lost() {
    const ARRIVALS: u64 = 20;
    let server = start_loaded();
    let mut admin = server.connect().unwrap();
    // Nothing is due until most of those who wait for it have lost their connections.
    let due = |number| Duration::from_secs(4) + Duration::from_millis(number);
    let options = LoadOptions {
        arrivals: Arrivals::Trace((0..ARRIVALS).map(due).collect()),
        transactions_max: Some(ARRIVALS),
        warmup: Duration::ZERO,
        duration: Duration::from_secs(20),
        ..options(server.url(), tpcb(), 8)
    };
    let mut killed = 0;
    let report = run(&options, &AtomicBool::new(false), &mut |progress| {
        if progress.stage == Stage::Measuring && killed == 0 {
            killed = kill(&mut admin, 6);
        }
    })
    .unwrap();
    assert_eq!((report.connection_losses, report.transactions), (6, ARRIVALS), "{report:?}");
}

/// Ends so many of the load's connections; how many there were.
fn kill(admin: &mut BlockingClient, count: usize) -> usize {
    let some = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE application_name = 'tidegate load' LIMIT {count}"
    );
    admin.query(&some).unwrap().len()
}

#[test]
fn a_server_that_goes_away_ends_the_load() {
    let mut server = Some(start_loaded());
    let url = server.as_ref().unwrap().url();
    let options = LoadOptions { duration: Duration::from_secs(60), ..options(url, tpcb(), 8) };
    let result = run(&options, &AtomicBool::new(false), &mut |progress| {
        if progress.stage == Stage::Measuring {
            drop(server.take());
        }
    });
    assert!(matches!(result, Err(LoadError::AllLost(8))), "{result:?}");
}

#[test]
fn failing_transactions_are_counted_by_their_code() {
    let server = start(&[]);
    let report = run_quietly(&options(server.url(), tpcb(), 2)).unwrap();
    assert_eq!(report.transactions, 0);
    let codes: Vec<&str> = report.errors.keys().map(String::as_str).collect();
    assert_eq!(codes, ["42P01"]);
    assert_eq!((report.retries, report.connection_losses), (0, 0));
}

#[test]
fn what_keeps_the_clients_out_is_said() {
    let server = start(&[("max_connections", "8"), ("superuser_reserved_connections", "0")]);
    let fails = |url: &str, clients: usize| {
        let connecting = Connecting::within(Duration::from_millis(500));
        let options = LoadOptions {
            target: LoadTarget::Url { url: url.to_owned(), connecting },
            ..options(url.to_owned(), tpcb(), clients)
        };
        run_quietly(&options).unwrap_err().to_string()
    };
    let port = server.port();
    assert!(fails("127.0.0.1", 1).contains("postgres://"));
    assert!(fails(&server.url(), 0).contains("at least one client"));
    let refused = fails("postgres://a:secret@127.0.0.1:1/d", 2);
    assert!(refused.starts_with("cannot connect to postgres://a@127.0.0.1:1/d: "), "{refused}");
    assert!(refused.contains("refused"), "{refused}");
    let socket = fails("postgres://a@localhost/d?host=/nonexistent", 1);
    assert!(socket.contains("No such file"), "{socket}");
    let database = fails(&format!("postgres://postgres@127.0.0.1:{port}/missing"), 2);
    assert!(database.contains("missing") && database.contains("3D000"), "{database}");
    let crowd = fails(&server.url(), 40);
    assert!(crowd.starts_with("only ") && crowd.contains("of 40 clients"), "{crowd}");
    assert!(crowd.contains("53300"), "{crowd}");
}

/// The engine's server, past whose gate all transactions are alike.
fn serve<'d>(store: &'d Embedded, algorithm: Algorithm, setting: &Setting) -> Service<'d> {
    let (priorities, observer) = (ClassPriorities::default(), Box::new(|_: &_| ()));
    let arms = Vec::new();
    store.serve(Serving { algorithm, setting, arms, priorities, seed: SEED, observer }).unwrap()
}

#[test]
fn commits_of_the_embedded_engine_are_its_history() {
    const CLIENTS: usize = 24;
    let mut store = Embedded::start(embedded::Options::default()).unwrap();
    store.load(&*tpcb(), &NEVER).unwrap();
    let mut expected = 0;
    // Twice on one server: who gave up at the end of the first load is back for the second.
    let limit = Mpl::at_least_one(8);
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, limit).unwrap(),
        start: limit,
        resources: Resources { cpus: 2, disks: 1 },
    };
    let service = serve(&store, Algorithm::Fixed(limit), &setting);
    for _ in 0..2 {
        let then = Phase { workload: point_select(), duration: Duration::from_millis(300) };
        let options = LoadOptions {
            target: LoadTarget::Embedded(&service),
            ..options(String::new(), tpcb(), CLIENTS)
        };
        let mut stages = Vec::new();
        let report = run_phases(&options, &[then], &AtomicBool::new(false), &mut |progress| {
            stages.push(progress.stage);
        })
        .unwrap();
        assert!(report.phases.iter().all(|phase| phase.transactions > 0), "{report:?}");
        assert!(report.errors.is_empty() && report.connection_losses == 0, "{report:?}");
        assert_eq!((report.clients, report.stragglers), (CLIENTS, CLIENTS));
        assert!(stages.contains(&Stage::Measuring), "{stages:?}");
        let sums = sums(&mut store.connect());
        assert!(sums.consistent(), "seed {SEED}: {sums:?}");
        // Those of the first phase, and of the second no more than had begun before it.
        let rows = sums.history_rows.cast_unsigned() - expected;
        let least = report.warmup_transactions + report.phases[0].transactions;
        assert!((least..=least + CLIENTS as u64).contains(&rows), "{rows}: {report:?}");
        expected += rows;
    }
}

#[test]
fn phases_on_the_embedded_engine_are_parts_of_the_latency() {
    let scale = tpcc::Scale::new(1).unwrap().reduced(200, 30).unwrap();
    let workload: Arc<dyn Workload> = Arc::new(Tpcc::new(scale));
    let mut store = Embedded::start(embedded::Options::default()).unwrap();
    store.load(&*workload, &NEVER).unwrap();
    let setting = Setting {
        bounds: Bounds::new(Mpl::ONE, Mpl::ONE).unwrap(),
        start: Mpl::ONE,
        resources: Resources { cpus: 2, disks: 1 },
    };
    let algorithm = Algorithm::Fixed(Mpl::ONE);
    let service = serve(&store, algorithm, &setting);
    let options = LoadOptions {
        target: LoadTarget::Embedded(&service),
        ..options(String::new(), workload, 1)
    };
    let report = run_quietly(&options).unwrap();
    let orders = report.kinds.iter().find(|kind| kind.kind == "new-order").unwrap();
    assert!(orders.phases.len() > 1, "{orders:?}");
    let mut in_phases_ms = 0.0;
    for phase in &orders.phases {
        assert!(phase.transactions > 0 && phase.latency.mean_ms > 0.0, "{phase:?}");
        in_phases_ms += phase.latency.mean_ms * phase.transactions as f64;
    }
    let all_ms = orders.latency.mean_ms * (orders.committed + orders.rolled_back) as f64;
    // Latencies are kept to three digits.
    assert!(in_phases_ms <= all_ms * 1.01, "{in_phases_ms} of {all_ms} ms: {orders:?}");
}

/// Connections to one file.
#[derive(Debug)]
struct File(PathBuf);

impl Connector for File {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        let connection = SqliteConnection::open(&self.0, Duration::from_secs(10))?;
        connection.batch("PRAGMA synchronous = OFF")?;
        Ok(Box::new(connection))
    }
}

#[test]
fn commits_of_a_blocking_library_are_its_history() {
    const CLIENTS: usize = 12;
    let directory = tempfile::tempdir().unwrap();
    let file = File(directory.path().join("bank"));
    let mut connection = SqliteConnection::open(&file.0, Duration::from_secs(10)).unwrap();
    connection.batch("PRAGMA journal_mode = WAL").unwrap();
    make_tables(&mut connection, &*tpcb());
    let connector: Arc<dyn Connector> = Arc::new(file);
    let options = LoadOptions {
        target: LoadTarget::Threads {
            connector,
            connecting: Connecting::within(Duration::from_secs(10)),
        },
        ..options(String::new(), tpcb(), CLIENTS)
    };
    let report = run_quietly(&options).unwrap();
    let sums = sums(&mut connection);
    let done = report.warmup_transactions + report.transactions + report.late_commits;
    assert_eq!(sums.history_rows.cast_unsigned(), done, "seed {SEED}: {report:?}");
    assert!(sums.consistent() && report.transactions > 0, "seed {SEED}: {sums:?}");
    assert!(report.errors.is_empty() && report.connection_losses == 0, "{report:?}");

    let nowhere = File(directory.path().join("no/such/directory"));
    let target = LoadTarget::Threads {
        connector: Arc::new(nowhere),
        connecting: Connecting::within(Duration::from_secs(10)),
    };
    let refused = run_quietly(&LoadOptions { target, ..options }).unwrap_err().to_string();
    assert!(refused.contains("cannot connect") && refused.contains("unable to open"), "{refused}");
}

/// Counts who is connecting.
#[derive(Debug)]
struct Counting {
    file: File,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Connector for Counting {
    fn connect(&self) -> Result<Box<dyn Transactional>, Failure> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
        let connection = self.file.connect();
        self.now.fetch_sub(1, Ordering::SeqCst);
        connection
    }
}

#[test]
fn no_more_clients_connect_at_once_than_may() {
    const CLIENTS: usize = 12;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bank");
    let mut connection = SqliteConnection::open(&path, Duration::from_secs(10)).unwrap();
    make_tables(&mut connection, &*tpcb());
    let server = start_loaded();
    for (at_once, expected) in
        [(None, CLIENTS), (NonZeroUsize::new(2), 2), (NonZeroUsize::new(99), CLIENTS)]
    {
        let connecting = Connecting { at_once, timeout: Duration::from_secs(30) };
        let counting = Counting {
            file: File(path.clone()),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        };
        let counting = Arc::new(counting);
        let connector: Arc<dyn Connector> = Arc::clone(&counting) as _;
        for target in [
            LoadTarget::Threads { connector, connecting },
            LoadTarget::Url { url: server.url(), connecting },
        ] {
            let options = LoadOptions { target, ..options(String::new(), tpcb(), CLIENTS) };
            let report = run_quietly(&options).unwrap();
            assert_eq!((report.clients, report.connects_at_once), (CLIENTS, Some(expected)));
        }
        let most = counting.most.load(Ordering::SeqCst);
        assert!((1..=expected).contains(&most), "{most} at once");
    }
}

#[test]
fn an_open_loop_runs_what_arrives_and_no_more() {
    let server = start_loaded();
    let arrivals = Arrivals::Constant { rate: 200.0 };
    let few = LoadOptions { arrivals, ..options(server.url(), tpcb(), 8) };
    let report = run_quietly(&few).unwrap();
    // 200 a second for 1.2 s; those of the warm-up may end in the measured time.
    let expected = 240 - 2 * 8..=240 + 2 * 8;
    assert!(expected.contains(&report.transactions), "{report:?}");
    assert!(report.stragglers <= 8, "{report:?}");
    let counted: u64 = report.intervals.iter().map(|interval| interval.transactions).sum();
    assert_eq!((counted, report.intervals.len()), (report.transactions, 5), "{report:?}");

    // A client that thinks of nothing else cannot do a hundred thousand a second.
    let arrivals = Arrivals::Poisson { rate: 1e5 };
    let flood = LoadOptions { arrivals, ..options(server.url(), tpcb(), 2) };
    let report = run_quietly(&flood).unwrap();
    let arrived = 1e5 * (report.warmup_s + report.seconds);
    let ended = (report.warmup_transactions + report.transactions) as f64;
    let known = ended + report.overdue as f64 + report.stragglers as f64;
    assert!((known / arrived - 1.0).abs() < 0.05, "{known} of {arrived}: {report:?}");
    // Late by what it waited for a client, and not by what it took.
    assert!(report.latency.max_ms > 500.0, "{report:?}");
}

#[test]
fn commits_of_mariadb_are_its_history() {
    const CLIENTS: usize = 24;
    if let Err(error) = MariaDb::find() {
        println!("skipped: {error}");
        return;
    }
    let server = MariaDb::start(mariadb::Options::default()).unwrap();
    let mut connection = server.connect().unwrap();
    make_tables(&mut connection, &*tpcb());
    let mut expected = 0;
    for url in [server.url(), server.socket_url()] {
        let report = run_quietly(&options(url, tpcb(), CLIENTS)).unwrap();
        expected += report.warmup_transactions + report.transactions + report.late_commits;
        assert!(report.transactions > 0 && report.errors.is_empty(), "{report:?}");
        assert_eq!((report.clients, report.stragglers), (CLIENTS, CLIENTS));
        // Those who left in the middle are rolled back by and by.
        let sums = settled_sums(&mut connection);
        assert_eq!(sums.history_rows.cast_unsigned(), expected, "seed {SEED}: {report:?}");
        assert!(sums.consistent(), "seed {SEED}: {sums:?}");
    }
    let nowhere = run_quietly(&options("mysql://root@127.0.0.1:1/d".into(), tpcb(), 1));
    let refused = nowhere.unwrap_err().to_string();
    assert!(refused.starts_with("cannot connect to mysql://root@127.0.0.1:1/d"), "{refused}");
}

/// The sums once they stay as they are.
fn settled_sums(connection: &mut impl Transactional) -> Sums {
    let mut before = sums(connection);
    loop {
        std::thread::sleep(Duration::from_millis(200));
        let now = sums(connection);
        if now == before {
            return now;
        }
        before = now;
    }
}
