//! How long transactions wait and last, by database and class.
//!
//! A gate knows no databases, so event loops count this: each for itself, summed up when somebody
//! asks. Clients name databases, so their number is bounded: the first [`DATABASES_MAX`] of an
//! event loop count by themselves, all others as [`OTHER`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use super::{BOUNDS_US, Kind, Page, WorkerCounters};
use crate::traffic::micros;

/// Databases that count by themselves.
const DATABASES_MAX: usize = 64;

/// What all others are called.
const OTHER: &str = "other";

/// Classes that count by themselves; those after them count as the last.
const CLASSES_MAX: usize = 64;

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct DurationCounts {
    /// For each bound those that are not above it and above the one before; then all longer ones.
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl DurationCounts {
    fn record(&self, duration: Duration) {
        let us = micros(duration);
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }
}

/// Sums of histograms.
#[derive(Clone, Copy, Debug, Default)]
struct Summed {
    buckets: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl Summed {
    fn add(&mut self, counts: &DurationCounts) {
        for (sum, bucket) in self.buckets.iter_mut().zip(&counts.buckets) {
            *sum += bucket.load(Ordering::Relaxed);
        }
        self.sum_us += counts.sum_us.load(Ordering::Relaxed);
    }

    fn write(&self, page: &mut Page, name: &str, labels: &[(&str, &str)]) {
        let mut within = 0;
        for (bound, count) in BOUNDS_US.iter().zip(&self.buckets) {
            within += count;
            let le = Duration::from_micros(*bound).as_secs_f64().to_string();
            page.sample(&format!("{name}_bucket"), &[labels, &[("le", &le)]].concat(), within);
        }
        let count: u64 = self.buckets.iter().sum();
        page.sample(&format!("{name}_bucket"), &[labels, &[("le", "+Inf")]].concat(), count);
        page.sample(&format!("{name}_sum"), labels, self.sum_us as f64 / 1e6);
        page.sample(&format!("{name}_count"), labels, count);
    }
}

/// What the transactions of a class of a database took.
#[derive(Debug, Default)]
struct ClassTimes {
    wait: DurationCounts,
    transaction: DurationCounts,
}

/// What the transactions of a database took.
#[derive(Debug)]
pub(crate) struct DatabaseTimes([OnceLock<Box<ClassTimes>>; CLASSES_MAX]);

impl Default for DatabaseTimes {
    fn default() -> DatabaseTimes {
        DatabaseTimes(std::array::from_fn(|_| OnceLock::new()))
    }
}

impl DatabaseTimes {
    fn class(&self, index: usize) -> &ClassTimes {
        self.0[index.min(CLASSES_MAX - 1)].get_or_init(Box::default)
    }

    /// A transaction of a class has waited so long for its permit and its connection.
    pub(crate) fn waited(&self, class: usize, wait: Duration) {
        self.class(class).wait.record(wait);
    }

    /// A transaction of a class that had its connection for so long has ended.
    pub(crate) fn ended(&self, class: usize, duration: Duration) {
        self.class(class).transaction.record(duration);
    }
}

/// The databases of an event loop.
#[derive(Debug, Default)]
pub(crate) struct DatabaseRegistry(Mutex<BTreeMap<String, Arc<DatabaseTimes>>>);

impl DatabaseRegistry {
    /// Returns where the transactions of a database are counted, by the name that clients use.
    pub(crate) fn of(&self, database: &str) -> Arc<DatabaseTimes> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = known.contains_key(database) || known.len() < DATABASES_MAX;
        let name = if is_known { database } else { OTHER };
        Arc::clone(known.entry(name.to_owned()).or_default())
    }

    fn all(&self) -> Vec<(String, Arc<DatabaseTimes>)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().map(|(name, times)| (name.clone(), Arc::clone(times))).collect()
    }
}

/// The sums of waits and of transactions by database and class.
type ByDatabase = BTreeMap<(String, usize), [Summed; 2]>;

fn summed(workers: &[Arc<WorkerCounters>]) -> ByDatabase {
    let mut sums = ByDatabase::new();
    let mut names = BTreeSet::new();
    for (name, times) in workers.iter().flat_map(|worker| worker.databases.all()) {
        let is_room = names.len() < DATABASES_MAX || names.contains(&name);
        let name = if is_room { name } else { OTHER.to_owned() };
        names.insert(name.clone());
        for (class, times) in times.0.iter().enumerate() {
            let Some(ClassTimes { wait, transaction }) = times.get().map(|it| &**it) else {
                continue;
            };
            let [waits, transactions] = sums.entry((name.clone(), class)).or_default();
            waits.add(wait);
            transactions.add(transaction);
        }
    }
    sums
}

const FAMILIES: [(&str, &str); 2] = [
    (
        "tidegate_database_wait_seconds",
        "Time from the request of a permit to the connection, by the database that clients name.",
    ),
    (
        "tidegate_database_transaction_seconds",
        "Time from the connection to the end of the transaction, likewise, with its client's.",
    ),
];

/// Writes the histograms; `classes` are the names of the classes by their numbers.
pub(super) fn write(page: &mut Page, workers: &[Arc<WorkerCounters>], classes: &[String]) {
    let sums = summed(workers);
    for (index, (name, help)) in FAMILIES.into_iter().enumerate() {
        page.family(name, Kind::Histogram, help);
        for ((database, class), sums) in &sums {
            let class = classes.get(*class).map_or(OTHER, String::as_str);
            sums[index].write(page, name, &[("database", database), ("class", class)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_are_counted_by_database_and_class_and_summed_over_event_loops() {
        let workers = [Arc::new(WorkerCounters::default()), Arc::default()];
        for worker in &workers {
            let times = worker.databases.of("shop");
            times.waited(0, Duration::from_millis(3));
            times.ended(0, Duration::from_micros(250));
            times.ended(1, Duration::from_secs(100));
        }
        let mut page = Page(String::new());
        write(&mut page, &workers, &["high".into(), "normal".into()]);
        let labels = "{database=\"shop\",class=\"high\"";
        for line in [
            &*format!("tidegate_database_wait_seconds_bucket{labels},le=\"0.0025\"}} 0\n"),
            &format!("tidegate_database_wait_seconds_bucket{labels},le=\"0.005\"}} 2\n"),
            &format!("tidegate_database_wait_seconds_sum{labels}}} 0.006\n"),
            &format!("tidegate_database_transaction_seconds_bucket{labels},le=\"0.00025\"}} 2\n"),
            "_seconds_bucket{database=\"shop\",class=\"normal\",le=\"60\"} 0\n",
            "_seconds_count{database=\"shop\",class=\"normal\"} 2\n",
        ] {
            assert!(page.0.contains(line), "{line}: {}", page.0);
        }
    }

    #[test]
    fn the_number_of_databases_is_bounded() {
        let workers = [Arc::new(WorkerCounters::default()), Arc::default()];
        for (number, worker) in workers.iter().enumerate() {
            for database in 0..3 * DATABASES_MAX {
                let name = format!("d{number}-{database}");
                worker.databases.of(&name).ended(0, Duration::from_millis(1));
            }
        }
        let sums = summed(&workers);
        assert_eq!(sums.len(), DATABASES_MAX + 1);
        let count: u64 = sums.values().map(|sums| sums[1].buckets.iter().sum::<u64>()).sum();
        assert_eq!(count, 6 * DATABASES_MAX as u64, "none is lost");
    }
}
