//! Holds the posterior of thrashing points to curves whose truth is known, and prints
//! `docs/results/thrashing-posterior.md`:
//!
//! `cargo run -p tidegate-lab --example thrashing_posterior --release >
//! docs/results/thrashing-posterior.md`
//!
//! With `samples`, it prints batchsets whose points depend on a column instead, as CSV, for
//! `analysis/benchmarks/uncertain_points.py`.
//!
//! The curves took no part in the choice of the prior.

#![expect(clippy::print_stdout, reason = "printing tables is what this program is for")]

mod curves;
mod judged;
mod regression;

use std::ops::Range;

use curves::{Disturbance, Truth, base, mpls, samples, shaped, with_fall};
use judged::{Answer, Tally, judged};
use tidegate_control::SplitMix64;

/// Curves of each row of the tables.
const CURVES: u64 = 200;
const REPETITIONS: [u32; 3] = [1, 3, 7];
const FALLS: [f64; 4] = [0.05, 0.10, 0.20, 0.50];
/// Levels of MPL 100, 200, …, where nothing else is said.
const LEVELS: u32 = 10;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("samples") {
        regression::print();
        return;
    }
    println!("{HEAD}");
    let mut calibration = Tally::default();
    let of_flat = flat(&mut calibration);
    let of_falls = falls(&mut calibration);
    let of_disturbed = disturbed();
    by_shape(&mut calibration);
    println!("{CALIBRATION}");
    let of_calibration = calibration.print();
    println!("\n## Judgement\n\n| rule | met, or where not |\n| --- | --- |");
    for (rule, missed) in [
        ("1, flat curves", of_flat),
        ("2, real falls", of_falls),
        ("3, calibration", of_calibration),
        ("4, other noise", of_disturbed),
    ] {
        let all = if missed.is_empty() { "yes".to_owned() } else { missed.join("; ") };
        println!("| {rule} | {all} |");
    }
    println!("\n{LIMITS}");
}

/// Makes so many curves by their seeds, and judges each, on all processors.
fn all(seeds: Range<u64>, make: impl Fn(&mut SplitMix64) -> Truth + Sync) -> Vec<Answer> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let share = |thread: u64| {
        let mine = seeds.clone().filter(move |seed| seed % threads == thread);
        mine.map(|seed| (seed, judged(&make(&mut SplitMix64::new(seed))))).collect::<Vec<_>>()
    };
    let mut found: Vec<(u64, Answer)> = std::thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || share(thread))).collect();
        running.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
    });
    found.sort_by_key(|&(seed, _)| seed);
    found.into_iter().map(|(_, answer)| answer).collect()
}

/// Returns seeds that no other row has.
fn seeds(row: u64) -> Range<u64> {
    row * 1_000_000..row * 1_000_000 + CURVES
}

fn flat(calibration: &mut Tally) -> Vec<String> {
    println!("{FLAT}");
    let mut missed = Vec::new();
    for (row, (noise, count, repetitions)) in [
        (0.1, 5, 1),
        (0.1, 10, 1),
        (0.1, 20, 1),
        (0.2, 5, 1),
        (0.2, 10, 1),
        (0.2, 20, 1),
        (0.1, 10, 3),
        (0.1, 10, 7),
        (0.2, 10, 3),
        (0.2, 10, 7),
    ]
    .into_iter()
    .enumerate()
    {
        let answers = all(seeds(100 + row as u64), |random| {
            samples(
                &mpls(count),
                &vec![1.0; count as usize],
                noise,
                repetitions,
                Disturbance::None,
                random,
            )
        });
        calibration.add(&answers);
        let share = |is: fn(&Answer) -> bool| share(&answers, is);
        let half = share(|one| one.thrashing > 0.5);
        let sure = share(|one| one.thrashing > 0.9);
        if half > 0.10 || sure > 0.02 {
            missed.push(format!("{} noise, {count} levels, {repetitions}", percent(noise)));
        }
        println!(
            "| {} | {count} | {repetitions} | {} | {} | {} |",
            percent(noise),
            percent(share(|one| one.rule.is_some())),
            percent(half),
            percent(sure),
        );
    }
    missed
}

