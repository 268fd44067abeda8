//! Phases made ready to run: times as rates per second, shares added up, steps laid out.

use super::cpu::ProcessorPool;
use super::locks::LockMode;
use super::settings::{EventsPhase, TransactionClass};
use crate::IntervalRule;
use crate::SplitMix64;
use crate::controller::whole;

/// Who asks for transactions.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfferedLoad {
    Closed { clients: u32, think_s: f64 },
    Open { arrivals_tps: f64 },
}

/// When a control interval ends, as [`IntervalRule`] with seconds as numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct PreparedRule {
    pub(super) min_s: f64,
    pub(super) min_completions: u64,
    pub(super) max_s: f64,
}

/// The items of the database. The first ones are hot.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemPool {
    hot: u32,
    cold: u32,
    hot_requests: f64,
}

impl ItemPool {
    fn new(phase: &EventsPhase) -> ItemPool {
        let hot = whole((f64::from(phase.items) * phase.hot_items).round()).clamp(1, phase.items);
        let cold = phase.items - hot;
        let hot_requests = if cold == 0 { 1.0 } else { phase.hot_requests };
        ItemPool { hot, cold, hot_requests }
    }

    /// An item to lock.
    pub(super) fn draw(self, random: &mut SplitMix64) -> u32 {
        if random.next_chance(self.hot_requests) {
            random.next_below(self.hot)
        } else {
            self.hot + random.next_below(self.cold)
        }
    }
}

/// A phase, ready to run.
#[derive(Clone, Debug)]
pub(super) struct PreparedPhase {
    pub(super) intervals: u32,
    pub(super) load: OfferedLoad,
    pub(super) rule: PreparedRule,
    pub(super) processors: ProcessorPool,
    pub(super) disks: u32,
    /// Reads per second of one disk, and writes of the log.
    pub(super) disk_rate: f64,
    pub(super) log_rate: f64,
    pub(super) restart_rate: f64,
    /// A transaction gives up after more rollbacks than this.
    pub(super) restarts: u32,
    pub(super) items: ItemPool,
    pub(super) noise: f64,
    miss: f64,
    memory_kib: Option<u64>,
    /// (sum of the shares up to here, class), the last sum being 1.
    mix: Vec<(f64, u32)>,
}

impl PreparedPhase {
    /// `first_class` is the number of classes in the phases before.
    fn new(phase: &EventsPhase, first_class: u32) -> PreparedPhase {
        let load = match (phase.clients, phase.arrivals_tps) {
            (Some(clients), _) => OfferedLoad::Closed { clients, think_s: phase.think_s },
            (None, Some(arrivals_tps)) => OfferedLoad::Open { arrivals_tps },
            (None, None) => unreachable!("a phase that was checked has a load"),
        };
        let rule = PreparedRule {
            min_s: phase.shortest_interval_s(),
            min_completions: IntervalRule::default().min_completions,
            max_s: phase.longest_interval_s(),
        };
        let processors = ProcessorPool { count: phase.cpus, overhead: phase.cpu_overhead };
        PreparedPhase {
            intervals: phase.intervals,
            load,
            rule,
            processors,
            disks: phase.disks,
            disk_rate: 1e3 / phase.disk_ms,
            log_rate: 1e3 / phase.log_ms,
            restart_rate: 1e3 / phase.restart_ms,
            restarts: phase.restarts.unwrap_or(u32::MAX),
            items: ItemPool::new(phase),
            noise: phase.noise,
            miss: phase.miss,
            memory_kib: phase.memory_mb.map(kib),
            mix: mix(&phase.classes, first_class),
        }
    }

    /// The class of a new transaction.
    pub(super) fn draw_class(&self, random: &mut SplitMix64) -> u32 {
        let point = random.next_draw().value();
        // Rounding may leave the last sum below 1.
        let before_last = &self.mix[..self.mix.len() - 1];
        self.mix[before_last.partition_point(|&(sum, _)| sum <= point)].1
    }

