//! Counts the work of small loads on the embedded engine and takes their processor time, for
//! `bench/costs.py`, which fits the cost of each kind of work to them.
//!
//! ```text
//! cargo run --release -p tidegate-subject --example work_costs -- 30000 > loads.csv
//! ```
//!
//! The argument is the number of rows, or `--names` for the first line alone, or the name of a
//! benchmark (`tpcb`, `tpcc`, `tpcw`), whose transactions are then measured instead, one after the
//! other, to see what the costs predict of them. What work costs depends on how much of the data is
//! in the processor's caches.
//!
//! Each line is a batch of one load: its name, the transactions, nanoseconds of processor time, and
//! the counts by [`Operation`]. A load repeats one transaction with other keys; loads differ in how
//! much they do of each operation. Wake-ups are known from what the load does. The files are below
//! `TMPDIR`.

#![expect(clippy::print_stdout, reason = "printing measurements is what the program is for")]

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use tidegate_control::{Algorithm, Bounds, Mpl, Resources, Setting};
use tidegate_gate::Class;
use tidegate_runtime::work::{Counts, OPERATIONS, Operation, counts};
use tidegate_subject::connection::{Transactional, run};
use tidegate_subject::database::Database;
use tidegate_subject::embedded::sql::StoreConnection;
use tidegate_subject::embedded::{
    ClassPriorities, Embedded, EngineDatabase, Isolation, LockPriorities, Options, Serving,
};
use tidegate_workload::pgbench::Scale;
use tidegate_workload::tpcb::Tpcb;
use tidegate_workload::tpcc::{self, Tpcc};
use tidegate_workload::tpcw::{self, Tpcw};
use tidegate_workload::workload::{Client, Condition, Depth, Kind, Transaction, Workload};
use tidegate_workload::{
    Column, Ending, Failure, Index, Random, Running, Session, Statement, Table, Type, Value, Wants,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Batches of a load, each with a line.
const BATCHES: usize = 7;
/// Processor time for which a load's transactions follow one another, in nanoseconds.
const BURST_NS: u64 = 50_000;
/// Turns of a batch.
const ROUNDS: u64 = 400;
/// Rows of the narrow table that have the same group.
const GROUP: i32 = 10;
/// Columns of the wide table beside its key.
const WIDTH: usize = 20;
/// Transactions of a benchmark in a batch.
const DRAWN: u64 = 2_000;
const FIRST_NEW: i64 = 1 << 32;
/// What a thread does before it wakes the other one.
const WORK: Duration = Duration::from_micros(20);

fn main() -> Outcome<()> {
    let operations: Vec<&str> = Operation::ALL.iter().map(|operation| operation.name()).collect();
    println!("load,transactions,cpu_ns,{}", operations.join(","));
    let rows = match std::env::args().nth(1) {
        Some(argument) if argument == "--names" => return Ok(()),
        Some(argument) if argument.starts_with("tpc") => return benchmark(&argument),
        Some(argument) => argument.parse()?,
        None => 30_000,
    };
    let tables = Arc::new(Tables { rows: rows.max(1_000) });
    for (name, buffer_bytes) in [("", 4 << 30), ("missing ", 1 << 20)] {
        let database = load(&tables, buffer_bytes)?;
        let mut bench = Bench::new(&database, *tables);
        if name.is_empty() {
            bench.all()?;
            let allowed = pin(1)?;
            served(&database)?;
            sched_setaffinity(None, &allowed)?;
        } else {
            bench.misses()?;
        }
    }
    channels()
}

fn load(tables: &Arc<Tables>, buffer_bytes: usize) -> Outcome<Embedded> {
    let isolation = Isolation::Serializable;
    let mut database = Embedded::start(Options {
        buffer_bytes,
        isolation,
        lock_priorities: LockPriorities::Ignored,
    })?;
    database.load(&**tables, &AtomicBool::new(false))?;
    database.level(&[])?;
    Ok(database)
}

/// Measures the transactions of a benchmark in a serial execution, by kind, and how long its client
/// takes to draw one.
fn benchmark(name: &str) -> Outcome<()> {
    let workload: Arc<dyn Workload> = match name {
        "tpcb" => Arc::new(Tpcb::new(Scale::new(10).ok_or("a scale of 10")?)),
        "tpcc" => Arc::new(Tpcc::new(tpcc::Scale::new(4)?.reduced(10_000, 300)?)),
        "tpcw" => Arc::new(Tpcw::new(tpcw::Scale::new(1_000, 2)?, tpcw::Mix::Shopping)),
        other => return Err(format!("tpcb, tpcc or tpcw, not {other}").into()),
    };
    let isolation = Isolation::Serializable;
    let mut database = Embedded::start(Options {
        buffer_bytes: 4 << 30,
        isolation,
        lock_priorities: LockPriorities::Ignored,
    })?;
    database.load(&*workload, &AtomicBool::new(false))?;
    database.level(&[])?;
    let mut connection = database.connect();
    let mut client = workload.client(0, 1, 1);
    for batch in 0..=BATCHES {
        let start = Moment::now();
        let transactions: Vec<_> = (0..DRAWN).map(|_| client.next()).collect();
        if batch > 0 {
            start.print_until(&Moment::now(), &format!("{name} drawn"), DRAWN);
        }
        let mut kinds: Vec<Vec<_>> = vec![Vec::new(); workload.kinds().len()];
        for transaction in transactions {
            kinds[transaction.kind()].push(transaction);
        }
        for (kind, transactions) in workload.kinds().iter().zip(kinds) {
            let (start, count) = (Moment::now(), transactions.len() as u64);
            for transaction in transactions {
                run(&mut connection, transaction)?;
            }
            // The first batch fills the caches.
            if count > 0 && batch > 0 {
                start.print_until(&Moment::now(), &format!("{name} {}", kind.name), count);
            }
        }
    }
    Ok(())
}

/// A moment of a thread: what it has done, and the processor time of it.
#[derive(Clone, Copy, Default)]
struct Moment {
    cpu_ns: u64,
    counts: Counts,
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

impl Moment {
    fn now() -> Moment {
        Moment { cpu_ns: nanoseconds(ClockId::ThreadCPUTime), counts: counts() }
    }

    /// Adds what was done between two moments.
    fn add(&mut self, start: &Moment, end: &Moment) {
        self.cpu_ns += end.cpu_ns - start.cpu_ns;
        for (sum, (after, before)) in
            self.counts.0.iter_mut().zip(end.counts.0.iter().zip(start.counts.0))
        {
            *sum += after - before;
        }
    }

    /// Prints what was done since `self`.
    fn print_until(&self, end: &Moment, name: &str, transactions: u64) {
        let mut done = [0; OPERATIONS];
        for (done, (after, before)) in done.iter_mut().zip(end.counts.0.iter().zip(self.counts.0)) {
            *done = after - before;
        }
        let done: Vec<String> = done.iter().map(u64::to_string).collect();
        let cpu_ns = end.cpu_ns - self.cpu_ns;
        println!("{name},{transactions},{cpu_ns},{}", done.join(","));
    }
}

struct Bench {
    connection: StoreConnection,
    draw: Random,
    rows: i32,
    next_new: i64,
}

/// What a load's transaction does.
type Body = dyn Fn(&mut Bench) -> Result<(), Failure>;

/// A load, and how many of its transactions follow one another.
struct Load {
    name: String,
    body: Box<Body>,
    burst: u64,
}

fn load_of(
    name: impl Into<String>,
    body: impl Fn(&mut Bench) -> Result<(), Failure> + 'static,
) -> Load {
    Load { name: name.into(), body: Box::new(body), burst: 1 }
}

impl Bench {
    fn new(database: &Embedded, tables: Tables) -> Bench {
        let draw = Random::new(1, 1);
        let connection = database.connect();
        Bench { connection, draw, rows: tables.rows, next_new: FIRST_NEW }
    }

    /// Measures loads in bursts by turns, so that each finds caches as others have left them, as
    /// the transactions of a benchmark do.
    fn measure(&mut self, mut loads: Vec<Load>) -> Outcome<()> {
        for load in &mut loads {
            let (start, end) = self.burst(load)?;
            load.burst = (BURST_NS / (end.cpu_ns - start.cpu_ns).max(1)).clamp(1, 100);
        }
        for batch in 0..=BATCHES {
            let mut sums = vec![Moment::default(); loads.len()];
            for _ in 0..ROUNDS {
                for (load, sum) in loads.iter().zip(&mut sums) {
                    let (start, end) = self.burst(load)?;
                    sum.add(&start, &end);
                }
            }
            // The first batch fills the caches.
            for (load, sum) in loads.iter().zip(sums).filter(|_| batch > 0) {
                Moment::default().print_until(&sum, &load.name, load.burst * ROUNDS);
            }
        }
        Ok(())
    }

    fn burst(&mut self, load: &Load) -> Outcome<(Moment, Moment)> {
        let start = Moment::now();
        for _ in 0..load.burst {
            self.connection.begin()?;
            (load.body)(self)?;
            self.connection.commit()?;
        }
        Ok((start, Moment::now()))
    }

    fn key(&mut self) -> i64 {
        self.draw.between(1, self.rows).into()
    }

    /// Returns the ends of a range of so many keys.
    fn range(&mut self, keys: i32) -> [Value<'static>; 2] {
        let low = self.draw.between(1, self.rows - keys + 1);
        [low.into(), (low + keys - 1).into()]
    }

    fn read(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<(), Failure> {
        use tidegate_workload::Connection as _;
        self.connection.run(statement, values, Wants::Rows).map(drop)
    }

    fn write(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<(), Failure> {
        use tidegate_workload::Connection as _;
        self.connection.run(statement, values, Wants::Count).map(drop)
    }

    fn all(&mut self) -> Outcome<()> {
        let mut loads = vec![load_of("empty", |_| Ok(()))];
        for count in [1, 10] {
            let mut add = |name: &str, body: fn(&mut Bench, usize) -> Result<(), Failure>| {
                loads.push(load_of(format!("{name} {count}"), move |bench| body(bench, count)));
            };
            add("select", Bench::select);
            add("update", Bench::update);
            add("insert", Bench::insert);
            add("insert and delete", |bench, count| {
                bench.insert(count)?;
                bench.delete(count)
            });
            add("wide select", Bench::wide);
            add("wide update", Bench::wide_update);
        }
        for (name, sql) in RANGES {
            for count in [10, 100, 500] {
                loads.push(load_of(format!("{name} {count}"), move |bench| {
                    let values = bench.range(count);
                    bench.read(&Statement::new(sql), &values)
                }));
            }
        }
        for (name, statement) in [("by index", &BY_GROUP), ("last by index", &LAST_OF_GROUP)] {
            loads.push(load_of(name, |bench| {
                let group = bench.group();
                bench.read(statement, &[group])
            }));
        }
        loads.push(load_of("move in index", |bench| {
            let (group, id) = (bench.group(), bench.key());
            bench.write(&MOVE, &[group, id.into()])
        }));
        loads.push(load_of("range update", |bench| {
            let values = bench.range(20);
            bench.write(&RANGE_UPDATE, &values)
        }));
        loads.push(load_of("for update", |bench| {
            let values = bench.range(20);
            bench.read(&FOR_UPDATE, &values)
        }));
        self.measure(loads)
    }

    /// Loads of a table that is larger than its buffer.
    fn misses(&mut self) -> Outcome<()> {
        self.measure(vec![
            load_of("missing select", |bench| bench.select(5)),
            load_of("missing update", |bench| bench.update(5)),
        ])
    }

    fn group(&mut self) -> Value<'static> {
        self.draw.between(0, self.rows / GROUP - 1).into()
    }

    fn select(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let id = self.key();
            self.read(&SELECT, &[id.into()])?;
        }
        Ok(())
    }

    fn update(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let id = self.key();
            self.write(&UPDATE, &[7.into(), id.into()])?;
        }
        Ok(())
    }

    fn insert(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            self.next_new += 1;
            let (id, group) = (self.next_new, self.group());
            self.write(&INSERT, &[id.into(), group, 1.into(), "a new row".into()])?;
        }
        Ok(())
    }

    fn delete(&mut self, count: usize) -> Result<(), Failure> {
        for back in 0..count {
            let id = self.next_new - i64::try_from(back).expect("a small number");
            self.write(&DELETE, &[id.into()])?;
        }
        Ok(())
    }

    fn wide_key(&mut self) -> Value<'static> {
        self.draw.between(1, self.rows / GROUP).into()
    }

    fn wide(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let id = self.wide_key();
            self.read(&WIDE, &[id])?;
        }
        Ok(())
    }

    fn wide_update(&mut self, count: usize) -> Result<(), Failure> {
        for _ in 0..count {
            let id = self.wide_key();
            self.write(&WIDE_UPDATE, &["another text of this row".into(), id])?;
        }
        Ok(())
    }
}

