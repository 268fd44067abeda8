//! `tidegate proxy`.

mod handover;

use std::fmt::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::time::{Duration, Instant};

use clap::{ArgGroup, Args};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::iterator::Signals;
use tidegate_control::{Algorithm, ControlChoice};
use tidegate_gate::ClassGoal;
use tidegate_proxy::config::{
    ClientAuthentication, Config, ListenAddress, PoolMode, SessionStatePolicy, SslMode,
};
use tidegate_proxy::config_file::{
    AdminAddress, ConfigError, ConfigFile, DatabaseSection, Override, UpstreamUrl,
};
use tidegate_proxy::handover::{Inheritance, Left};
use tidegate_proxy::notify::{ServiceState, notify};
use tidegate_proxy::{Running, ShutdownMode, ThreadFailure};
use tracing::{debug, info, warn};

use crate::interrupt::{self, Asked};
use crate::{Failure, logs, print};
use handover::Program;

const EXAMPLES: &str = "\
Examples:
  Clients connect to port 6432 and share a database server on port 5432:
    tidegate proxy --upstream postgres://127.0.0.1:5432

  A Unix-domain socket, SCRAM logins, metrics, and a record of every decision:
    tidegate proxy --upstream 'postgres:///?host=/run/postgresql' --users-file users.txt \\
        --admin-listen 127.0.0.1:9432 --journal journal.jsonl

  Several databases, priorities and timeouts in a file; docs/tidegate.toml shows every key:
    tidegate proxy -c tidegate.toml

  A fixed limit, for comparison:
    tidegate proxy --upstream postgres://127.0.0.1:5432 --control fixed:20

  No limit, but an estimate of what a limit would gain, in /metrics and the journal:
    tidegate proxy --upstream postgres://127.0.0.1:5432 --control observe \\
        --admin-listen 127.0.0.1:9432 --journal journal.jsonl

When it serves, it prints `listening on ADDRESS` for each address to standard output. After SIGTERM
or Ctrl-C it serves on for timeouts.drain_delay, by default not at all, while /readyz tells load
balancers to send no more clients; then running transactions may finish within
timeouts.shutdown_grace, by default 10s. Each further signal ends one of these times. SIGHUP reads
the configuration again and puts it in force; options still go before the file. After SIGUSR2 a new
process of the program takes over, with the clients: docs/operations.md.";

/// Run the proxy
///
/// Clients connect to it as to a PostgreSQL server. It limits the number of transactions that run
/// in the server at once; the others wait in a queue. A controller finds the limit by measurement.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    after_help = "Details and examples: tidegate proxy --help",
    group = ArgGroup::new("databases").required(true).args(["config", "upstream"])
)]
pub(crate) struct ProxyArguments {
    /// Read the configuration from FILE. Options override it; --mode, --control, --keep, --*-mpl,
    /// --cpus, --disks and --watch override it for all databases
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Database server: postgres://user:password@host:port/database?sslmode=verify-full&...
    ///
    /// libpq's parameters for TLS (sslmode, sslrootcert and so on) may follow the question mark;
    /// docs/tidegate.toml lists them. The default of sslmode is prefer.
    ///
    /// A missing user is the client's, with the password from the users file. A missing database is
    /// the one that the client requests. The default port is 5432.
    #[arg(long, value_name = "URL")]
    upstream: Option<UpstreamUrl>,

    /// Address on which clients connect: IP:PORT or the path of a Unix-domain socket; may be given
    /// more than once [default: 127.0.0.1:6432]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<ListenAddress>,

    /// Serve a page to look at, /status.json, /metrics (Prometheus), /healthz and /readyz on
    /// IP:PORT [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<AdminAddress>,

    /// How long a client keeps an upstream connection: transaction or session [default:
    /// transaction]
    #[arg(long)]
    mode: Option<PoolMode>,

    /// What becomes of temporary tables, LISTEN and other session state in transaction mode: pin,
    /// warn or refuse
    ///
    /// With pin, the client keeps its upstream connection until the state is gone; with warn it is
    /// removed after the transaction; with refuse the statement fails. Settings (SET) follow the
    /// client in any case. docs/transaction-mode.md has the details [default: pin]
    #[arg(long, value_name = "POLICY")]
    session_state: Option<SessionStatePolicy>,

    /// Controller that chooses the limit: paired-comparison, hill-climbing, vegas and many more, or
    /// fixed:N. observe leaves the limit at --max-mpl and reports what it would set
    /// [default: paired-comparison]
    #[arg(long, value_name = "ALGORITHM", long_help = control_help())]
    control: Option<ControlChoice>,

