//! `tidegate proxy`.

use std::fmt::Write;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate_control::{Algorithm, ControlChoice};
use tidegate_gate::Keep;
use tidegate_proxy::Running;
use tidegate_proxy::config::{ClientAuthentication, Config, ListenAddress, PoolMode};
use tidegate_proxy::config_file::{
    AdminAddress, ConfigError, ConfigFile, DatabaseSection, UpstreamUrl,
};
use tracing::{debug, info, warn};

use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  Clients connect to port 6432 and share a database server on port 5432:
    tidegate proxy --upstream postgres://127.0.0.1:5432

  The same by a Unix-domain socket, with SCRAM logins, metrics, and a record of every decision:
    tidegate proxy --upstream 'postgres:///?host=/run/postgresql' --users-file users.txt \\
        --admin-listen 127.0.0.1:9432 --journal journal.jsonl

  More databases, priorities and waiting times, in a file; every key is shown in docs/tidegate.toml:
    tidegate proxy -c tidegate.toml

  A limit set by hand, to compare with:
    tidegate proxy --upstream postgres://127.0.0.1:5432 --control fixed:20

  No limit, and what a limit would gain, in /metrics and the journal:
    tidegate proxy --upstream postgres://127.0.0.1:5432 --control observe \\
        --admin-listen 127.0.0.1:9432 --journal journal.jsonl

Once it serves, it prints `listening on ADDRESS` for each address to standard output. SIGTERM or
Ctrl-C lets running transactions finish, for up to 10s or the file's timeouts.shutdown_grace; a
second one stops at once.";

/// Run the proxy
///
/// Clients connect to it as to a PostgreSQL server. Their transactions wait in a queue until the
/// server has room for them; how many it has room for is found by observation, once a second.
#[derive(Debug, Args)]
#[command(
    after_long_help = EXAMPLES,
    after_help = "More, and examples: tidegate proxy --help",
    group = ArgGroup::new("databases").required(true).args(["config", "upstream"])
)]
pub(crate) struct ProxyArguments {
    /// Read the configuration from FILE; flags go before it, --mode, --control, --keep, the
    /// --*-mpl, --cpus, --disks and --watch for all its databases
    #[arg(short = 'c', long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the database server is: postgres://user:password@host:port/database
    ///
    /// What is left out is the client's: its user with the password from the users file, and the
    /// database it asks for. The port is 5432 if none is given.
    #[arg(long, value_name = "URL")]
    upstream: Option<UpstreamUrl>,

    /// Where clients connect: IP:PORT or the path of a Unix-domain socket; may be given more than
    /// once [default: 127.0.0.1:6432]
    #[arg(long, value_name = "ADDRESS")]
    listen: Vec<ListenAddress>,

    /// Serve /metrics (Prometheus) and /healthz on IP:PORT [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    admin_listen: Option<AdminAddress>,

    /// How long an upstream connection belongs to a client: transaction, or session, for LISTEN,
    /// temporary tables and the like [default: transaction]
    #[arg(long)]
    mode: Option<PoolMode>,

    /// Who chooses the limit: paired-comparison, hill-climbing, vegas and many more, or fixed:N;
    /// observe leaves the limit at --max-mpl and only says what it would do
    /// [default: paired-comparison]
    #[arg(long, value_name = "ALGORITHM", long_help = control_help())]
    control: Option<ControlChoice>,

    /// Keep the response time of a class, with the most throughput under it, as in high:p95=200ms
    ///
    /// CLASS:STATISTIC=TIME, where the class is high or normal, and the statistic mean, p95 or p99.
    /// The response time goes from the request of a permit to the end of the transaction. --control
    /// then chooses among the limits that keep it; docs/control.md says how they are found, and
    /// what happens when there is none [default: nothing is kept]
    #[arg(long, value_name = "GOAL")]
    keep: Option<Keep>,

    /// The lowest limit [default: 1]
    #[arg(long, value_name = "N")]
    min_mpl: Option<NonZeroU32>,

    /// The highest limit [default: 1000]
    #[arg(long, value_name = "N")]
    max_mpl: Option<NonZeroU32>,

    /// The limit to begin with [default: twice this machine's processors;
    /// with external-scheduling what its model gives]
    #[arg(long, value_name = "N")]
    start_mpl: Option<NonZeroU32>,

    /// The database server's processors, for the controllers that begin with a queueing model
    /// [default: this machine's processors]
    #[arg(long, value_name = "N")]
    cpus: Option<NonZeroU32>,