/// Transactions that do nothing, one after the other, through the engine's server: what the
/// server's worker takes, and what the thread of the clients takes. Both are on one processor,
/// because to leave idleness costs more than all else here.
fn served(database: &Embedded) -> Outcome<()> {
    const REQUESTS: u64 = 5_000;
    let (algorithm, setting) = limit(Mpl::ONE)?;
    let service = database.serve(Serving {
        algorithm,
        setting: &setting,
        arms: Vec::new(),
        priorities: ClassPriorities::default(),
        seed: 1,
        observer: Box::new(|_| ()),
    })?;
    let worker: Arc<Mutex<Option<Counts>>> = Arc::default();
    let nothing: Arc<dyn Transaction> = Arc::new(Nothing { worker: Arc::clone(&worker) });
    let (answered, answers) = mpsc::channel();
    let ask = |times: u64| -> Outcome<()> {
        for _ in 0..times {
            let answered = answered.clone();
            service.submit(&nothing, Class::Normal, move |done| {
                let _ = answered.send(done.map(drop));
            });
            answers.recv()??;
        }
        Ok(())
    };
    let counted = || worker.lock().ok().and_then(|counts| *counts).ok_or("nothing was run");
    let process = || nanoseconds(ClockId::ProcessCPUTime);
    ask(REQUESTS)?;
    for _ in 0..BATCHES {
        let (own, all, counts) = (Moment::now(), process(), counted()?);
        ask(REQUESTS)?;
        let end = Moment { counts: woken(Counts::default(), REQUESTS), ..Moment::now() };
        let others_ns = process() - all - (end.cpu_ns - own.cpu_ns);
        let counts_after = woken(counted()?, REQUESTS);
        Moment { cpu_ns: 0, counts }.print_until(
            &Moment { cpu_ns: others_ns, counts: counts_after },
            "served",
            REQUESTS,
        );
        Moment { counts: Counts::default(), ..own }.print_until(&end, "client", REQUESTS);
    }
    Ok(())
}

