//! Reasons as log lines.

use super::*;
use crate::Mpl;
use crate::controllers::{
    AimdReason, EnvoyReason, FailsafeReason, FeedbackGrade, QueueReading, VegasReason,
};

#[track_caller]
fn assert_lines<const N: usize>(table: [(Reason, &str); N]) {
    for (reason, line) in table {
        assert_eq!(reason.to_string(), line);
    }
}

fn change(throughput: f64, limit: f64) -> Change {
    Change { throughput, response_time: None, limit }
}

#[test]
fn those_of_the_study_and_of_all_controllers() {
    let slower = Change { response_time: Some(0.2), ..change(0.1, 0.5) };
    assert_lines([
        (Reason::Fixed, "fixed"),
        (Reason::Open, "open: only observing"),
        (Reason::Concurrency { seen: 3 }, "concurrency: only 3 running or waiting"),
        (Reason::NothingCompleted, "hold: nothing completed"),
        (Reason::First, "probe: nothing to compare with yet"),
        (Reason::Climb(change(0.12, 0.333)), "climb: throughput rose 12 % for 33 % more"),
        (Reason::Descend(change(0.05, -0.5)), "descend: throughput rose 5 % for 50 % less"),
        (Reason::Back(change(-0.1, 0.5)), "back: throughput fell 10 % for 50 % more"),
        (Reason::Back(slower), "back: throughput rose 10 %, response time rose 20 % for 50 % more"),
        (Reason::Rest { left: 7 }, "rest: 7 more before the next probe"),
        (Reason::Moved { throughput: -0.3 }, "probe: throughput fell 30 % since the rest began"),
        (Reason::Apex { at: 25.04 }, "apex: parabola peaks at 25.0"),
        (Reason::Capped { at: 99.96 }, "apex: parabola peaks at 100.0, one step towards it"),
        (Reason::Wiggle(NoApex::SameLimit), "wiggle: two observations at one limit"),
    ]);
}

#[test]
fn those_of_the_feedback_controller() {
    let best = FeedbackGrade::Best { share: 0.8, limit: Mpl::at_least_one(12) };
    let slower = FeedbackGrade::ResponseTime { increase: 0.12 };
    assert_lines(
        [
            (FeedbackReason::Observe { intervals: 1 }, "observe: 1 interval so far"),
            (FeedbackReason::Observe { intervals: 2 }, "observe: 2 intervals so far"),
            (FeedbackReason::Settle, "settle: the limit was not in force for the whole interval"),
            (
                FeedbackReason::LightLoad { seen: 3.0, usual: 40.04 },
                "light load: concurrency 3.0, usually 40.0",
            ),
            (FeedbackReason::Back(best), "back: 80 % of the throughput at 12"),
            (FeedbackReason::Up(slower), "up: response time +12 % against no limit"),
            (FeedbackReason::Up(FeedbackGrade::Queue { waiting: 2.25 }), "up: 2.2 still wait"),
            (
                FeedbackReason::Anew { throughput: -0.3, response_time: 0.429 },
                "anew: throughput -30 %, response time +43 %",
            ),
        ]
        .map(|(reason, line)| (Reason::Feedback(reason), line)),
    );
}

#[test]
fn those_of_heiss_and_wagner() {
    assert_lines(
        [
            (HeissWagnerReason::Onward { throughput: 0.12 }, "onward: throughput +12 %"),
            (HeissWagnerReason::Turn { throughput: -0.3 }, "turn: throughput -30 %"),
            (HeissWagnerReason::Apex { at: 25.04 }, "apex: faded parabola peaks at 25.0"),
            (HeissWagnerReason::Uphill { slope: -0.5 }, "uphill: no apex, -0.50 % for 1 % more"),
            (HeissWagnerReason::Excite, "excite: at the top, a random step to keep it known"),
        ]
        .map(|(reason, line)| (Reason::HeissWagner(reason), line)),
    );
}

