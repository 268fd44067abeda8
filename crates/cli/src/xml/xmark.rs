//! `tidegate xml xmark`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use clap::Args;
use tidegate_subject::embedded_xml::AuctionSite;
use tidegate_workload::workload::{Client, Workload};
use tidegate_workload::xmark::{AuctionTransaction, ChildAccess, Skew, Xmark};
use tidegate_xml::store::{
    LockFigures, Locking, LockingListener, RetryClaims, XmlStore, XmlStoreError,
};

use super::output::Lines;
use super::{StoreArgument, XmlFailure, failure, open};
use crate::{Failure, interrupt};

/// Run XMark's eight transactions on a document that `tidegate xml generate` has made
///
/// The document needs a name index and an index of identifiers. Each second a line says how many
/// transactions were committed, how many were run again after a conflict, and by which protocol
/// those lock that begin; `tidegate xml protocol` exchanges it meanwhile. At the end the document
/// is checked: prices, references and numbers of elements.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  tidegate xml generate --factor 0.02 --output site.xml
  tidegate xml load shop site.xml --index 'names=name' --index 'ids=cas text //@id'
  tidegate xml xmark shop site.xml --clients 8 --seconds 60 &
  tidegate xml protocol shop taDOM3+")]
pub(crate) struct XmarkArguments {
    #[command(flatten)]
    store: StoreArgument,

    /// Document
    #[arg(value_name = "DOCUMENT")]
    document: String,

    /// Threads that run one transaction after the other
    #[arg(long, value_name = "N", default_value = "8")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    clients: u16,

    /// How long
    #[arg(long, value_name = "S", default_value = "10")]
    seconds: u64,

    /// How to lock, as `tidegate xml protocol` takes it; without it as the store does
    #[arg(long, value_name = "LOCKING")]
    locking: Option<Locking>,

    /// Seed of the transactions; new elements have identifiers from it, so each run on a document
    /// needs another one. Without it one is drawn
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Enter the document near the middle of its lists, so that clients meet
    #[arg(long)]
    high_skew: bool,

    /// Read lists of children as a whole, not from child to child
    #[arg(long)]
    stream: bool,

    /// Lock what is needed in the end before anything is read
    #[arg(long)]
    preventive: bool,
}

/// What the clients have done.
#[derive(Default)]
struct Done {
    committed: AtomicU64,
    again: AtomicU64,
    /// Locks of transactions that were committed.
    locks: AtomicU64,
    /// Time that these spent in requests for nodes and gaps, in nanoseconds.
    request_ns: AtomicU64,
    /// The part of it, and of requests for entries of indexes, that was spent in waits.
    block_ns: AtomicU64,
}