/// Adds wake-ups, which threads of the operating system do not count.
fn woken(mut counts: Counts, times: u64) -> Counts {
    counts.0[Operation::WakeUp as usize] += times;
    counts
}

/// A gate with a fixed limit.
fn limit(start: Mpl) -> Outcome<(Algorithm, Setting)> {
    let bounds = Bounds::new(Mpl::ONE, start)?;
    let resources = Resources { cpus: 2, disks: 1 };
    Ok((Algorithm::Fixed(start), Setting { bounds, start, resources }))
}

/// Two threads that wake each other, on one processor, and on two of which each is idle while the
/// other one works.
fn channels() -> Outcome<()> {
    for _ in 0..BATCHES {
        channel_on(1)?;
        channel_on(2)?;
    }
    Ok(())
}

fn channel_on(processors: usize) -> Outcome<()> {
    use tidegate_runtime::sync::channel;
    const TURNS: u64 = 3_000;
    let ((ask, asked), (answer, answered)) = (channel(), channel());
    let allowed = pin(processors)?;
    let other = std::thread::spawn(move || {
        while let Ok(turn) = asked.recv() {
            busy_for(WORK);
            let _ = answer.send(turn);
        }
    });
    let (began, cpu_ns) = (Instant::now(), nanoseconds(ClockId::ProcessCPUTime));
    for turn in 0..TURNS {
        let _ = ask.send(turn);
        let _ = answered.recv();
        busy_for(WORK);
    }
    let took = began.elapsed().saturating_sub(2 * WORK * u32::try_from(TURNS)?);
    let cpu_ns = nanoseconds(ClockId::ProcessCPUTime) - cpu_ns;
    drop(ask);
    let _ = other.join();
    sched_setaffinity(None, &allowed)?;
    // One there, one back.
    let mut counts = woken(Counts::default(), 2 * TURNS);
    let start = Moment::default();
    let work_ns = u64::try_from((2 * WORK).as_nanos())? * TURNS;
    let mut end = Moment { cpu_ns: cpu_ns.saturating_sub(work_ns), counts };
    if processors == 1 {
        start.print_until(&end, "channel on one processor", TURNS);
        return Ok(());
    }
    counts.0[Operation::IdleWakeUp as usize] = 2 * TURNS;
    end.counts = counts;
    start.print_until(&end, "channel on two processors", TURNS);
    // How long it is until the other one works.
    let latency = Moment { cpu_ns: u64::try_from(took.as_nanos())?, counts: Counts::default() };
    start.print_until(&latency, "latency", 2 * TURNS);
    Ok(())
}