#[test]
fn those_of_the_limiters_by_latency() {
    let reading = |queue| QueueReading { queue, step: 1 };
    let gradient = EnvoyReason::Gradient { gradient: 0.754, median_s: 0.002, min_rtt_s: 0.001_2 };
    let rises = FailsafeReason::LatencyRises { latency: 0.9, correlation: 0.2, variation: 0.4 };
    assert_lines(
        [
            (LatencyReason::FewSamples { samples: 9 }, "hold: only 9 transactions ended"),
            (LatencyReason::NoLatency, "hold: no latency known"),
            (LatencyReason::Unused { inflight: 3 }, "hold: 3 inside, less than half the limit"),
            (
                LatencyReason::Aimd(AimdReason::BackOff { rtt_s: 5.5 }),
                "aimd: 5500.0 ms is too slow, back off",
            ),
            (
                LatencyReason::Vegas(VegasReason::Jump(reading(0.0))),
                "vegas: queue 0 below alpha 3, next to nothing, up by 6",
            ),
            (
                LatencyReason::Vegas(VegasReason::Hold(reading(4.0))),
                "vegas: queue 4 from alpha 3 to beta 6, hold",
            ),
            (
                LatencyReason::Gradient2 { gradient: 0.9, short_s: 0.03, long_s: 0.018 },
                "gradient2: gradient 0.90, 30.0 ms against 18.0 ms before",
            ),
            (
                LatencyReason::Envoy(gradient),
                "envoy: gradient 0.75, 2.0 ms against 1.2 ms without load",
            ),
            (
                LatencyReason::Failsafe(FailsafeReason::Down(reading(7.0))),
                "failsafe: queue 7 above beta 6, down by 1",
            ),
            (
                LatencyReason::Failsafe(rises),
                "failsafe: latency rises with inflight (0.90), throughput less (0.20, varies by \
                 0.40), down",
            ),
        ]
        .map(|(reason, line)| (Reason::Latency(reason), line)),
    );
}

#[test]
fn those_of_the_load_controls_by_locks() {
    let comfortable = LocksReason::Comfortable { running: 0.5, blocked: 0.25 };
    assert_lines(
        [
            (LocksReason::NoStatistics, "hold: the database does not tell what locks it holds"),
            (LocksReason::NobodyInside, "hold: no transaction inside"),
            (
                LocksReason::Underloaded { running: 0.75 },
                "half-and-half: 75 % mature and running, up",
            ),
            (
                LocksReason::Overloaded { blocked: 0.6 },
                "half-and-half: 60 % mature and blocked, down",
            ),
            (comfortable, "half-and-half: 50 % mature and running, 25 % mature and blocked, hold"),
            (LocksReason::BelowCritical { ratio: 1.125 }, "conflict ratio: 1.12, up"),
            (LocksReason::AboveCritical { ratio: 1.75 }, "conflict ratio: 1.75, down"),
            (LocksReason::AboveCritical { ratio: f64::INFINITY }, "conflict ratio: inf, down"),
        ]
        .map(|(reason, line)| (Reason::Locks(reason), line)),
    );
}

#[test]
fn those_of_the_scalability_law() {
    let (low, high) = (Mpl::at_least_one(3), Mpl::at_least_one(64));
    assert_lines(
        [
            (ScalabilityReason::Light { waiting: 0.05 }, "hold: somebody waited 5 % of the time"),
            (
                ScalabilityReason::Relieve { waiting: 0.3 },
                "relieve: somebody waited 30 % of the time",
            ),
            (ScalabilityReason::Drain { running: 80.4 }, "hold: 80 still inside"),
            (
                ScalabilityReason::Doubt { deviations: -4.26 },
                "doubt: throughput -4.3 deviations from what is believed, once more",
            ),
            (ScalabilityReason::Measure, "hold: too little completed yet"),
            (
                ScalabilityReason::Changed { deviations: 5.0 },
                "changed: throughput +5.0 deviations from what was believed",
            ),
            (ScalabilityReason::Outward { low, high }, "outward: the top may be outside 3 to 64"),
            (
                ScalabilityReason::Look { share: 0.97, deviation: 0.1 },
                "look: 97 % of the target's throughput, give or take 10 %",
            ),
            (ScalabilityReason::Patrol, "patrol: is the target still best?"),
            (
                ScalabilityReason::Target { tps: 899.4 },
                "target: 899 a second believed, the lowest near the best",
            ),
        ]
        .map(|(reason, line)| (Reason::Scalability(reason), line)),
    );
}
