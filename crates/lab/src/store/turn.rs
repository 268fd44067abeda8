//! Which run a worker takes: the one that keeps the levels of its host's runs balanced.
//!
//! # Mechanism
//! The queue hands out places, not runs: the first, the second, .. run that is taken. Which run has
//! a place is decided when a worker first asks for it, and stays so (table `turn`): a worker that
//! is given the place later, because the first one died, goes on with the same run.
//!
//! [`choose`] is minimisation, as clinical trials balance treatments over prognostic factors. Of
//! the runs that are left it takes one whose levels (subject, processors, keys) this host has had
//! less often than the others, summed over the factors; the first of those that are equal.
//!
//! # Example
//! Processors 1 and 2, with and without keys, two hosts that take turns. In the order of the plan
//! one host would take the two runs with keys and the other the two without, and nobody could tell
//! keys from hosts. Here the first takes (1, with), the second (1, without), the first (2, without)
//! and the second (2, with).
//!
//! # Limits
//! A balance is sought, and not always there: two runs that differ in one factor cannot be balanced
//! over two hosts, and a host that starts when one run is left takes it. What came of it is judged
//! by the analysis protocol ([`crate::tap`]).
//!
//! # Source
//! S. J. Pocock, R. Simon: Sequential treatment assignment with balancing for prognostic factors in
//! the controlled clinical trial. Biometrics 31 (1975).

use std::collections::{BTreeMap, BTreeSet};

use super::{RunRow, Store, StoreError, count};

impl Store {
    /// Returns the number of the run at a place; the first who asks gets one that keeps this host's
    /// runs balanced. `None` when nothing is left for the place.
    pub fn take_turn(&mut self, experiment: i64, place: u32) -> Result<Option<u32>, StoreError> {
        self.hold_turns(experiment)?;
        let taken = self.turn(experiment, place);
        let released = self.release_turns(experiment);
        let taken = taken?;
        released?;
        Ok(taken)
    }

    fn turn(&mut self, experiment: i64, place: u32) -> Result<Option<u32>, StoreError> {
        let turns = self.turns(experiment)?;
        if let Some((&run, _)) = turns.iter().find(|&(_, &at)| at == place) {
            return Ok(Some(run));
        }
        let to_do: BTreeSet<u32> = self.to_do(experiment)?.keys().map(|one| one.run).collect();
        let runs = self.runs(experiment)?;
        let free = |run: &&RunRow| to_do.contains(&run.number) && !turns.contains_key(&run.number);
        let free: Vec<&RunRow> = runs.iter().filter(free).collect();
        let made = self.made_by(experiment)?;
        let host = self.host().to_owned();
        let Some(chosen) = choose(&free, &runs, &made, &host) else { return Ok(None) };
        self.insert(
            "turn",
            &[
                ("experiment", experiment.into()),
                ("place", count(place)),
                ("run", chosen.id.into()),
                ("host", host.as_str().into()),
            ],
        )?;
        Ok(Some(chosen.number))
    }

    /// Returns the places of runs that were taken, by the runs' numbers.
    pub fn turns(&mut self, experiment: i64) -> Result<BTreeMap<u32, u32>, StoreError> {
        let turns = self.rows(
            "SELECT r.number, t.place FROM turn t, run r WHERE t.run = r.id AND t.experiment = ?",
            &[experiment.into()],
        )?;
        Ok(turns.into_iter().collect())
    }

    /// Returns who has a run, or a part of one.
    fn made_by(&mut self, experiment: i64) -> Result<BTreeSet<(u32, String)>, StoreError> {
        let made = self.rows(
            "SELECT r.number, t.host FROM turn t, run r WHERE t.run = r.id AND r.experiment = ? \
             UNION SELECT r.number, s.host FROM series s, batchset b, run r \
             WHERE s.batchset = b.id AND b.run = r.id AND r.experiment = ?",
            &[experiment.into(), experiment.into()],
        )?;
        Ok(made.into_iter().collect())
    }
}

