//! From intervals to measurements of the curve: at which level, how much, how good.
//!
//! * Transitions are washed out as by the paired comparison (`crate::settling`). An interval that
//!   is ten times as long as transactions take, and in which the population fits the limit, is
//!   taken whole: controllers that move the limit at each interval would leave nothing else.
//! * The level is the limit where it held the number inside, and else the number inside, if that
//!   was steady.

use crate::Observation;
use crate::settling::{SettlingWindow, Want, WindowSample};

use super::history::HistoryPoint;

/// How much a measurement wants to hold.
const WANT_S: f64 = 0.99;
const WANT_COMPLETIONS: f64 = 30.0;
const LONGEST_S: f64 = 5.0;

/// How much a measurement must hold that ends because the limit moves.
const LEAST_S: f64 = 0.15;
const LEAST_COMPLETIONS: f64 = 10.0;

/// Intervals as long as this may be taken whole, seconds; and so many times as long as transactions
/// take.
const WHOLE_S: f64 = 0.5;
const WHOLE_RESIDENCES: f64 = 10.0;

/// A move's traces fade over so many seconds; one farther than this leaves no more.
const SETTLES_S: f64 = 3.0;
const FAR: f64 = 2.0;

/// A population that has changed by so much, in ln n, is another visit.
const ANOTHER: f64 = 0.15;

/// A level is the limit where somebody waited for at least this share of the time.
const BINDING: f64 = 0.9;

/// A population is steady if its mean is at least this share of its peak.
const STEADY: f64 = 0.5;

/// Share of the distance from mean to peak that counts as an error in ln X.
const UNSTEADY: f64 = 0.25;

/// Makes measurements of intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct CurveMeter {
    window: SettlingWindow,
    limit: Option<u32>,
    /// The highest concurrency since the window began to count.
    peak: u32,
    residence_s: f64,
    at_s: f64,
    visit: u64,
    /// The distance of the move that began the visit, in ln n.
    moved: f64,
    /// Logarithm of the last level that was measured.
    last_x: Option<f64>,
}

impl CurveMeter {
    /// Takes an interval that ended at `at_s`: a measurement that its move of the limit ended, and
    /// one that it completed.
    pub(super) fn take(&mut self, at_s: f64, seen: &Observation) -> [Option<HistoryPoint>; 2] {
        let limit = seen.limit.get();
        let before = self.limit.replace(limit);
        let cut = before.filter(|&before| before != limit).and_then(|before| {
            let want = Want { seconds: LEAST_S, completions: LEAST_COMPLETIONS, longest_s: 3.0 };
            self.close(before, want)
        });
        if before.is_none_or(|before| before != limit) {
            self.begin_visit(libm::log(f64::from(limit)));
            self.window = if self.is_whole(seen) {
                SettlingWindow::settled()
            } else {
                SettlingWindow::after_move()
            };
            self.peak = 0;
        }
        let count = seen.in_database.count as f64;
        if count > 0.0 {
            let share = (count / f64::from(limit).max(4.0)).min(1.0);
            self.residence_s += share * (seen.in_database.mean_s - self.residence_s);
        }
        self.window.add(seen, self.residence_s, 0.0);
        self.peak = self.peak.max(seen.concurrency_peak);
        self.at_s = at_s;
        let longest_s = LONGEST_S.max(1.5 * self.residence_s);
        let want = Want { seconds: WANT_S, completions: WANT_COMPLETIONS, longest_s };
        [cut, self.close(limit, want)]
    }

    /// Whether an interval after a move counts as a whole.
    fn is_whole(&self, seen: &Observation) -> bool {
        let seconds = seen.interval.as_secs_f64();
        let limit = f64::from(seen.limit.get());
        let fits = seen.running_mean <= 1.1 * limit
            && (seen.running_mean >= 0.9 * limit || seen.waiting_share < 0.1);
        let residence_s = seen.in_database.mean_s.max(self.residence_s);
        seconds >= WHOLE_S && seconds >= WHOLE_RESIDENCES * residence_s && fits
    }

    fn begin_visit(&mut self, x: f64) {
        self.visit += 1;
        self.moved = self.last_x.map_or(0.0, |last| (x - last).abs().min(FAR));
    }