    /// Keep the response time of a class, with the highest throughput possible: high:p95=200ms
    ///
    /// The format is CLASS:STATISTIC=TIME. The class is high or normal, the statistic mean, p95 or
    /// p99. The response time is the time from the request of a permit to the end of the
    /// transaction. --control then chooses among the limits that keep it. docs/control.md describes
    /// how they are found, and what happens if no limit keeps it [default: no goal]
    #[arg(long, value_name = "GOAL")]
    keep: Option<ClassGoal>,

    /// The lowest limit [default: 1]
    #[arg(long, value_name = "N")]
    min_mpl: Option<NonZeroU32>,

    /// The highest limit [default: 1000]
    #[arg(long, value_name = "N")]
    max_mpl: Option<NonZeroU32>,

    /// The limit at start [default: twice the number of this machine's processors; with
    /// external-scheduling the limit of its model]
    #[arg(long, value_name = "N")]
    start_mpl: Option<NonZeroU32>,

    /// Number of the database server's processors, for controllers that start from a queueing model
    /// [default: number of this machine's processors]
    #[arg(long, value_name = "N")]
    cpus: Option<NonZeroU32>,

    /// Number of disks with the database server's data, for the same controllers; 0 if all data is
    /// in memory [default: 1]
    #[arg(long, value_name = "N")]
    disks: Option<u32>,

    /// Watch the server's sessions through a connection of the proxy's own. What they wait for is
    /// logged and is in /metrics. half-and-half and conflict-ratio need it [default: no]
    #[arg(long)]
    watch: bool,

    /// User for --watch, with the role `pg_read_all_stats` and its password in the users file
    /// [default: the user in the upstream's URL]
    #[arg(long, value_name = "USER")]
    watch_user: Option<String>,

    /// Authentication of clients: trust, md5, scram-sha-256, cert, or hba, which needs a
    /// configuration file [default: scram-sha-256 with --users-file; without it trust, if only this
    /// machine can connect]
    #[arg(long, value_name = "METHOD")]
    auth: Option<ClientAuthentication>,

    /// Users and passwords, in lines of "user" "password" as in PgBouncer's userlist.txt
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,

    /// TLS with clients: disable, prefer, require, verify-ca or verify-full [default: prefer with
    /// --tls-certificate, else disable]
    #[arg(long, value_name = "MODE")]
    tls_mode: Option<SslMode>,

    /// Certificate of the proxy, in PEM, followed by those of intermediate authorities
    #[arg(long, value_name = "FILE")]
    tls_certificate: Option<PathBuf>,

    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Authorities of clients' certificates, in PEM
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,

    /// Append every decision about the limit to FILE, as JSON lines for `tidegate replay`
    /// [default: nowhere]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Number of event loops, each on its own thread [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Seed of the controllers' random steps [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Returns the long help of `--control`, with the name of every algorithm.
fn control_help() -> String {
    let names = Algorithm::ALL.map(Algorithm::name).join(", ");
    format!(
        "Controller that chooses the limit: {names}, or fixed:N for the constant limit N. \
         Parameters follow a colon, as in external-scheduling:loss=0.2; `tidegate controllers` \
         lists them. observe, observe:gaussian-process:... or observe:fixed:N leaves the limit at \
         --max-mpl, and reports at each decision which limit it would set, why, and the estimated \
         gain. docs/control.md describes the controllers [default: {}]",
        Algorithm::default()
    )
}

impl ProxyArguments {
    /// Reads the configuration, with these options over it.
    fn config(&self, over: &[Override]) -> Result<Config, ConfigError> {
        let mut file = match (&self.config, &self.upstream) {
            (Some(path), _) => ConfigFile::read_with(path, over)?,
            (None, upstream) => from_upstream(upstream.as_ref()),
        };
        for database in file.databases.values_mut() {
            self.override_database(database);
        }
        if !self.listen.is_empty() {
            file.listen = Some(self.listen.clone());
        }
        file.admin_listen = self.admin_listen.or(file.admin_listen);
        file.auth = self.auth.or(file.auth);
        file.users_file = self.users_file.clone().or(file.users_file);
        let tls = &mut file.client_tls;
        tls.mode = self.tls_mode.or(tls.mode);
        tls.certificate = self.tls_certificate.clone().or(tls.certificate.take());
        tls.key = self.tls_key.clone().or(tls.key.take());
        tls.ca = self.tls_ca.clone().or(tls.ca.take());
        file.journal = self.journal.clone().or(file.journal);
        file.threads = self.threads.or(file.threads);
        file.seed = self.seed.or(file.seed);
        file.into_config()
    }