fn falls(calibration: &mut Tally) -> Vec<String> {
    println!("{FALLS_HEAD}");
    let mut missed = Vec::new();
    let mut row = 200;
    for noise in [0.05, 0.1] {
        for fall in FALLS {
            for repetitions in REPETITIONS {
                row += 1;
                let answers = all(seeds(row), |random| {
                    let curve = with_fall(base(LEVELS, random), fall, random);
                    let mpls = mpls(LEVELS);
                    samples(&mpls, &curve, noise, repetitions, Disturbance::None, random)
                });
                calibration.add(&answers);
                let thrash = share(&answers, |one| one.truth.is_some());
                println!(
                    "| {} | {} | {repetitions} | {} {}",
                    percent(noise),
                    percent(fall),
                    percent(thrash),
                    cells(&answers)
                );
                let held = share(&answers, |one| one.is_in_set) >= 0.85;
                let is_met = held
                    && if fall < 0.15 {
                        assert!(answers.iter().all(|one| one.truth.is_none()), "no thrashing");
                        share(&answers, |one| one.thrashing > 0.9) <= 0.05
                    } else {
                        fall < 0.4 || repetitions == 1 || share(&answers, |one| one.is_right) >= 0.9
                    };
                if !is_met {
                    let (noise, fall) = (percent(noise), percent(fall));
                    missed.push(format!("{noise} noise, fall of {fall}, {repetitions}"));
                }
            }
        }
    }
    missed
}

fn disturbed() -> Vec<String> {
    println!("{DISTURBED}");
    let mut missed = Vec::new();
    let mut row = 300;
    for disturbance in Disturbance::ALL {
        for fall in [0.0, 0.2, 0.5] {
            for repetitions in REPETITIONS {
                row += 1;
                let answers = all(seeds(row), |random| {
                    let curve = with_fall(base(LEVELS, random), fall, random);
                    samples(&mpls(LEVELS), &curve, 0.05, repetitions, disturbance, random)
                });
                if share(&answers, |one| one.is_in_set) < 0.80 {
                    missed.push(format!("{disturbance}, fall of {}, {repetitions}", percent(fall)));
                }
                println!("| {disturbance} | {} | {repetitions} {}", percent(fall), cells(&answers));
            }
        }
    }
    missed
}

fn by_shape(calibration: &mut Tally) {
    println!("{SHAPES}");
    let mut row = 400;
    for noise in [0.03, 0.1, 0.2] {
        for repetitions in REPETITIONS {
            row += 1;
            let answers = all(seeds(row), |random| {
                let mpls = mpls(LEVELS);
                let curve = shaped(&mpls, random);
                samples(&mpls, &curve, noise, repetitions, Disturbance::None, random)
            });
            calibration.add(&answers);
            let thrash = share(&answers, |one| one.truth.is_some());
            println!(
                "| {} | {repetitions} | {} {}",
                percent(noise),
                percent(thrash),
                cells(&answers)
            );
        }
    }
}

/// The columns that all tables of falls have.
fn cells(answers: &[Answer]) -> String {
    let share = |is: fn(&Answer) -> bool| percent(share(answers, is));
    let size = answers.iter().map(|one| one.set_size as f64).sum::<f64>() / answers.len() as f64;
    format!(
        "| {} | {} | {} | {} | {} | {size:.1} |",
        share(|one| one.rule == one.truth),
        share(|one| one.is_right),
        share(|one| one.thrashing > 0.5),
        share(|one| one.thrashing > 0.9),
        share(|one| one.is_in_set),
    )
}