    /// Ends the window if it holds as much as is wanted.
    fn close(&mut self, limit: u32, want: Want) -> Option<HistoryPoint> {
        let sample = self.window.sample(limit, want, 0.0)?;
        let since_s = self.window.since_s();
        let peak = f64::from(std::mem::take(&mut self.peak));
        self.window = self.window.next();
        let (x, unsteady) = level(&sample, peak)?;
        if self.last_x.is_some_and(|last| (x - last).abs() > ANOTHER) && sample.waiting < BINDING {
            self.begin_visit(x);
        }
        self.last_x = Some(x);
        let middle_s = (since_s - sample.seconds / 2.0).max(0.0);
        Some(HistoryPoint {
            x,
            at_s: self.at_s - sample.seconds / 2.0,
            ln_x: sample.ln_x,
            variance: sample.variance + unsteady,
            seconds: sample.seconds,
            settling: self.moved * libm::exp(-middle_s / SETTLES_S),
            visit: self.visit,
        })
    }
}

/// Logarithm of the level of a sample, and the variance of ln X because it was not steady; nothing
/// if it was no level at all.
fn level(sample: &WindowSample, peak: f64) -> Option<(f64, f64)> {
    let limit = f64::from(sample.limit);
    let running = sample.running;
    if sample.waiting >= BINDING && (running / limit - 1.0).abs() < 0.05 {
        return Some((libm::log(limit), 0.0));
    }
    let is_steady = running >= 0.9 && running >= STEADY * peak;
    let unsteady = UNSTEADY * (peak / running - 1.0).max(0.0);
    is_steady.then(|| (libm::log(running.max(1.0)), unsteady * unsteady))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testing::observed;

    /// Ticks of 100 ms in which as many end as `observed` says.
    fn tick(limit: u32, concurrency: u32, completions: u64) -> Observation {
        Observation {
            interval: Duration::from_millis(100),
            ..observed(limit, concurrency, completions)
        }
    }

    fn run(meter: &mut CurveMeter, ticks: &[Observation]) -> Vec<HistoryPoint> {
        let mut points = Vec::new();
        for seen in ticks {
            let at_s = meter.at_s + seen.interval.as_secs_f64();
            points.extend(meter.take(at_s, seen).into_iter().flatten());
        }
        points
    }

    #[test]
    fn a_second_at_a_limit_is_a_measurement_there_without_its_transition() {
        let mut meter = CurveMeter::default();
        let mut ticks = vec![tick(8, 100, 500)];
        ticks.extend(vec![tick(8, 100, 50); 10]);
        let points = run(&mut meter, &ticks);
        let [point] = &points[..] else { panic!("{points:?}") };
        assert!((point.x - libm::log(8.0)).abs() < 1e-9);
        assert!((point.ln_x - libm::log(500.0)).abs() < 1e-9, "the first tick is not in it");
    }

    #[test]
    fn where_no_one_waits_the_number_inside_is_the_level() {
        let mut meter = CurveMeter::default();
        let few = Observation { waiting_share: 0.0, ..tick(64, 5, 50) };
        let points = run(&mut meter, &vec![few; 12]);
        assert!((points[0].x - libm::log(5.0)).abs() < 1e-9, "{points:?}");
    }

    #[test]
    fn a_population_that_comes_and_goes_is_no_level() {
        let mut meter = CurveMeter::default();
        let gusty = Observation {
            waiting_share: 0.0,
            running_mean: 1.5,
            concurrency_peak: 20,
            ..tick(64, 2, 50)
        };
        assert_eq!(run(&mut meter, &vec![gusty; 60]), []);
    }

    /// A controller that moves at each interval of a second is measured all the same.
    #[test]
    fn long_intervals_count_from_the_first() {
        let mut meter = CurveMeter::default();
        let seconds = [observed(8, 100, 500), observed(10, 100, 600), observed(12, 100, 700)];
        let points = run(&mut meter, &seconds);
        let levels: Vec<f64> = points.iter().map(|point| libm::exp(point.x).round()).collect();
        assert_eq!(levels, [8.0, 10.0, 12.0]);
        assert!(points[1].settling > 0.0 && points[0].settling == 0.0);
    }
}
