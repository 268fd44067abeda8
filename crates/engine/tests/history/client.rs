//! A client: runs transactions by a plan, and writes down what comes of each operation.

use std::ops::Bound;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_engine::{
    Direction, Durability, Isolation, Savepoint, Store, Transaction, TreeHandle, TxnError,
    TxnOptions,
};
use tidegate_runtime::thread;

use super::Random;
use super::history::{Action, Key, Moment, Op, Txn, WriteId};
use super::turns::Seat;

/// Something to be read: keys from `low` to `high`, both included; 0 and 255 stand for no bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) low: Key,
    pub(crate) high: Key,
    pub(crate) way: Direction,
    /// The bounds are given as keys outside of the span.
    pub(crate) is_open: bool,
    /// Entries to be read at most.
    pub(crate) most: usize,
}

/// One operation of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Get(Key),
    Insert(Key),
    Update(Key),
    Put(Key),
    Remove(Key),
    Scan(Span),
    /// A scan with a turn before each entry.
    Walk(Span),
    /// A scan, and the removal of the first key found.
    Pop(Span),
    /// A savepoint.
    Mark,
    /// Back to the last savepoint, if there is one.
    Undo,
}

/// A transaction to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) steps: Vec<Step>,
    pub(crate) is_committed: bool,
}

/// What is done wrong, to see whether it is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    Nothing,
    /// Reads are done by another transaction, which locks nothing.
    ReadsApart,
    /// Each write is done by another transaction, which commits at once.
    WritesApart,
}

/// What all clients of a run share.
pub(crate) struct Stage {
    pub(crate) store: Store,
    /// For each key that is there the number of the write that put it there.
    pub(crate) tree: TreeHandle,
    /// For each key the numbers of all writes, in order, whether it is there or not.
    pub(crate) trails: TreeHandle,
    pub(crate) isolation: Isolation,
    pub(crate) planted: Planted,
    /// Bytes by which values are longer than they need be.
    pub(crate) padding: usize,
    pub(crate) clock: AtomicU64,
    pub(crate) writes: AtomicU32,
}

impl Stage {
    fn tick(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    pub(crate) fn begin(&self, isolation: Isolation, durability: Durability) -> Transaction {
        self.store.begin(TxnOptions::default().isolation(isolation).durability(durability))
    }
}

pub(crate) fn key_bytes(key: Key) -> Vec<u8> {
    format!("a key of the test {key:03}").into_bytes()
}

fn number_of(key: &[u8]) -> Key {
    std::str::from_utf8(&key[key.len() - 3..]).unwrap().parse().unwrap()
}

fn write_of(value: &[u8]) -> WriteId {
    WriteId(u32::from_le_bytes(value[..4].try_into().unwrap()))
}

/// The numbers in a value of the tree of trails.
pub(crate) fn trail_of(value: &[u8]) -> Vec<WriteId> {
    value.chunks_exact(4).map(write_of).collect()
}

/// What a cursor finds, up to so many.
pub(crate) fn read_span(
    transaction: &mut Transaction,
    tree: &TreeHandle,
    span: Span,
    mut before_each: impl FnMut(),
) -> Result<Vec<(Key, WriteId)>, TxnError> {
    let widened = [span.low.saturating_sub(1), span.high.saturating_add(1)].map(key_bytes);
    let exact = [span.low, span.high].map(key_bytes);
    let bound = |side: usize, is_none: bool| match (is_none, span.is_open) {
        (true, _) => Bound::Unbounded,
        (false, true) => Bound::Excluded(&widened[side][..]),
        (false, false) => Bound::Included(&exact[side][..]),
    };
    let bounds = (bound(0, span.low == 0), bound(1, span.high == Key::MAX));
    let mut cursor = transaction.cursor(tree, bounds, span.way)?;
    let mut found = Vec::new();
    while found.len() < span.most {
        before_each();
        let Some((key, value)) = cursor.next(transaction)? else { break };
        found.push((number_of(key), write_of(value)));
    }
    Ok(found)
}

/// One client, with a thread of its own.
pub(crate) struct Client<'s> {
    stage: &'s Stage,
    number: usize,
    seat: Option<Seat<'s>>,
    random: Random,
    txns: Vec<Txn>,
}

/// A transaction under way.
struct Run {
    transaction: Transaction,
    /// Where reads are done, if not there.
    reader: Option<Transaction>,
    durability: Durability,
    record: Txn,
    mark: Option<Savepoint>,
}