/// Leaves this thread, and those that it starts, so many processors. Returns what it had.
fn pin(processors: usize) -> Outcome<CpuSet> {
    let allowed = sched_getaffinity(None)?;
    let mut fewer = CpuSet::new();
    let places = (0..CpuSet::MAX_CPU).filter(|&place| allowed.is_set(place));
    places.take(processors).for_each(|place| fewer.set(place));
    sched_setaffinity(None, &fewer)?;
    Ok(allowed)
}

fn busy_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

const RANGES: [(&str, &str); 6] = [
    ("range", "SELECT id, amount, note FROM narrow WHERE id BETWEEN ? AND ?"),
    ("count", "SELECT COUNT(*) FROM narrow WHERE id BETWEEN ? AND ?"),
    ("group", "SELECT grp, SUM(amount) FROM narrow WHERE id BETWEEN ? AND ? GROUP BY grp"),
    ("sort", "SELECT id, note FROM narrow WHERE id BETWEEN ? AND ? ORDER BY amount, id LIMIT 10"),
    ("filter", "SELECT id FROM narrow WHERE id BETWEEN ? AND ? AND amount < 0"),
    (
        "join",
        "SELECT narrow.id, wide.c02 FROM narrow, wide WHERE narrow.id BETWEEN ? AND ? \
         AND wide.id = narrow.amount",
    ),
];
const SELECT: Statement = Statement::new("SELECT amount FROM narrow WHERE id = ?");
const UPDATE: Statement = Statement::new("UPDATE narrow SET amount = amount + ? WHERE id = ?");
const INSERT: Statement =
    Statement::new("INSERT INTO narrow (id, grp, amount, note) VALUES (?, ?, ?, ?)");