impl Done {
    fn count(&self, figures: &LockFigures) {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for (sum, more) in [
            (&self.committed, 1),
            (&self.locks, figures.locks),
            (&self.request_ns, nanoseconds(figures.request_time)),
            (&self.block_ns, nanoseconds(figures.block_time)),
        ] {
            sum.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Says what a transaction has done to lock, in the mean.
    fn summary(&self) -> String {
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed) as f64;
        let committed = read(&self.committed).max(1.0);
        let mean = |sum| read(sum) / committed;
        let [request, block] = [&self.request_ns, &self.block_ns].map(|sum| mean(sum) / 1_000.0);
        format!(
            "a transaction took {:.1} locks, was {:.1} \u{b5}s in requests for locks, and waited \
             {block:.1} \u{b5}s of that",
            mean(&self.locks),
            request.max(block)
        )
    }
}

/// Runs the transactions.
pub(crate) fn run(arguments: &XmarkArguments) -> Result<(), Failure> {
    let is_over = interrupt::flag().map_err(Failure::failed)?;
    let path = &arguments.store.store;
    let store = Arc::new(open(path)?);
    let listener = LockingListener::start(&store, path).map_err(Failure::failed)?;
    let result = run_on(&store, arguments, &is_over);
    drop(listener);
    let closed = Arc::into_inner(store).map_or(Ok(()), XmlStore::close);
    result?;
    closed.map_err(failure)
}

fn run_on(
    store: &XmlStore,
    arguments: &XmarkArguments,
    is_over: &AtomicBool,
) -> Result<(), Failure> {
    let site = AuctionSite::open(store, &arguments.document).map_err(failure)?;
    let locking = arguments.locking.clone().unwrap_or_else(|| store.locking());
    store.set_locking(locking.timed());
    // The document is there: its factor and seed say nothing here.
    let workload = Xmark {
        skew: if arguments.high_skew { Skew::HIGH } else { Skew::LOW },
        access: if arguments.stream { ChildAccess::Stream } else { ChildAccess::Navigation },
        preventive: arguments.preventive,
        ..Xmark::new(1.0, 1)
    };
    let clients = usize::from(arguments.clients);
    let drawn = || UNIX_EPOCH.elapsed().map_or(1, |time| time.as_secs() << 32);
    let seed = arguments.seed.unwrap_or_else(|| drawn() | u64::from(std::process::id()));
    let mut lines = Lines::new();
    lines.text(&format!("{clients} clients, seed {seed}"))?;
    lines.finish()?;
    let done = Done::default();
    thread::scope(|scope| {
        let client = |number| {
            let mut client = workload.client(number, clients, seed);
            let (site, done) = (&site, &done);
            scope.spawn(move || {
                let result = work(store, site, &mut *client, done, is_over);
                // One that failed ends all.
                is_over.fetch_or(result.is_err(), Ordering::Relaxed);
                result
            })
        };
        let threads: Vec<_> = (0..clients).map(client).collect();
        let shown = show(store, &done, arguments.seconds, is_over);
        is_over.store(true, Ordering::Relaxed);
        for thread in threads {
            let ended = thread.join();
            ended.map_err(|_| other("a client's thread panicked"))?.map_err(failure)?;
        }
        shown
    })?;
    let mut lines = Lines::new();
    lines.text(&done.summary())?;
    lines.finish()?;
    check(store, &site)
}

fn work(
    store: &XmlStore,
    site: &AuctionSite,
    client: &mut dyn Client,
    done: &Done,
    is_over: &AtomicBool,
) -> Result<(), XmlStoreError> {
    let attempt = |transaction: &AuctionTransaction, claims: &mut RetryClaims| {
        let mut within = store.begin();
        within.claim_first(std::mem::take(claims));
        let run =
            site.run(transaction, &within).inspect_err(|_| *claims = within.retry_claims())?;
        let figures = within.lock_figures();
        within.commit()?;
        Ok::<_, XmlStoreError>((run, figures))
    };
    while !is_over.load(Ordering::Relaxed) {
        let next = client.next();
        let Some(transaction) = next.auction() else { continue };
        let mut claims = RetryClaims::default();
        loop {
            match attempt(transaction, &mut claims) {
                Ok((run, figures)) => {
                    site.committed(transaction, &run);
                    done.count(&figures);
                    break;
                }
                Err(error) if error.is_retryable() => {
                    done.again.fetch_add(1, Ordering::Relaxed);
                    if is_over.load(Ordering::Relaxed) {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Writes a line a second until the time is up or somebody ends it.
fn show(store: &XmlStore, done: &Done, seconds: u64, is_over: &AtomicBool) -> Result<(), Failure> {
    const TICK: Duration = Duration::from_millis(20);
    let (begin, mut before) = (Instant::now(), [0, 0]);
    for second in 1..=seconds {
        while begin.elapsed() < Duration::from_secs(second) {
            if is_over.load(Ordering::Relaxed) {
                return Ok(());
            }
            thread::sleep(TICK);
        }
        let now = [&done.committed, &done.again].map(|count| count.load(Ordering::Relaxed));
        let [committed, again] = [now[0] - before[0], now[1] - before[1]];
        before = now;
        let mut lines = Lines::new();
        let locking = store.locking();
        lines.text(&format!(
            "{second:>4} of {seconds} s {committed:>8} committed {again:>6} again   {locking}"
        ))?;
        lines.finish()?;
    }
    Ok(())
}

fn check(store: &XmlStore, site: &AuctionSite) -> Result<(), Failure> {
    let conditions = site.check(store).map_err(failure)?;
    let count = conditions.len();
    let violated: Vec<String> = conditions
        .into_iter()
        .filter_map(|condition| Some(format!("{}: {}", condition.name, condition.violation?)))
        .collect();
    if !violated.is_empty() {
        return Err(other(&format!("the document is not consistent: {}", violated.join("; "))));
    }
    let mut lines = Lines::new();
    lines.text(&format!("the document is consistent by {count} conditions"))?;
    lines.finish()
}

fn other(what: &str) -> Failure {
    Failure::failed(XmlFailure::Other(what.to_owned()))
}