impl<'s> Client<'s> {
    /// A client who waits for turns if there is a seat for it.
    pub(crate) fn new(stage: &'s Stage, number: usize, seat: Option<Seat<'s>>) -> Client<'s> {
        Client { stage, number, seat, random: Random::new(number as u64), txns: Vec::new() }
    }

    /// Runs transactions one after the other, each until it is done without conflict or was tried
    /// so often. What was done, or what went wrong.
    pub(crate) fn run(mut self, plans: &[Plan], attempts: usize) -> Result<Vec<Txn>, TxnError> {
        for plan in plans {
            for _ in 0..attempts {
                match self.attempt(plan) {
                    Ok(()) => break,
                    Err(TxnError::Conflict(tidegate_engine::lock::LockError::Deadlock)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(self.txns)
    }

    fn attempt(&mut self, plan: &Plan) -> Result<(), TxnError> {
        self.pause();
        let mut run = self.begin();
        let done = self.perform(&mut run, plan);
        let Run { transaction, reader, mut record, .. } = run;
        let ended = match done {
            Ok(()) if plan.is_committed => transaction.commit(),
            Ok(()) => transaction.roll_back(),
            Err(error) => transaction.roll_back().and(Err(error)),
        };
        drop(reader);
        record.is_committed = plan.is_committed && ended.is_ok();
        record.ended = self.stage.tick();
        self.txns.push(record);
        ended
    }

    fn perform(&mut self, run: &mut Run, plan: &Plan) -> Result<(), TxnError> {
        for (number, &step) in plan.steps.iter().enumerate() {
            if number > 0 {
                self.pause();
            }
            self.step(run, step)?;
        }
        self.pause();
        Ok(())
    }

    fn begin(&mut self) -> Run {
        let stage = self.stage;
        let is_lazy = self.random.below(4) > 0;
        let durability = if is_lazy { Durability::Lazy } else { Durability::Synced };
        let reads_apart = stage.planted == Planted::ReadsApart;
        let (ops, is_committed, began) = (Vec::new(), false, stage.tick());
        Run {
            transaction: stage.begin(stage.isolation, durability),
            reader: reads_apart.then(|| stage.begin(Isolation::ReadUncommitted, durability)),
            durability,
            record: Txn { client: self.number, ops, is_committed, began, ended: began },
            mark: None,
        }
    }

    /// Waits for a turn, or gives others a chance.
    fn pause(&mut self) {
        match &self.seat {
            Some(seat) => seat.take_turn(),
            None if self.random.below(3) == 0 => thread::yield_now(),
            None => {}
        }
    }

    fn step(&mut self, run: &mut Run, step: Step) -> Result<(), TxnError> {
        let stage = self.stage;
        let begin = stage.tick();
        let action = match step {
            Step::Get(key) => {
                let reader = run.reader.as_mut().unwrap_or(&mut run.transaction);
                let value = reader.get(&stage.tree, &key_bytes(key))?;
                Some(Action::Get { key, seen: value.as_deref().map(write_of) })
            }
            Step::Scan(span) | Step::Pop(span) => Some(self.scan(run, span, false)?),
            Step::Walk(span) => Some(self.scan(run, span, true)?),
            Step::Insert(key) | Step::Update(key) | Step::Put(key) | Step::Remove(key) => {
                self.write(run, step, key)?
            }
            Step::Mark => {
                run.mark = Some(run.transaction.savepoint());
                Some(Action::Mark)
            }
            Step::Undo => match run.mark {
                Some(mark) => {
                    run.transaction.roll_back_to(mark)?;
                    Some(Action::Undo)
                }
                None => None,
            },
        };
        let end = stage.tick();
        let popped = match (&step, &action) {
            (Step::Pop(_), Some(Action::Scan { seen, .. })) => seen.first().map(|&(key, _)| key),
            _ => None,
        };
        run.record.ops.extend(action.map(|action| Op { begin, end, action }));
        popped.map_or(Ok(()), |key| self.step(run, Step::Remove(key)))
    }

    /// Reads a span. Once enough is found, the span that was read ends there.
    fn scan(&mut self, run: &mut Run, span: Span, is_slow: bool) -> Result<Action, TxnError> {
        let stage = self.stage;
        let reader = run.reader.as_mut().unwrap_or(&mut run.transaction);
        let mut is_first = true;
        let mut found = read_span(reader, &stage.tree, span, || {
            if is_slow && !std::mem::take(&mut is_first) {
                self.pause();
            }
        })?;
        let (mut low, mut high) = (span.low, span.high);
        if let Some(&(last, _)) = found.last().filter(|_| found.len() >= span.most) {
            match span.way {
                Direction::Up => high = last,
                Direction::Down => low = last,
            }
        }
        if span.way == Direction::Down {
            found.reverse();
        }
        Ok(Action::Scan { low, high, seen: found })
    }

    /// Writes a key and then, with the lock on it held, its trail.
    fn write(&self, run: &mut Run, step: Step, key: Key) -> Result<Option<Action>, TxnError> {
        let stage = self.stage;
        let mut apart = (stage.planted == Planted::WritesApart)
            .then(|| stage.begin(Isolation::ReadUncommitted, run.durability));
        let writer = apart.as_mut().unwrap_or(&mut run.transaction);
        let id = WriteId(stage.writes.fetch_add(1, Ordering::Relaxed));
        let bytes = key_bytes(key);
        let mut value = id.0.to_le_bytes().to_vec();
        value.resize(4 + stage.padding, 0);
        let is_there = !matches!(step, Step::Remove(_));
        let is_done = match step {
            Step::Insert(_) => match writer.insert(&stage.tree, &bytes, &value) {
                Err(TxnError::KeyExists) => return Ok(None),
                inserted => inserted.map(|()| true)?,
            },
            Step::Update(_) => writer.update(&stage.tree, &bytes, &value)?,
            Step::Remove(_) => writer.remove(&stage.tree, &bytes)?,
            _ => writer.put(&stage.tree, &bytes, &value).map(|()| true)?,
        };
        if !is_done {
            return Ok(Some(Action::Get { key, seen: None }));
        }
        let mut trail = writer.get(&stage.trails, &bytes)?.unwrap_or_default();
        trail.extend(id.0.to_le_bytes());
        writer.put(&stage.trails, &bytes, &trail)?;
        apart.map_or(Ok(()), Transaction::commit)?;
        Ok(Some(Action::Write { key, id, is_there }))
    }
}