const DELETE: Statement = Statement::new("DELETE FROM narrow WHERE id = ?");
static BY_GROUP: Statement = Statement::new("SELECT id, amount FROM narrow WHERE grp = ?");
static LAST_OF_GROUP: Statement = Statement::new("SELECT MAX(id) FROM narrow WHERE grp = ?");
const MOVE: Statement = Statement::new("UPDATE narrow SET grp = ? WHERE id = ?");
const RANGE_UPDATE: Statement =
    Statement::new("UPDATE narrow SET amount = amount + 1 WHERE id BETWEEN ? AND ?");
const FOR_UPDATE: Statement =
    Statement::new("SELECT amount FROM narrow WHERE id BETWEEN ? AND ? FOR UPDATE");
const WIDE: Statement = Statement::new(
    "SELECT c01, c02, c03, c04, c05, c06, c07, c08, c09, c10, c11, c12, c13, c14, c15, c16, c17, \
     c18, c19, c20 FROM wide WHERE id = ?",
);
const WIDE_UPDATE: Statement = Statement::new("UPDATE wide SET c04 = ? WHERE id = ?");

/// A narrow table with an index, and a wide one with a tenth of its rows.
#[derive(Clone, Copy, Debug)]
struct Tables {
    rows: i32,
}

const NAMES: [&str; WIDTH] = [
    "c01", "c02", "c03", "c04", "c05", "c06", "c07", "c08", "c09", "c10", "c11", "c12", "c13",
    "c14", "c15", "c16", "c17", "c18", "c19", "c20",
];

