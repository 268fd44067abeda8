//! `tidegate load`.

use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tidegate_lab::load::{
    self, Arrivals, Connecting, LoadError, LoadOptions, LoadReport, LoadTarget, Progress, RATES,
    Stage, is_rate,
};
use tidegate_proxy::config_file::Period;
use tidegate_workload::pgbench::Scale;
use tidegate_workload::point_select::PointSelect;
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::workload::Workload;
use tracing::info;

use crate::{Failure, interrupt, print};

const EXAMPLES: &str = "\
Examples:
  pgbench -i -s 1 -h 127.0.0.1 -U postgres postgres
  tidegate load --url postgres://postgres@127.0.0.1:5432/postgres --clients 512
  tidegate load --url postgres://postgres@127.0.0.1:6432/postgres --clients 512 --json";

/// Run many clients against a server
///
/// All clients connect first and then begin together. Each client runs one transaction after the
/// other without a pause, or takes the next one that has arrived. The measured time begins after
/// the warm-up and always has the given duration; transactions that still run at its end are
/// counted as stragglers. The tables are pgbench's.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES, after_help = "Details and examples: tidegate load --help")]
pub(crate) struct LoadArguments {
    /// Server: postgres://user:password@host:port/database
    #[arg(long, value_name = "URL")]
    url: String,

    /// Workload: tpcb (pgbench's TPC-B-like transaction) or point-select
    #[arg(long, value_enum, default_value = "tpcb", hide_possible_values = true)]
    workload: Work,

    /// Scale with which the tables were loaded, as in `pgbench -i -s`
    #[arg(long, value_name = "N", default_value = "1", value_parser = scale)]
    scale: Scale,

    /// Number of clients
    #[arg(long, value_name = "N", default_value = "64")]
    clients: usize,

    /// Arrival of transactions: `closed` (a client begins the next one after its last answer), or
    /// an open loop: `constant:RATE` or `poisson:RATE` in transactions a second, or `trace:FILE`
    /// with one arrival a line, in seconds from the start and in ascending order
    #[arg(long, value_name = "ARRIVALS", default_value = "closed", value_parser = arrivals)]
    arrivals: Arrivals,

    /// Time in which transactions run without being counted
    #[arg(long, value_name = "TIME", default_value = "2s")]
    warmup: Period,

    /// Measured time
    #[arg(long, value_name = "TIME", default_value = "10s")]
    duration: Period,

    /// Time in which all clients must connect
    #[arg(long, value_name = "TIME", default_value = "30s")]
    connect_timeout: Period,

    /// Seed of the clients' random values
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,

    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

fn scale(text: &str) -> Result<Scale, String> {
    let scale = text.parse().ok().and_then(Scale::new);
    scale.ok_or_else(|| "expected a positive number".to_owned())
}

/// Workloads on pgbench's tables.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Work {
    Tpcb,
    PointSelect,
}

impl Work {
    fn on(self, scale: Scale) -> Arc<dyn Workload> {
        match self {
            Work::Tpcb => Arc::new(Tpcb::new(scale)),
            Work::PointSelect => Arc::new(PointSelect { scale }),
        }
    }
}

fn arrivals(text: &str) -> Result<Arrivals, String> {
    let rate = |text: &str| text.parse().ok().filter(|&rate: &f64| is_rate(rate));
    let known = match text.split_once(':') {
        None if text == "closed" => Some(Arrivals::Closed),
        Some(("constant", text)) => rate(text).map(|rate| Arrivals::Constant { rate }),
        Some(("poisson", text)) => rate(text).map(|rate| Arrivals::Poisson { rate }),
        Some(("trace", path)) => return trace(path),
        _ => None,
    };
    known.ok_or_else(|| {
        format!("expected closed, constant:RATE, poisson:RATE or trace:FILE; RATE is {RATES}")
    })
}