    /// The probability that a read goes to disk while the transactions inside want so much memory.
    pub(super) fn miss(&self, wanted_kib: u64) -> f64 {
        let kept = match self.memory_kib {
            Some(memory) if memory < wanted_kib => memory as f64 / wanted_kib as f64,
            _ => 1.0,
        };
        1.0 - (1.0 - self.miss) * kept
    }
}

fn mix(classes: &[TransactionClass], first_class: u32) -> Vec<(f64, u32)> {
    let all: f64 = classes.iter().map(|class| class.share).sum();
    let mut sum = 0.0;
    let sums = classes.iter().map(|class| {
        sum += class.share / all;
        sum
    });
    sums.zip(first_class..).collect()
}

fn kib(mebibytes: f64) -> u64 {
    u64::from(whole((mebibytes * 1024.0).round()))
}

/// What a step asks for around its processor time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreparedStep {
    pub(super) locks: bool,
    pub(super) reads: bool,
}

/// A class of one phase, ready to run.
#[derive(Clone, Debug)]
pub(super) struct PreparedClass {
    /// Where it is observed.
    pub(super) observed: usize,
    pub(super) steps: Vec<PreparedStep>,
    pub(super) locks: u32,
    write_share: f64,
    /// Its group of [`super::cpu::Cpu`].
    pub(super) cpu_group: usize,
    pub(super) log_write: bool,
    pub(super) working_set_kib: u64,
}

impl PreparedClass {
    fn new(class: &TransactionClass, observed: usize, cpu_group: usize) -> PreparedClass {
        let step = |at| PreparedStep {
            locks: is_due(at, class.locks, class.steps),
            reads: is_due(at, class.reads, class.steps),
        };
        PreparedClass {
            observed,
            steps: (0..class.steps).map(step).collect(),
            locks: class.locks,
            write_share: class.write_share,
            cpu_group,
            log_write: class.log_write,
            working_set_kib: kib(class.working_set_mb),
        }
    }

    pub(super) fn draw_mode(&self, random: &mut SplitMix64) -> LockMode {
        if random.next_chance(self.write_share) { LockMode::Exclusive } else { LockMode::Shared }
    }
}

/// Whether step `at` of `steps` is one of `count` that are spread evenly: the first, unless there
/// is none.
fn is_due(at: u32, count: u32, steps: u32) -> bool {
    (at * count) % steps < count
}

/// All phases and their classes.
#[derive(Clone, Debug)]
pub(super) struct PreparedPhases {
    pub(super) phases: Vec<PreparedPhase>,
    /// The classes of all phases: transactions outlive the phase they began in.
    pub(super) classes: Vec<PreparedClass>,
    /// The number of different names of classes.
    pub(super) observed: usize,
    /// Steps per second of each group of [`super::cpu::Cpu`].
    pub(super) cpu_rates: Vec<f64>,
    pub(super) disks: u32,
    pub(super) items: u32,
    pub(super) locks: u32,
}

impl PreparedPhases {
    /// From phases that were checked.
    pub(super) fn new(phases: &[EventsPhase]) -> PreparedPhases {
        let mut names: Vec<&str> = Vec::new();
        let mut cpu_rates: Vec<f64> = Vec::new();
        let mut classes = Vec::new();
        let mut prepared = Vec::new();
        let mut first_class = 0;
        for phase in phases {
            prepared.push(PreparedPhase::new(phase, first_class));
            for class in &phase.classes {
                first_class += 1;
                let observed = find_or_push(&mut names, class.name.as_str());
                let cpu_rate = f64::from(class.steps) * 1e3 / class.cpu_ms;
                let cpu_group = find_or_push(&mut cpu_rates, cpu_rate);
                classes.push(PreparedClass::new(class, observed, cpu_group));
            }
        }
        let locks = classes.iter().map(|class| class.locks).max().unwrap_or(0);
        PreparedPhases {
            observed: names.len(),
            cpu_rates,
            disks: phases.iter().map(|phase| phase.disks).max().unwrap_or(0),
            items: if locks == 0 {
                0
            } else {
                phases.iter().map(|phase| phase.items).max().unwrap_or(0)
            },
            locks,
            phases: prepared,
            classes,
        }
    }
}