impl Workload for Tables {
    fn name(&self) -> &'static str {
        "costs"
    }

    fn kinds(&self) -> &'static [Kind] {
        &[Kind { name: "nothing", phases: &["all"] }]
    }

    fn tables(&self) -> Vec<Table> {
        let narrow = Table {
            name: "narrow",
            columns: vec![
                Column::new("id", Type::BigInt),
                Column::new("grp", Type::Int),
                Column::new("amount", Type::BigInt),
                Column::new("note", Type::Varchar(40)),
            ],
            primary_key: vec!["id"],
            indexes: vec![Index { name: "narrow_grp", columns: vec!["grp"], unique: false }],
        };
        let kind =
            |place: usize| if place.is_multiple_of(2) { Type::Int } else { Type::Varchar(40) };
        let cells = NAMES.iter().enumerate().map(|(place, name)| Column::new(name, kind(place)));
        let wide = Table {
            name: "wide",
            columns: std::iter::once(Column::new("id", Type::Int)).chain(cells).collect(),
            primary_key: vec!["id"],
            indexes: Vec::new(),
        };
        vec![narrow, wide]
    }

    fn rows(&self, table: usize) -> Box<dyn Iterator<Item = Vec<Value<'static>>> + Send + '_> {
        let mut draw = Random::new(2, table as u64);
        if table == 0 {
            return Box::new((1..=self.rows).map(move |id| {
                let amount = draw.between(1, self.rows / GROUP);
                let note = format!("note of the row {id:>12}");
                vec![id.into(), ((id - 1) / GROUP).into(), amount.into(), note.into()]
            }));
        }
        Box::new((1..=self.rows / GROUP).map(move |id| {
            let cell = |place: usize| -> Value<'static> {
                if place.is_multiple_of(2) {
                    id.into()
                } else {
                    format!("text {place} of row {id:>9}").into()
                }
            };
            std::iter::once(id.into()).chain((0..WIDTH).map(cell)).collect()
        }))
    }

    fn client(&self, _: usize, _: usize, _: u64) -> Box<dyn Client> {
        Box::new(Idle)
    }

    fn check<'d>(&self, _: Session<'d>, _: Depth) -> Running<'d, Vec<Condition>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}

struct Idle;

impl Client for Idle {
    fn next(&mut self) -> Arc<dyn Transaction> {
        Arc::new(Nothing { worker: Arc::default() })
    }

    fn think_time(&mut self) -> Duration {
        Duration::ZERO
    }
}

/// A transaction that notes what its worker has counted so far.
#[derive(Debug)]
struct Nothing {
    worker: Arc<Mutex<Option<Counts>>>,
}

impl Transaction for Nothing {
    fn kind(&self) -> usize {
        0
    }

    fn run(self: Arc<Self>, _: Session<'_>) -> Running<'_> {
        if let Ok(mut worker) = self.worker.lock() {
            *worker = Some(counts());
        }
        Box::pin(async { Ok(Ending::Commit) })
    }
}
