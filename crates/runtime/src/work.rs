//! What a thread or task has done, counted by operation.
//!
//! The same points of a program count on both machines. Under the operating system the counts of a
//! thread, beside its processor time, are what the costs are fitted to. On a machine in virtual
//! time, counts are a debt that the task pays with processor time before it next waits, at
//! [`settle`](crate::thread::settle), and at its end.

use std::cell::Cell;

use crate::fiber;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A kind of work that has a cost.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// All operations, in the order of [`Counts::0`] and [`Costs::0`].
            pub const ALL: [Operation; [$($text),*].len()] = [$(Operation::$name),*];

            /// Returns the name as files of costs have it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Operation::$name => $text,)* }
            }
        }
    };
}

operations! {
    /// A statement is executed.
    Statement = "statement",
    /// A statement reads an entry of a table or index, or writes one.
    Row = "row",
    /// A value of a row is decoded or encoded.
    Value = "value",
    /// A text among these values is copied.
    Text = "text",
    /// A row is taken into an answer.
    Answer = "answer",
    /// A row is taken into a group.
    Group = "group",
    /// Two rows are compared to sort an answer.
    Sort = "sort",
    /// A transaction begins and ends.
    Transaction = "transaction",
    /// A transaction is handed to a worker of the server, and its answer to the caller.
    Request = "request",
    /// A page is looked at in the buffer.
    PageVisit = "page_visit",
    /// A key is compared within a page.
    Comparison = "comparison",
    /// A page is read into the buffer: its copy and checksum.
    PageLoad = "page_load",
    /// A page is copied and its checksum made, for writing.
    PageWrite = "page_write",
    /// A page is divided.
    PageSplit = "page_split",
    /// A lock is requested.
    Lock = "lock",
    /// A record is appended to the log.
    LogRecord = "log_record",
    /// A byte is appended to the log.
    LogByte = "log_byte",
    /// A task that was asleep is woken. Threads of the operating system do not count it: the
    /// system does, as voluntary switches.
    WakeUp = "wake_up",
    /// For a task that is woken, a processor that was idle is told to run it. Counted beside the
    /// wake-up, on machines in virtual time alone.
    IdleWakeUp = "idle_wake_up",
    /// The operating system is called.
    SystemCall = "system_call",
    /// The record of a node of an XML document is read.
    NodeRead = "node_read",
    /// The record of a node of an XML document is made.
    NodeWrite = "node_write",
}

/// How many operations there are.
pub const OPERATIONS: usize = Operation::ALL.len();

thread_local! {
    static COUNTS: [Cell<u64>; OPERATIONS] = const { [const { Cell::new(0) }; OPERATIONS] };
}

/// Counts an operation `times` times.
#[inline]
pub fn count(operation: Operation, times: u64) {
    COUNTS.with(|counts| {
        let cell = &counts[operation as usize];
        cell.set(cell.get().wrapping_add(times));
    });
}

/// How often each operation was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts(pub [u64; OPERATIONS]);

impl Counts {
    /// Returns how often one was done.
    #[must_use]
    pub const fn of(&self, operation: Operation) -> u64 {
        self.0[operation as usize]
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

/// Returns what this thread of the operating system has counted so far; on a machine in virtual
/// time, what the task has counted since it last paid.
#[must_use]
pub fn counts() -> Counts {
    COUNTS.with(|counts| Counts(std::array::from_fn(|index| counts[index].get())))
}

/// Returns what was counted since the last call, on the thread of a machine in virtual time.
pub(crate) fn take() -> Counts {
    debug_assert!(fiber::is_active(), "threads of the operating system keep their counts");
    COUNTS.with(|counts| Counts(std::array::from_fn(|index| counts[index].take())))
}

/// Makes these the counts since the last payment, on the thread of a machine in virtual time.
pub(crate) fn put_back(counts: &Counts) {
    COUNTS.with(|cells| {
        for (cell, count) in cells.iter().zip(counts.0) {
            cell.set(count);
        }
    });
}

/// The processor time of one operation of each kind, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs(pub [f64; OPERATIONS]);

impl Costs {
    /// Returns the processor time of these counts, in whole nanoseconds.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a sum of products of what is not negative; beyond 584 years it stays there"
    )]
    pub fn of(&self, counts: &Counts) -> u64 {
        let products = self.0.iter().zip(counts.0).map(|(cost, count)| cost * count as f64);
        products.sum::<f64>().round() as u64
    }
}
