//! Everything an experiment will do, written out.

use std::time::Duration;

use tidegate_workload::Random;

use super::scenarios::Recipe;
use super::treatment::Treatment;
use super::workload::WorkloadSpec;
use super::{Experiment, Order, Subject};

#[derive(Clone, Debug)]
pub struct Plan {
    /// The runs, in the order of their numbers.
    pub runs: Vec<RunPlan>,
    order: Order,
    seed: u64,
}

/// A subject in one configuration, through all batchsets.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Counted from 1.
    pub number: u32,
    pub subject: Subject,
    /// The processors given to it, or of its machine; `None` is all there are.
    pub processors: Option<u32>,
    /// Whether its tables have primary keys.
    pub primary_key: bool,
    pub batchsets: Vec<Batchset>,
}

#[derive(Clone, Debug)]
pub struct Batchset {
    /// Counted from 1.
    pub number: u32,
    pub workload: WorkloadSpec,
    pub treatment: Treatment,
    /// Its batches, MPLs rising.
    pub batches: Vec<Batch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    pub mpl: u32,
    pub repetitions: u32,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Execution {
    pub run: u32,
    pub batchset: u32,
    pub mpl: u32,
    /// Which of the batch's executions, counted from 1.
    pub repetition: u32,
}

impl Execution {
    /// Where its draws begin: the same for the same place in the plan.
    pub fn seed(self, experiment: u64) -> u64 {
        let place = [self.run, self.batchset, self.mpl, self.repetition];
        let mix = |seed: u64, part: u32| {
            let drawn = Random::new(seed, u64::from(part)).between(0, i32::MAX);
            (seed << 20) ^ (seed >> 44) ^ u64::from(drawn.cast_unsigned())
        };
        place.into_iter().fold(experiment, mix)
    }
}

impl Plan {
    /// The plan of an experiment: the same from the same file, preset and subjects.
    pub fn new(experiment: &Experiment) -> Self {
        let mut runs = Vec::new();
        for subject in &experiment.subjects {
            for (subject, processors) in experiment.configurations(subject) {
                for &(primary_key, ref recipes) in &experiment.scenario.runs {
                    let mut subject = subject.clone();
                    subject.settings.preempt_on_wait = recipes.iter().any(Recipe::has_locks);
                    runs.push(RunPlan {
                        number: number(runs.len()),
                        subject,
                        processors,
                        primary_key,
                        batchsets: batchsets(experiment, recipes),
                    });
                }
            }
        }
        Plan { runs, order: experiment.order, seed: experiment.seed }
    }

    /// The executions of a run, in the order in which they are made.
    pub fn executions(&self, run: &RunPlan) -> Vec<Execution> {
        let mut batchsets: Vec<&Batchset> = run.batchsets.iter().collect();
        self.order(&mut batchsets, run.number, 0);
        batchsets
            .into_iter()
            .flat_map(|batchset| {
                let mut executions = batchset.executions(run.number);
                self.order(&mut executions, run.number, batchset.number);
                executions
            })
            .collect()
    }

    pub fn count(&self) -> usize {
        let batchsets = self.runs.iter().flat_map(|run| &run.batchsets);
        batchsets.map(|batchset| batchset.executions(0).len()).sum()
    }

    /// Puts items into the order of the experiment (Fisher and Yates).
    fn order<T>(&self, items: &mut [T], run: u32, batchset: u32) {
        if self.order == Order::Ascending {
            return;
        }
        let mut draw = Random::new(self.seed, (u64::from(run) << 32) | u64::from(batchset));
        for last in (1..items.len()).rev() {
            items.swap(last, draw.index(last + 1));
        }
    }

    /// How long everything takes, roughly.
    pub fn estimate(&self, experiment: &Experiment) -> Duration {
        let runs = self.runs.iter().map(|run| {
            let batchsets = run.batchsets.iter().map(|batchset| {
                let executions = batchset.executions(run.number);
                let executions = executions.iter().map(|one| execution_s(experiment, one.mpl));
                batchset.load_s(batchset.loads()) + executions.sum::<f64>()
            });
            START_S + batchsets.sum::<f64>()
        });
        Duration::from_secs_f64(runs.sum())
    }
}

/// Seconds to start and stop a database, roughly.
pub(crate) const START_S: f64 = 4.0;

/// Seconds that an execution takes, with a guess for connecting and putting things in order.
pub(crate) fn execution_s(experiment: &Experiment, mpl: u32) -> f64 {
    let planned = experiment.warmup + experiment.ctl + experiment.pause;
    planned.as_secs_f64() + 0.3 + f64::from(mpl) / 300.0
}

fn batchsets(experiment: &Experiment, recipes: &[Recipe]) -> Vec<Batchset> {
    let batch = |&mpl: &u32| Batch { mpl, repetitions: experiment.repetitions };
    let batches: Vec<Batch> = experiment.mpls.iter().map(batch).collect();
    let batchset = |(place, recipe): (usize, &Recipe)| Batchset {
        number: number(place),
        workload: recipe.workload.clone(),
        treatment: recipe.treatment.clone(),
        batches: batches.clone(),
    };
    recipes.iter().enumerate().map(batchset).collect()
}

impl Batchset {
    pub fn describe(&self) -> String {
        let treatment = self.treatment.to_string();
        let separator = if treatment.is_empty() { "" } else { "; " };
        format!("{}{separator}{treatment}", self.workload.describe())
    }