    /// The disks the database server's data is on, for the same; 0 when all of it is in memory
    /// [default: 1]
    #[arg(long, value_name = "N")]
    disks: Option<u32>,

    /// Watch what the server's sessions do, through a connection of the proxy's own: what they wait
    /// for is logged and shown in /metrics; half-and-half and conflict-ratio need it [default: no]
    #[arg(long)]
    watch: bool,

    /// Whom to be for that: a user with the role `pg_read_all_stats`; its password is the users
    /// file's [default: the user in the upstream's URL]
    #[arg(long, value_name = "USER")]
    watch_user: Option<String>,

    /// How clients prove who they are: trust, md5 or scram-sha-256 [default: scram-sha-256 with
    /// --users-file; trust without, if only this machine can connect]
    #[arg(long, value_name = "METHOD")]
    auth: Option<ClientAuthentication>,

    /// Users and passwords, lines of "user" "password" as in PgBouncer's userlist.txt
    #[arg(long, value_name = "FILE")]
    users_file: Option<PathBuf>,

    /// Append every decision about the limit to FILE, as JSON lines that `tidegate replay` reads
    /// [default: nowhere]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,

    /// Event loops, each on a thread of its own [default: 1]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,

    /// Seed of the controllers' random steps [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Every name there is.
fn control_help() -> String {
    let names = Algorithm::ALL.map(Algorithm::name).join(", ");
    format!(
        "Who chooses the limit: {names}, or fixed:N for always N. Parameters follow after a \
         colon, as in external-scheduling:loss=0.2; `tidegate controllers` lists them. observe, \
         observe:gaussian-process:... or observe:fixed:N leaves the limit at --max-mpl and says at \
         each decision what would be set, why, and what that is believed to gain. docs/control.md \
         says what they are [default: {}]",
        Algorithm::default()
    )
}

impl ProxyArguments {
    fn into_config(self) -> Result<Config, ConfigError> {
        let mut file = match (&self.config, &self.upstream) {
            (Some(path), _) => ConfigFile::read(path)?,
            (None, upstream) => from_upstream(upstream.as_ref()),
        };
        for database in file.databases.values_mut() {
            self.override_database(database);
        }
        if !self.listen.is_empty() {
            file.listen = Some(self.listen);
        }
        file.admin_listen = self.admin_listen.or(file.admin_listen);
        file.auth = self.auth.or(file.auth);
        file.users_file = self.users_file.or(file.users_file);
        file.journal = self.journal.or(file.journal);
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

/// One server for every database name.
fn from_upstream(upstream: Option<&UpstreamUrl>) -> ConfigFile {
    let section = |url: &UpstreamUrl| ("*".to_owned(), DatabaseSection::new(url.clone()));
    ConfigFile { databases: upstream.map(section).into_iter().collect(), ..ConfigFile::default() }
}

/// Serves until a signal comes.
pub(crate) fn run(arguments: ProxyArguments) -> Result<(), Failure> {
    let config = arguments.into_config().map_err(Failure::usage)?;
    // From here on a signal waits until somebody asks for it.
    let mut signals = interrupt::signals().map_err(Failure::failed)?;
    raise_file_limit();
    let grace = config.timeouts.shutdown_grace;
    let running = tidegate_proxy::start(config).map_err(Failure::failed)?;
    print(&addresses(&running))?;

    let (handle, failure) = (signals.handle(), running.failure());
    // Ends the wait for signals when a thread has failed.
    let watch = std::thread::spawn(move || {
        let failure = failure();
        if failure.is_some() {
            handle.close();
        }
        failure
    });
    if !interrupt::wait(&mut signals) {
        running.shutdown(Duration::ZERO);
        let failure = watch.join().ok().flatten();
        return failure.map_or(Ok(()), |failure| Err(Failure::failed(failure)));
    }
    info!(grace = ?grace, "shutting down; a second signal stops at once");
    let stop_now = running.stop_now();
    std::thread::spawn(move || {
        if interrupt::wait(&mut signals) {
            stop_now();
        }
    });
    running.shutdown(grace);
    if let Ok(Some(failure)) = watch.join() {
        return Err(Failure::failed(failure));
    }
    info!("stopped");
    Ok(())
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

/// Lets this process open as many files as it is allowed to: every client is one.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => debug!(files = ?raised.current, "limit of open files raised"),
        Err(error) => warn!(%error, limit = ?limit.current, "cannot raise the limit of open files"),
    }
}
