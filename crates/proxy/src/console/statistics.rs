//! SHOW STATS, `STATS_TOTALS`, `STATS_AVERAGES` and TOTALS.

use std::collections::BTreeMap;
use std::time::Duration;

use super::table::{Cell, IntoCell, Table, row};
use crate::inventory::Inventory;
use crate::shared::Shared;
use crate::traffic::Traffic;

/// The traffic of a database, over all users and event loops.
#[derive(Clone, Copy, Debug, Default)]
struct DatabaseTraffic {
    total: Traffic,
    period: Traffic,
    /// The length of the period; that of the longest of several.
    length: Duration,
}

impl DatabaseTraffic {
    fn add(&mut self, other: DatabaseTraffic) {
        self.total += other.total;
        self.period += other.period;
        self.length = self.length.max(other.length);
    }

    fn totals(&self) -> [u64; 11] {
        let Traffic {
            assignments,
            transactions,
            queries,
            received,
            sent,
            transaction_us,
            query_us,
            wait_us,
            client_parses,
            server_parses,
            binds,
        } = self.total;
        [
            assignments,
            transactions,
            queries,
            received,
            sent,
            transaction_us,
            query_us,
            wait_us,
            client_parses,
            server_parses,
            binds,
        ]
    }

    /// Returns counts a second, and times as means.
    fn averages(&self) -> [u64; 11] {
        let milliseconds = u64::try_from(self.length.as_millis()).unwrap_or(u64::MAX).max(1);
        let a_second = |count: u64| count.saturating_mul(1000) / milliseconds;
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        let it = &self.period;
        [
            a_second(it.assignments),
            a_second(it.transactions),
            a_second(it.queries),
            a_second(it.received),
            a_second(it.sent),
            mean(it.transaction_us, it.transactions),
            mean(it.query_us, it.queries),
            mean(it.wait_us, it.transactions),
            a_second(it.client_parses),
            a_second(it.server_parses),
            a_second(it.binds),
        ]
    }
}

fn by_database(inventory: &Inventory) -> BTreeMap<&str, DatabaseTraffic> {
    let mut databases: BTreeMap<&str, DatabaseTraffic> = BTreeMap::new();
    for pool in &inventory.pools {
        let (period, length) = pool.traffic.last_period(inventory.at);
        let total = pool.traffic.total;
        databases.entry(&pool.database).or_default().add(DatabaseTraffic { total, period, length });
    }
    databases
}

fn table(
    inventory: &Inventory,
    names: &[&'static str],
    of: impl Fn(&DatabaseTraffic) -> Vec<u64>,
) -> Table {
    let names: Vec<&str> = ["database"].iter().chain(names).copied().collect();
    let types = format!("s{}", "N".repeat(names.len() - 1));
    let mut table = Table::new(&types, &names);
    for (database, traffic) in by_database(inventory) {
        let numbers = of(&traffic).into_iter().map(IntoCell::into_cell);
        let row: Vec<Cell> = std::iter::once(database.into_cell()).chain(numbers).collect();
        table.push(row);
    }
    table
}

const TOTALS: [&str; 11] = [
    "total_server_assignment_count",
    "total_xact_count",
    "total_query_count",
    "total_received",
    "total_sent",
    "total_xact_time",
    "total_query_time",
    "total_wait_time",
    "total_client_parse_count",
    "total_server_parse_count",
    "total_bind_count",
];

const AVERAGES: [&str; 11] = [
    "avg_server_assignment_count",
    "avg_xact_count",
    "avg_query_count",
    "avg_recv",
    "avg_sent",
    "avg_xact_time",
    "avg_query_time",
    "avg_wait_time",
    "avg_client_parse_count",
    "avg_server_parse_count",
    "avg_bind_count",
];

/// The names that both parts have when each stands alone; those of the last three differ.
const ALONE: [&str; 8] = [
    "server_assignment_count",
    "xact_count",
    "query_count",
    "bytes_received",
    "bytes_sent",
    "xact_time",
    "query_time",
    "wait_time",
];

/// SHOW STATS.
pub(super) fn both(_: &Shared, inventory: &Inventory) -> Table {
    let names = [TOTALS, AVERAGES].concat();
    table(inventory, &names, |it| [it.totals(), it.averages()].concat())
}

/// SHOW `STATS_TOTALS`.
pub(super) fn totals(_: &Shared, inventory: &Inventory) -> Table {
    let last = ["client_parse_count", "server_parse_count", "bind_count"];
    table(inventory, &[&ALONE[..], &last].concat(), |it| it.totals().to_vec())
}

/// SHOW `STATS_AVERAGES`.
pub(super) fn averages(_: &Shared, inventory: &Inventory) -> Table {
    let last = ["avg_client_parse_count", "avg_server_parse_count", "avg_bind_count"];
    table(inventory, &[&ALONE[..], &last].concat(), |it| it.averages().to_vec())
}

/// SHOW TOTALS: the sums over all databases, a row for each number.
pub(super) fn sums(_: &Shared, inventory: &Inventory) -> Table {
    const NAMES: [&str; 11] = [
        "server_assignment_count",
        "xact_count",
        "query_count",
        "client_bytes",
        "server_bytes",
        "xact_time",
        "query_time",
        "wait_time",
        "ps_client_parse_count",
        "ps_server_parse_count",
        "ps_bind_count",
    ];
    let mut all = DatabaseTraffic::default();
    for traffic in by_database(inventory).into_values() {
        all.add(traffic);
    }
    let mut table = Table::new("sN", &["name", "value"]);
    for (prefix, numbers) in [("total", all.totals()), ("avg", all.averages())] {
        for (name, number) in NAMES.iter().zip(numbers) {
            table.push(row![format!("{prefix}_{name}"), number]);
        }
    }
    table
}
