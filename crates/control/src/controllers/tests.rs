//! What controllers of several rooms have in common.

use super::latency::testing::window;
use crate::testing::{DRAW, bounds, decided};
use crate::{Algorithm, Mpl, Observation, Resources, Setting};

/// Those that compare one interval with another, and those that average intervals.
const COMPARING: [Algorithm; 11] = [
    Algorithm::HillClimbing,
    Algorithm::StudyHillClimbing,
    Algorithm::GlobalParabola,
    Algorithm::StudyGlobalParabola,
    Algorithm::LocalParabola,
    Algorithm::IncrementalSteps,
    Algorithm::FadedParabola,
    Algorithm::Aimd,
    Algorithm::Vegas,
    Algorithm::Gradient2,
    Algorithm::Failsafe,
];

/// The limit stays, and what follows is what follows without that interval.
#[test]
fn an_interval_without_completions_is_left_out() {
    let setting = Setting {
        bounds: bounds(1, 1_000),
        start: Mpl::at_least_one(20),
        resources: Resources { cpus: 2, disks: 1 },
    };
    let history = [(20, 0.010), (24, 0.011), (30, 0.020), (28, 0.012)];
    for algorithm in COMPARING {
        for empty_at in 0..history.len() {
            let mut controllers = [(); 2].map(|()| algorithm.controller(&setting));
            for (number, (limit, rtt_s)) in history.into_iter().enumerate() {
                let seen = window(limit, 10_000, rtt_s);
                if number == empty_at {
                    let empty = Observation { completions: 0, ..seen.clone() };
                    let said = decided(controllers[0].as_mut(), &empty);
                    assert_eq!(said, (limit, "nothing_completed"), "{algorithm}");
                }
                let [with, without] = controllers.each_mut();
                assert_eq!(with.decide(&seen, DRAW), without.decide(&seen, DRAW), "{algorithm}");
            }
        }
    }
}
