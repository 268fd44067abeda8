//! How much the service demand of TPC-W varies: one client on a SQLite file, one interaction after
//! the other, so that none waits for another. Times are those of the processor on this thread,
//! which is all the service there is: the database is within the process and in memory.
//!
//! `cargo run --release -p tidegate-workload --example tpcw_demand [items browsers interactions]`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tidegate_subject::connection::{load, run};
use tidegate_subject::sqlite::SqliteConnection;
use tidegate_workload::Demand;
use tidegate_workload::tpcw::{Mix, Scale, Tpcw};
use tidegate_workload::workload::Workload;

/// Interactions before the first that counts, to warm up.
const WARM: u32 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u32>());
    let mut number = |usual| numbers.next().unwrap_or(Ok(usual));
    let (items, browsers, interactions) = (number(10_000)?, number(1)?, number(10_000)?);
    let mut out = std::io::stdout().lock();
    for mix in Mix::ALL {
        let workload = Tpcw::new(Scale::new(items, browsers)?, mix);
        let (all, kinds) = measure(&workload, interactions)?;
        writeln!(out, "{}, {items} items, {browsers} browsers:", workload.name())?;
        for (kind, demand) in workload.kinds().iter().zip(&kinds) {
            print(&mut out, kind.name, demand)?;
        }
        print(&mut out, "all", &all)?;
    }
    Ok(())
}

fn measure(workload: &Tpcw, interactions: u32) -> Result<(Demand, Vec<Demand>), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("shop.db");
    let mut connection = SqliteConnection::open(&file, Duration::from_secs(1))?;
    connection.batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")?;
    // All of it in memory, in KiB.
    connection.batch("PRAGMA cache_size = -1000000")?;
    load(&mut connection, workload, &AtomicBool::new(false), &mut |_| {})?;
    connection.batch("ANALYZE")?;
    let mut client = workload.client(0, 1, 1);
    let mut all = Demand::new();
    let mut kinds = vec![Demand::new(); workload.kinds().len()];
    for number in 0..WARM + interactions {
        let transaction = client.next();
        let begin = processor_ms();
        run(&mut connection, Arc::clone(&transaction))?;
        let milliseconds = processor_ms() - begin;
        if number >= WARM {
            all.add(milliseconds);
            if let Some(kind) = kinds.get_mut(transaction.kind()) {
                kind.add(milliseconds);
            }
        }
    }
    Ok((all, kinds))
}

/// The processor's time for this thread so far.
fn processor_ms() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1_000.0 + time.tv_nsec as f64 / 1_000_000.0
}

fn print(out: &mut dyn Write, name: &str, demand: &Demand) -> std::io::Result<()> {
    let (count, mean) = (demand.count(), demand.mean().unwrap_or(0.0));
    match demand.squared_coefficient_of_variation() {
        Some(variation) => {
            writeln!(out, "  {name:<22} {count:>6}  {mean:>9.4} ms  C2 {variation:.2}")
        }
        None => writeln!(out, "  {name:<22} {count:>6}  {mean:>9.4} ms"),
    }
}