fn find_or_push<T: PartialEq>(list: &mut Vec<T>, wanted: T) -> usize {
    list.iter().position(|known| *known == wanted).unwrap_or_else(|| {
        list.push(wanted);
        list.len() - 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_spread_evenly_from_the_first_step() {
        let table = [
            (0, 4, "----"),
            (1, 4, "x---"),
            (2, 4, "x-x-"),
            (3, 8, "x--x--x-"),
            (3, 4, "x-xx"),
            (4, 4, "xxxx"),
        ];
        for (count, steps, expected) in table {
            let due = |at| if is_due(at, count, steps) { 'x' } else { '-' };
            let got: String = (0..steps).map(due).collect();
            assert_eq!(got.matches('x').count(), count as usize, "{expected}");
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn the_mix_follows_the_shares() {
        let class = |share| TransactionClass { share, ..TransactionClass::default() };
        let classes = [1.0, 2.0, 5.0].map(class).to_vec();
        let phase = EventsPhase { clients: Some(1), classes, ..EventsPhase::default() };
        let phase = PreparedPhase::new(&phase, 7);
        let mut random = SplitMix64::new(1);
        let mut counts = [0.0; 3];
        for _ in 0..8_000 {
            counts[phase.draw_class(&mut random) as usize - 7] += 1.0;
        }
        // Five standard deviations of binomial counts: 148, 194 and 217.
        for (count, (mean, allowed)) in
            counts.into_iter().zip([(1_000.0, 148.0), (2_000.0, 194.0), (5_000.0, 217.0_f64)])
        {
            let off: f64 = count - mean;
            assert!(off.abs() < allowed, "{count} is not {mean}");
        }
    }

    /// 600 MiB for 1,000: 0.6 of what would hit still does. With a miss share of 0.1, 1 − 0.9·0.6.
    #[test]
    fn misses_grow_with_the_memory_that_is_wanted() {
        let phase = EventsPhase {
            memory_mb: Some(600.0),
            miss: 0.1,
            clients: Some(1),
            ..EventsPhase::default()
        };
        let phase = PreparedPhase::new(&phase, 0);
        for (wanted_mb, miss) in [(0, 0.1), (600, 0.1), (1_000, 0.46), (6_000_000, 0.999_91)] {
            let got = phase.miss(wanted_mb * 1_024);
            assert!((got - miss).abs() < 1e-9, "{wanted_mb}: {got}");
        }
    }

    /// 1 of 10 items hot and 9 of 10 requests for it.
    #[test]
    fn hot_items_get_their_requests() {
        let phase =
            EventsPhase { items: 10, hot_items: 0.1, hot_requests: 0.9, ..EventsPhase::default() };
        let items = ItemPool::new(&phase);
        let mut random = SplitMix64::new(1);
        let mut counts = [0_u32; 10];
        for _ in 0..10_000 {
            counts[items.draw(&mut random) as usize] += 1;
        }
        // Five standard deviations: 150 around 9,000, and 53 around 111 for each of the others.
        assert!(counts[0].abs_diff(9_000) < 150, "{counts:?}");
        assert!(counts[1..].iter().all(|&count| count.abs_diff(111) < 53), "{counts:?}");
    }

    #[test]
    fn a_database_without_cold_items_is_uniform() {
        for (items, hot_items) in [(4, 1.0), (1, 0.0)] {
            let phase =
                EventsPhase { items, hot_items, hot_requests: 0.0, ..EventsPhase::default() };
            let items_drawn = ItemPool::new(&phase);
            let mut random = SplitMix64::new(1);
            assert!((0..1_000).all(|_| items_drawn.draw(&mut random) < items));
        }
    }
}