/// Returns the run of `free` that a host takes, by who has which of `all`.
fn choose<'r>(
    free: &[&'r RunRow],
    all: &[RunRow],
    made: &BTreeSet<(u32, String)>,
    host: &str,
) -> Option<&'r RunRow> {
    let hosts: BTreeSet<&str> = made.iter().map(|(_, one)| one.as_str()).chain([host]).collect();
    let hosts: i64 = hosts.iter().map(|_| 1).sum();
    // How much more often than in the mean this host has had a level, times the hosts.
    let excess = |has_level: &dyn Fn(&RunRow) -> bool| {
        let of_level =
            all.iter().filter(|run| has_level(run)).map(|run| run.number).collect::<BTreeSet<_>>();
        let times = |is_wanted: &dyn Fn(&str) -> bool| -> i64 {
            let is_counted = |(run, by): &&(u32, String)| of_level.contains(run) && is_wanted(by);
            made.iter().filter(is_counted).map(|_| 1).sum()
        };
        hosts * times(&|by| by == host) - times(&|_| true)
    };
    free.iter().copied().min_by_key(|run| {
        let sum = excess(&|one| one.subject == run.subject)
            + excess(&|one| one.processors == run.processors)
            + excess(&|one| one.primary_key == run.primary_key);
        (sum, run.number)
    })
}

#[cfg(test)]
mod tests {
    use tidegate_control::SplitMix64;

    use super::*;

    fn design(subjects: &[&str], processors: &[u32]) -> Vec<RunRow> {
        let mut runs = Vec::new();
        for subject in subjects {
            for &processors in processors {
                for primary_key in [true, false] {
                    let number = u32::try_from(runs.len() + 1).expect("few runs");
                    let (id, subject) = (number.into(), (*subject).to_owned());
                    let settings = BTreeMap::new();
                    runs.push(RunRow { id, number, subject, processors, primary_key, settings });
                }
            }
        }
        runs
    }

    /// Lets hosts take all runs, in the order of `hosts`, one after the other; who took which.
    fn shared(runs: &[RunRow], mut host: impl FnMut() -> String) -> BTreeSet<(u32, String)> {
        let mut made = BTreeSet::new();
        for _ in runs {
            let is_free = |run: &&RunRow| !made.iter().any(|(taken, _)| *taken == run.number);
            let free: Vec<&RunRow> = runs.iter().filter(is_free).collect();
            let by = host();
            let chosen = choose(&free, runs, &made, &by).expect("a run is free");
            made.insert((chosen.number, by));
        }
        made
    }

    #[test]
    fn hosts_that_take_turns_have_each_level_equally_often() {
        let runs = design(&["postgres"], &[1, 2, 4, 8]);
        let mut turn = 0;
        let made = shared(&runs, || {
            turn += 1;
            ["alpha", "beta"][turn % 2].to_owned()
        });
        for host in ["alpha", "beta"] {
            let own: Vec<&RunRow> =
                runs.iter().filter(|run| made.contains(&(run.number, host.to_owned()))).collect();
            let with_key = own.iter().filter(|run| run.primary_key).count();
            let processors: BTreeSet<u32> = own.iter().map(|run| run.processors).collect();
            assert_eq!((own.len(), with_key, processors.len()), (4, 2, 4), "{host}");
        }
    }

    /// Whichever host is fast: of its runs, those with keys are half of them, give or take one and
    /// a half.
    #[test]
    fn hosts_of_any_speed_have_balanced_levels() {
        let runs = design(&["postgres", "mariadb", "firebird"], &[1, 2, 4, 8]);
        for seed in 0..200 {
            let mut generator = SplitMix64::new(seed);
            let hosts = 2 + generator.next_bits() % 3;
            let made = shared(&runs, || {
                // The first is about twice as fast.
                let drawn = generator.next_bits() % (hosts + 1);
                format!("host {}", drawn % hosts)
            });
            for host in (0..hosts).map(|number| format!("host {number}")) {
                let own: Vec<&RunRow> =
                    runs.iter().filter(|run| made.contains(&(run.number, host.clone()))).collect();
                let with_key = own.iter().filter(|run| run.primary_key).count();
                let half = own.len() as f64 / 2.0;
                let off = (with_key as f64 - half).abs();
                let runs = own.len();
                assert!(off <= 1.5, "seed {seed}, {hosts} hosts, {host}: {with_key} of {runs}");
            }
        }
    }
}