fn share(answers: &[Answer], is: impl Fn(&Answer) -> bool) -> f64 {
    answers.iter().filter(|answer| is(answer)).count() as f64 / answers.len() as f64
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

const HEAD: &str = "\
# The posterior of a thrashing point

```text
cargo build --release -p tidegate-lab --example thrashing_posterior
target/release/examples/thrashing_posterior > docs/results/thrashing-posterior.md
target/release/examples/thrashing_posterior samples > points.csv
analysis/.venv/bin/python analysis/benchmarks/uncertain_points.py points.csv \\
    >> docs/results/thrashing-posterior.md
```

write this file. Curves are drawn from seeds, and the first two commands write the same on every
machine.

A thrashing point by Eq. (1) of the thrashing study takes mean throughputs as exact. Beside it,
`lab show`, `lab tap`, the store and the report give the posterior: how probable each level is as
the thrashing point of the *true* throughputs by the same rule, and how probable it is that there is
none. The model and its prior are in `crates/lab/src/tap/posterior/mod.rs`. Its constants come from
the rule, from the shares of batchsets that thrash in the study, and from what noise of executions
is usual. A first version, whose steps were independent of each other, was looked at on the random
plants of `docs/results/controllers-random.md`: of curves with several real falls and one execution
a level it found the right level in 37 % where the rule found it in 79 %. The Markov chain of steps
and a narrower prior of the noise came of that; the curves of this page are others. (In that run the
bases of real falls were random plants, too, which decline by up to 16 % from one level to the next
by themselves, so that falls of 5 and 10 % often were thrashing.)

**Curves.** A *base* rises as 1 − exp(−N/k), k from 20 to 800, at MPL 100 to 1,000, and declines
from a random level on by a random share of up to 5 % from one level to the next. From a level drawn
from the third on, it is lower by the fall. The truth is Eq. (1) on the curve without noise: *none*
with falls of 5 and 10 %, which are below the threshold (16.7 %), and also with 20 or 50 % where the
base still rises so steeply that the step is smaller, or that throughput comes back. Each row has
200 curves.

**Noise.** An execution's throughput is the curve's, times a log-normal factor of this standard
deviation between executions, and the mean of 60 intervals with 5 % each. Intervals are given to the
model as the laboratory gives them.

**Rules of judgement**, stated before the run, the first version's included:

1. On flat curves with up to 20 % noise, P(thrashing) is above 0.5 in at most 10 % of the cases of
   each row, and above 0.9 in at most 2 %.
2. With real falls, the truth is in the 90 % credible set in at least 85 % of the cases of each row;
   with falls of 5 and 10 % P(thrashing) is above 0.9 in at most 5 %; with falls of 50 % and 3 or 7
   repetitions the most probable outcome is the truth in at least 90 %.
3. Among the most probable outcomes of all curves but those of rule 4, of those with a probability
   of about p (a tenth wide, at least 100 answers), the share that is the truth differs from their
   mean probability by at most 0.10. The same for P(thrashing) and the share that thrashes.
4. With noise that the model does not have, the truth is in the 90 % credible set in at least 80 %
   of the cases of each row.
";

const FLAT: &str = "\
## Flat curves

| noise | levels | repetitions | Eq. (1) reports thrashing | P(thrashing) > 0.5 | > 0.9 |
| --- | --- | --- | --- | --- | --- |";

const FALLS_HEAD: &str = "
## Real falls

*Thrash*: the share of curves whose truth is a point. *Rule*: the share in which the point by Eq.
(1) on the means is the truth; *right*: in which the most probable outcome is; then how often
P(thrashing) is above 0.5 and 0.9. *Set*: the share in which the truth is in the 90 % credible set;
*size*: the mean number of outcomes in the set.

| noise | fall | repetitions | thrash | rule | right | > 0.5 | > 0.9 | set | size |
| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |";

const DISTURBED: &str = "
## Noise that the model does not have

Noise between executions of 5 %, and: *autocorrelated*, intervals with a correlation of 0.9 from one
to the next, and executions one after the other (all repetitions of a level, then the next level)
with a correlation of 0.8; *heteroscedastic*, noise between executions that grows from 2 % at the
lowest level to 20 % at the highest; *outliers*, one execution in 20 with 40 % of its throughput.

| noise | fall | repetitions | rule | right | > 0.5 | > 0.9 | set | size |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |";

const SHAPES: &str = "
## Curves that fall by their own shape

Exponential saturation, Ricker's hump, a logistic collapse, and two steps up or down at random
levels, each in a quarter of the curves, with random parameters. Many fall at several levels.

| noise | repetitions | thrash | rule | right | > 0.5 | > 0.9 | set | size |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |";

const CALIBRATION: &str = "
## Calibration

Of all curves above but those with noise that the model does not have. *Most probable outcome*: its
probability, and the share in which it is the truth. *P(thrashing)*: the share that thrashes.";

const LIMITS: &str = "\
## Limits

- With one execution a level, the noise is known from the roughness of the curve alone, and the
  answer is conditional on the priors of the noise and of the steps. `noise_measured` says so.
- A posterior is calibrated over curves like its prior. A row of curves that all have the same fall
  is not that: close to the threshold its answers lean to what is more common.
- Noise that neighbouring executions share is not in the model. The laboratory runs the executions
  of a batchset in random order for that reason; the rows above have them in a row.
- The probabilities are counts of 4,000 draws: those below 1 in 1,000 are not told apart.
";