/// The latest arrival that a trace may have: a year after its start.
const TRACE_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// Reads arrivals from a trace file.
fn trace(path: &str) -> Result<Arrivals, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut times = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let seconds = line.trim().parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        let is_next = |time: &Duration| times.last().is_none_or(|last| last <= time);
        let time = seconds.filter(|time| *time <= TRACE_MAX && is_next(time));
        let reason = "is no number of seconds, below the one before it, or more than a year";
        times.push(time.ok_or_else(|| format!("{path}: line {number}: `{line}` {reason}"))?);
    }
    Ok(Arrivals::Trace(times.into()))
}

/// Runs the load and prints its report.
pub(crate) fn run(arguments: &LoadArguments) -> Result<(), Failure> {
    let connecting = Connecting::within(arguments.connect_timeout.0);
    let target = LoadTarget::Url { url: arguments.url.clone(), connecting };
    let workload = arguments.workload.on(arguments.scale);
    let options = LoadOptions {
        arrivals: arguments.arrivals.clone(),
        warmup: arguments.warmup.0,
        duration: arguments.duration.0,
        seed: arguments.seed,
        ..LoadOptions::new(target, workload, arguments.clients)
    };
    let cancel = interrupt::flag().map_err(Failure::failed)?;
    let report = load::run(&options, &cancel, &mut log_progress).map_err(|error| match error {
        LoadError::Url(_)
        | LoadError::NoClients
        | LoadError::TooManyClients(_)
        | LoadError::Rate(_) => Failure::usage(error),
        _ => Failure::failed(error),
    })?;
    if arguments.json {
        let json = serde_json::to_string_pretty(&report).map_err(Failure::failed)?;
        print(&(json + "\n"))?;
    } else {
        print(&table(&report))?;
    }
    let is_done = report.transactions + report.warmup_transactions + report.late_commits > 0;
    match report.first_error {
        Some(first) if !is_done => {
            Err(Failure::failed(NothingDone { errors: report.errors.values().sum(), first }))
        }
        _ => Ok(()),
    }
}

/// No transaction of a load succeeded.
#[derive(Debug, thiserror::Error)]
#[error(
    "no transaction succeeded, {errors} failed; the first one: {first}; are the tables loaded, as \
     by `pgbench -i`?"
)]
struct NothingDone {
    errors: u64,
    first: String,
}

fn log_progress(progress: &Progress) {
    let stage = match progress.stage {
        Stage::Connecting => "connecting",
        Stage::Ready => "all connected",
        Stage::Warmup => "warming up",
        Stage::Measuring => "measuring",
        Stage::Draining => "draining",
    };
    info!(connected = progress.connected, tps = progress.tps.round(), "{stage}");
}

fn table(report: &LoadReport) -> String {
    let latency = &report.latency;
    let errors: u64 = report.errors.values().sum();
    format!(
        "{workload}, {clients} clients, {seconds:.1} s\n\
         throughput     {tps:.1} tps ({transactions} transactions)\n\
         latency, ms    mean {mean:.2}  p50 {p50:.2}  p95 {p95:.2}  p99 {p99:.2}  max {max:.2}\n\
         stragglers     {stragglers}{overdue}\n\
         errors         {errors}, {retries} transactions run again, {losses} connections lost\n\
         {first_error}\
         client's CPU   {cpu:.1} us a transaction, {share:.0} % of a core\n",
        workload = report.workload,
        clients = report.clients,
        seconds = report.seconds,
        tps = report.tps,
        transactions = report.transactions,
        mean = latency.mean_ms,
        p50 = latency.p50_ms,
        p95 = latency.p95_ms,
        p99 = latency.p99_ms,
        max = latency.max_ms,
        stragglers = report.stragglers,
        overdue = match report.overdue {
            0 => String::new(),
            overdue => format!(", {overdue} due and not begun"),
        },
        retries = report.retries,
        losses = report.connection_losses,
        first_error = match &report.first_error {
            None => String::new(),
            Some(text) => format!("first error    {text}\n"),
        },
        cpu = report.client_cpu_us,
        share = report.client_core_share * 100.0,
    )
}