    /// How often its tables are made when all of it is executed.
    fn loads(&self) -> usize {
        if self.treatment.needs_fresh_tables() { self.executions(0).len() } else { 1 }
    }

    /// Seconds that it takes to make its tables so many times, roughly.
    pub(crate) fn load_s(&self, times: usize) -> f64 {
        let workloads = self.treatment.workloads(&self.workload);
        let rows: u64 = workloads.iter().map(WorkloadSpec::rows).sum();
        times as f64 * (0.3 + rows as f64 / 150_000.0)
    }

    fn executions(&self, run: u32) -> Vec<Execution> {
        let batches = self.batches.iter();
        let execution = |mpl, repetition| Execution { run, batchset: self.number, mpl, repetition };
        batches
            .flat_map(|batch| (1..=batch.repetitions).map(|number| execution(batch.mpl, number)))
            .collect()
    }
}

fn number(place: usize) -> u32 {
    u32::try_from(place + 1).expect("a plan in memory has fewer parts")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::experiment::{Choice, parse};

    const STUDY: &str = r#"
name = "thrash"
scenario = "thrash"
subjects = ["simulated"]
processors = [1, 2]
mpl = { from = 100, to = 1000, step = 100 }
ctl = "120s"
repetitions = 5
"#;

    fn plan(text: &str) -> (Experiment, Plan) {
        let experiment = parse(Path::new("e.toml"), text, &Choice::default()).unwrap();
        let plan = Plan::new(&experiment);
        (experiment, plan)
    }

    #[test]
    fn the_published_design_is_counted_out() {
        // 50 runs, 1,400 batchset instances, 14,000 batch instances, 70,000 executions; and the
        // exploratory design with 40 runs and 3 executions. A run has a subject, processors, keys.
        for (processors, repetitions, runs, executions) in
            [("[1, 2, 4, 6, 8]", 5, 50, 70_000), ("[1, 2, 4, 8]", 3, 40, 33_600)]
        {
            let text = STUDY
                .replace("[1, 2]", processors)
                .replace("repetitions = 5", &format!("repetitions = {repetitions}"))
                .replace(
                    "[\"simulated\"]",
                    "[\"postgres\", \"mariadb\", \"sqlite\", \"firebird\", \"embedded\"]",
                );
            let (_, plan) = plan(&text);
            assert_eq!((plan.runs.len(), plan.count()), (runs, executions));
            assert!(plan.runs.iter().all(|run| run.batchsets.len() == 28));
            let all = plan.runs.iter().flat_map(|run| plan.executions(run));
            assert_eq!(all.collect::<BTreeSet<_>>().len(), executions);
        }
    }

    #[test]
    fn the_order_is_the_seeds_and_every_execution_has_draws_of_its_own() {
        let (experiment, first) = plan(STUDY);
        let (_, again) = plan(STUDY);
        let (_, other) = plan(&format!("seed = 2\n{STUDY}"));
        let (_, ascending) = plan(&format!("order = \"ascending\"\n{STUDY}"));
        let executions = |plan: &Plan| plan.executions(&plan.runs[0]);
        assert_eq!(executions(&first), executions(&again));
        assert_ne!(executions(&first), executions(&other));
        let mut sorted = executions(&first);
        sorted.sort_unstable();
        assert_eq!(sorted, executions(&ascending));
        let seeds = first.runs.iter().flat_map(|run| first.executions(run));
        let seeds: BTreeSet<u64> = seeds.map(|one| one.seed(experiment.seed)).collect();
        assert_eq!(seeds.len(), first.count());
        // A batchset's executions follow each other: its tables are made once.
        let batchsets = executions(&first);
        let changes = batchsets.windows(2).filter(|pair| pair[0].batchset != pair[1].batchset);
        assert_eq!(changes.count(), 27);
    }

    #[test]
    fn time_is_estimated_from_what_is_planned() {
        let (experiment, plan) = plan(STUDY);
        let hours = plan.estimate(&experiment).as_secs_f64() / 3600.0;
        // 4 runs of 1,400 executions of two minutes.
        assert!((187.0..210.0).contains(&hours), "{hours}");
    }
}
