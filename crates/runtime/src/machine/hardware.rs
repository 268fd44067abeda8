//! What a machine in virtual time consists of: its processors, its disks, and what work costs.

use std::time::Duration;

use tidegate_random::SplitMix64;

use crate::disk::Transfer;
use crate::work::Costs;

/// The parts of a machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// How many processors, at least 1.
    pub processors: u32,
    /// How tasks share them.
    pub discipline: Discipline,
    /// Disks over which data files are striped, at least 1.
    pub data_disks: u32,
    /// Bytes of a stripe: what begins within one is on one disk. At least 1.
    pub stripe_bytes: u64,
    /// How long a data disk takes.
    pub data: Service,
    /// How long the disk of the log takes.
    pub log: Service,
    /// What counted work costs.
    pub costs: Costs,
    /// How long a processor that is idle takes until it runs a task that was woken.
    pub wake_latency: Duration,
}

impl Hardware {
    /// Returns a machine whose processors are shared equally, whose disks take no time, and on
    /// which counted work costs nothing.
    #[must_use]
    pub fn with_processors(processors: u32) -> Hardware {
        Hardware {
            processors,
            discipline: Discipline::Sharing,
            data_disks: 1,
            stripe_bytes: 1 << 16,
            data: Service::None,
            log: Service::None,
            costs: Costs::default(),
            wake_latency: Duration::ZERO,
        }
    }
}

/// How tasks that have work share the processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// Processor sharing: each task has the same share, at most one processor.
    Sharing,
    /// A task runs on one processor for at most so long while others wait, then goes behind them.
    Quantum(Duration),
}

/// Who has the processors first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Has what tasks of high priority leave.
    #[default]
    Normal,
    /// Has the processors before all tasks of normal priority, and takes them from these.
    High,
}

/// How long a disk takes for a transfer. A disk does one at a time, in the order of their arrival.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// It takes no time, for any number at once.
    None,
    /// The same time for each transfer, and time for its bytes.
    Constant {
        /// Time before the first byte.
        latency: Duration,
        /// Bytes a second; infinite if bytes take no time.
        bytes_per_s: f64,
    },
    /// A disk with an arm: a seek, uniform between its bounds, the wait for the sector, uniform
    /// within a revolution, and time for the bytes. A transfer that begins where the last one of
    /// this disk ended has neither seek nor wait.
    Rotating {
        /// The shortest seek.
        seek_min: Duration,
        /// The longest seek.
        seek_max: Duration,
        /// One turn of the disk.
        revolution: Duration,
        /// Bytes a second under the head.
        bytes_per_s: f64,
    },
}

impl Service {
    /// Returns the nanoseconds that a transfer takes.
    fn time(&self, bytes: u64, follows: bool, random: &mut SplitMix64) -> u64 {
        let (latency, bytes_per_s) = match *self {
            Service::None => return 0,
            Service::Constant { latency, bytes_per_s } => (latency.as_secs_f64(), bytes_per_s),
            Service::Rotating { bytes_per_s, .. } if follows => (0.0, bytes_per_s),
            Service::Rotating { seek_min, seek_max, revolution, bytes_per_s } => {
                let seek = random.next_between(seek_min.as_secs_f64(), seek_max.as_secs_f64());
                (seek + random.next_between(0.0, revolution.as_secs_f64()), bytes_per_s)
            }
        };
        nanoseconds(latency + bytes as f64 / bytes_per_s)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "service times are not negative; beyond 584 years they stay there"
)]
fn nanoseconds(seconds: f64) -> u64 {
    (seconds * 1e9).round() as u64
}

/// The disks of a running machine.
pub(super) struct Disks {
    data: Vec<Arm>,
    log: Arm,
    stripe_bytes: u64,
    random: SplitMix64,
}

/// One disk.
struct Arm {
    service: Service,
    /// When it will have done all that has come.
    free_at: u64,
    /// Where the last transfer ended.
    end: Option<u64>,
    busy: u64,
}

impl Disks {
    pub(super) fn new(hardware: &Hardware, seed: u64) -> Disks {
        assert!(hardware.data_disks >= 1, "a machine has a data disk");
        assert!(hardware.stripe_bytes >= 1, "a stripe has a byte");
        let arm = |service| Arm { service, free_at: 0, end: None, busy: 0 };
        Disks {
            data: (0..hardware.data_disks).map(|_| arm(hardware.data)).collect(),
            log: arm(hardware.log),
            stripe_bytes: hardware.stripe_bytes,
            random: SplitMix64::new(SplitMix64::mix(seed ^ 0x6469_736b)),
        }
    }

    /// Returns when a transfer that comes now will have ended.
    pub(super) fn start(&mut self, transfer: Transfer, now: u64) -> u64 {
        let count = self.data.len() as u64;
        let (arm, offset, bytes) = match transfer {
            Transfer::Data { offset, bytes } => {
                let stripe = offset / self.stripe_bytes;
                let disk = usize::try_from(stripe % count).expect("below the number of disks");
                // Where it is on its disk: that disk's stripes follow one another.
                let within = stripe / count * self.stripe_bytes + offset % self.stripe_bytes;
                (&mut self.data[disk], Some(within), bytes)
            }
            // The log is written from its beginning to its end.
            Transfer::Log { bytes } => (&mut self.log, None, bytes),
        };
        let follows = offset.is_some() && arm.end == offset;
        let time = arm.service.time(bytes, follows, &mut self.random);
        arm.end = offset.map(|offset| offset + bytes);
        arm.busy += time;
        arm.free_at = arm.free_at.max(now) + time;
        arm.free_at
    }

    /// Returns how long each data disk, and the log's, was asked to work.
    pub(super) fn busy(&self) -> (Vec<Duration>, Duration) {
        let time = |arm: &Arm| Duration::from_nanos(arm.busy);
        (self.data.iter().map(time).collect(), time(&self.log))
    }
}