    fn override_database(&self, database: &mut DatabaseSection) {
        if self.control.is_some() {
            // The file's start belongs to the file's algorithm.
            (database.control, database.start_mpl) = (self.control, None);
        }
        database.keep = self.keep.or(database.keep);
        database.mode = self.mode.or(database.mode);
        database.session_state = self.session_state.or(database.session_state);
        database.min_mpl = self.min_mpl.or(database.min_mpl);
        database.max_mpl = self.max_mpl.or(database.max_mpl);
        database.start_mpl = self.start_mpl.or(database.start_mpl);
        database.cpus = self.cpus.or(database.cpus);
        database.disks = self.disks.or(database.disks);
        if self.watch {
            database.watch = Some(true);
        }
        if self.watch_user.is_some() {
            // The file's password belongs to the file's user.
            (database.watch_user, database.watch_password) = (self.watch_user.clone(), None);
        }
    }
}

/// Returns the configuration for one server that serves every database name.
fn from_upstream(upstream: Option<&UpstreamUrl>) -> ConfigFile {
    let section = |url: &UpstreamUrl| ("*".to_owned(), DatabaseSection::new(url.clone()));
    ConfigFile { databases: upstream.map(section).into_iter().collect(), ..ConfigFile::default() }
}

/// What the process waits for while the proxy serves.
enum Event {
    /// A signal asks to stop.
    Stop,
    /// A signal asks to hand over to a new process.
    HandOver,
    /// A new process has taken over, or is being stopped.
    HandedOver(Left),
    /// The console asks to stop.
    Shutdown(ShutdownMode),
    /// A thread of the proxy has failed.
    Failed(ThreadFailure),
}

/// Serves until a signal ends the proxy.
///
/// The form of the log is the file's, unless the command line has named one.
pub(crate) fn run(arguments: ProxyArguments, has_log_format: bool) -> Result<(), Failure> {
    let program = Program::of_this_process().map_err(Failure::failed)?;
    let inheritance = handover::inheritance().map_err(Failure::failed)?;
    let refusal = inheritance.as_ref().map(Inheritance::refusal);
    let ended = run_program(&program, (arguments, has_log_format), inheritance);
    if let (Err(failure), Some(refuse)) = (&ended, refusal) {
        refuse(&failure.to_string());
    }
    ended
}

fn run_program(
    program: &Program,
    (arguments, has_log_format): (ProxyArguments, bool),
    inheritance: Option<Inheritance>,
) -> Result<(), Failure> {
    let config = arguments.config(&[]).map_err(Failure::usage)?;
    if let Some(format) = config.log_format.filter(|_| !has_log_format) {
        logs::set(format);
    }
    // From here on a signal waits until somebody asks for it.
    let signals = interrupt::signals().map_err(Failure::failed)?;
    raise_file_limit();
    let running = if let Some(inheritance) = inheritance {
        tidegate_proxy::take_over(config, inheritance).map_err(Failure::failed)?
    } else {
        let running = tidegate_proxy::start(config).map_err(Failure::failed)?;
        print(&addresses(&running))?;
        running
    };
    running.log_start();
    notify(ServiceState::Ready("serving"));
    let (tell, events) = mpsc::channel();
    running.on_reload(move |over| arguments.config(over).map_err(|error| error.to_string()));
    tell_of_signals(signals, tell.clone(), reload_on_request(&running));
    tell_of_shutdown_orders(&running, tell.clone());
    tell_of_failure(&running, tell.clone());
    match serve(program, &running, (&tell, &events)) {
        Ok(End::Stopped { grace }) => stop(running, grace, events),
        Ok(End::HandedOver) => {
            end_handed_over(running, events);
            Ok(())
        }
        Err(failure) => {
            running.shutdown(Duration::ZERO);
            Err(Failure::failed(failure))
        }
    }
}

/// Ends a process from which another has taken over, as soon as the clients have gone whose TLS is
/// still this one's.
fn end_handed_over(running: Running, events: Receiver<Event>) {
    let (wait, end) = running.relays();
    running.shutdown(Duration::ZERO);
    std::thread::spawn(move || {
        for event in events {
            if matches!(event, Event::Stop) {
                end();
            }
        }
    });
    wait();
    info!("ended: another process has taken over");
}

/// Stops: running transactions may finish within the grace time.
fn stop(running: Running, grace: Duration, events: Receiver<Event>) -> Result<(), Failure> {
    notify(ServiceState::Stopping);
    info!(grace = ?grace, "shutting down; a second signal stops at once");
    let stop_now = running.stop_now();
    let (tell, failed) = mpsc::channel();
    std::thread::spawn(move || {
        for event in events {
            match event {
                // The other end waits no longer once everything has stopped.
                Event::Failed(failure) => drop(tell.send(failure)),
                Event::Stop | Event::Shutdown(_) => stop_now(),
                Event::HandOver | Event::HandedOver(_) => {}
            }
        }
    });
    running.shutdown(grace);
    if let Ok(failure) = failed.try_recv() {
        return Err(Failure::failed(failure));
    }
    info!("stopped");
    Ok(())
}

/// Why the proxy serves no longer.
enum End {
    /// It is to stop within this time.
    Stopped { grace: Duration },
    /// Another process serves.
    HandedOver,
}

/// Waits until the proxy is to stop or has been replaced, and for the time that load balancers have
/// to see that it stops.
fn serve(
    program: &Program,
    running: &Running,
    (tell, events): (&Sender<Event>, &Receiver<Event>),
) -> Result<End, ThreadFailure> {
    let mode = loop {
        match events.recv() {
            Ok(Event::Failed(failure)) => return Err(failure),
            Ok(Event::HandOver) => handover::begin(program, running, tell.clone()),
            Ok(Event::HandedOver(Left::All { .. })) => return Ok(End::HandedOver),
            Ok(Event::Shutdown(mode)) => break mode,
            // A sender lives as long as the process.
            Ok(Event::Stop | Event::HandedOver(Left::Stopped)) | Err(_) => {
                break ShutdownMode::WaitForServers;
            }
        }
    };
    drain(running, mode, events).map(|grace| End::Stopped { grace })
}

/// Waits for load balancers to see that the proxy stops, as it is meant to. Returns the grace time.
fn drain(
    running: &Running,
    mode: ShutdownMode,
    events: &Receiver<Event>,
) -> Result<Duration, ThreadFailure> {
    let (drain_delay, grace) = running.stop_times();
    match mode {
        ShutdownMode::Immediate => return Ok(Duration::ZERO),
        ShutdownMode::WaitForClients => return Ok(grace),
        ShutdownMode::WaitForServers if drain_delay.is_zero() => return Ok(grace),
        ShutdownMode::WaitForServers => {}
    }
    info!(drain_delay = ?drain_delay, "draining; a second signal begins the shutdown");
    running.begin_drain();
    let end = Instant::now() + drain_delay;
    loop {
        match events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(Event::Failed(failure)) => return Err(failure),
            Ok(Event::Shutdown(ShutdownMode::Immediate)) => return Ok(Duration::ZERO),
            Ok(Event::HandOver | Event::HandedOver(_)) => {
                warn!("nothing is handed over by a process that stops");
            }
            Ok(Event::Stop | Event::Shutdown(_))
            | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(grace),
        }
    }
}

/// Hands on the signals that mean something.
fn tell_of_signals(mut signals: Signals, tell: Sender<Event>, reload: SyncSender<()>) {
    std::thread::spawn(move || {
        while let Some(asked) = interrupt::wait(&mut signals) {
            match asked {
                Asked::Stop if tell.send(Event::Stop).is_err() => return,
                Asked::HandOver if tell.send(Event::HandOver).is_err() => return,
                Asked::Stop | Asked::HandOver => {}
                // One that waits for its turn does for this one as well.
                Asked::Reload => drop(reload.try_send(())),
            }
        }
    });
}

/// Reads the configuration again whenever it is asked, one time after the other, on a thread that
/// may wait. What came of it is logged.
fn reload_on_request(running: &Running) -> SyncSender<()> {
    let (request, requests) = mpsc::sync_channel(1);
    let reload = running.reload();
    std::thread::spawn(move || {
        for () in requests {
            // The error has been logged.
            let _ = reload();
        }
    });
    request
}

/// Time between the console's answer to SHUTDOWN and the shutdown.
const STOP_PAUSE: Duration = Duration::from_millis(100);

/// Lets the console's SHUTDOWN stop the process.
fn tell_of_shutdown_orders(running: &Running, tell: Sender<Event>) {
    running.on_shutdown_order(move |mode| {
        let tell = tell.clone();
        std::thread::spawn(move || {
            // The console's client gets its answer.
            std::thread::sleep(STOP_PAUSE);
            // It may be stopping already.
            let _ = tell.send(Event::Shutdown(mode));
        });
    });
}

/// Hands on that a thread of the proxy has failed, if one does.
fn tell_of_failure(running: &Running, tell: Sender<Event>) {
    let failure = running.failure();
    std::thread::spawn(move || {
        if let Some(failure) = failure() {
            // It may be stopping already.
            let _ = tell.send(Event::Failed(failure));
        }
    });
}

fn addresses(running: &Running) -> String {
    let mut text = String::new();
    for address in running.local_addresses() {
        let _ = writeln!(text, "listening on {address}");
    }
    if let Some(address) = running.admin_address() {
        let _ = writeln!(text, "metrics on http://{address}/metrics");
    }
    text
}

/// Raises the soft limit of open files to the hard limit: every client needs one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(files = ?raised.current, "limit of open files raised"),
        Err(error) => warn!(%error, limit = ?limit.current, "cannot raise the limit of open files"),
    }
}
