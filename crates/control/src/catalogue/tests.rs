//! Names and parameters of algorithms.

use super::*;
use crate::plant::{Curve, CurvePhase, CurvePlant, Simulation};
use crate::testing::bounds;
use crate::{Decision, Observation};

#[test]
fn every_algorithm_is_found_by_its_name() {
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        let name = algorithm.controller(&setting()).name();
        assert_eq!(name, algorithm.name().trim_start_matches("study-"));
    }
    assert_eq!("fixed:7".parse(), Ok(Algorithm::Fixed(Mpl::at_least_one(7))));
    assert!(Algorithm::Fixed(Mpl::ONE).parameters().is_empty());
}

fn setting() -> Setting {
    let resources = Resources { cpus: 2, disks: 1 };
    Setting { bounds: bounds(1, 1_000), start: Mpl::at_least_one(20), resources }
}

/// What an algorithm does in a minute on PostgreSQL's curve with 200 clients.
fn minute(algorithm: Algorithm) -> Vec<(Observation, Decision)> {
    let curve = Curve::new(Curve::POSTGRES_TPCB).expect("a curve");
    let mut plant = CurvePlant::new(&[CurvePhase::closed(curve, 200, 0.03)], 5);
    let mut simulation = Simulation::new(algorithm.controller(&setting()), 5);
    (0..60).map(|_| simulation.interval(&mut plant)).collect()
}

/// Two processors and a disk are three stations: 19·(3 − 1) for a loss of 5 %, 4·(3 − 1) for 20 %.
#[test]
fn only_the_feedback_controller_has_a_start_of_its_own() {
    let resources = Resources { cpus: 2, disks: 1 };
    let with_start = Algorithm::ALL.into_iter().filter_map(|algorithm| {
        algorithm.own_start(resources).map(|start| (algorithm, start.get()))
    });
    assert_eq!(with_start.collect::<Vec<_>>(), [(Algorithm::ExternalScheduling, 38)]);
    let tuned: Algorithm = "external-scheduling:loss=0.2".parse().unwrap();
    assert_eq!(tuned.own_start(resources).map(Mpl::get), Some(8));
}

#[test]
fn other_names_are_refused_with_the_names_there_are() {
    for text in ["", "Vegas", "hill climbing", "Vegas:samples=1", ":", "observed"] {
        let error = text.parse::<Algorithm>().expect_err(text);
        assert!(error.to_string().contains("paired-comparison, gaussian-process"), "{error}");
    }
    for text in ["fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:4294967296"] {
        let error = text.parse::<Algorithm>().expect_err(text);
        assert!(error.to_string().contains("use fixed:N with N at least 1"), "{error}");
    }
}

/// Each parameter of each algorithm with its default: what is written is what was read, nothing
/// is decided otherwise, and the default is among the values that are allowed.
#[test]
fn every_parameter_of_every_algorithm_goes_round() {
    for algorithm in Algorithm::ALL {
        let name = algorithm.name();
        let parameters = algorithm.parameters();
        assert!(!parameters.is_empty(), "{name}");
        let written = |Parameter { name, default, .. }: &Parameter| format!("{name}={default}");
        let all: Vec<String> = parameters.iter().map(written).collect();
        for one in all.iter().cloned().chain([all.join(",")]) {
            let text = format!("{name}:{one}");
            let tuned: Algorithm = text.parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(tuned.to_string(), text);
            assert_eq!((tuned.name(), tuned.base()), (name, algorithm));
            assert_ne!(tuned, algorithm, "what is written stays written");
        }
        let tuned: Algorithm = format!("{name}:{}", all.join(",")).parse().unwrap();
        assert_eq!(minute(tuned), minute(algorithm), "{name}");
    }
}

/// Stored experiments have these spellings.
#[test]
fn the_spellings_of_the_study_stay_as_they_were() {
    for (text, written) in [
        ("hill-climbing:c=0.05", "hill-climbing:c=0.05"),
        ("study-hill-climbing:c=0.4", "study-hill-climbing:c=0.4"),
        ("study-hill-climbing:c=0", "study-hill-climbing:c=0"),
        ("study-hill-climbing:delta=20,c=0.300", "study-hill-climbing:c=0.3,delta=20"),
        ("study-global-parabola:gamma=0.333", "study-global-parabola:gamma=0.333"),
        ("local-parabola:delta=5", "local-parabola:delta=5"),
        ("study-local-parabola:gamma=10,delta=1", "study-local-parabola:gamma=10,delta=1"),
    ] {
        let algorithm: Algorithm = text.parse().unwrap();
        assert_eq!(algorithm.to_string(), written);
        assert_eq!(written.parse(), Ok(algorithm));
    }
}

#[test]
fn parameters_take_the_place_of_the_algorithms_own() {
    let same = [
        ("study-hill-climbing:c=0.4,delta=10", "study-hill-climbing"),
        ("study-global-parabola:gamma=0.333,delta=5", "study-global-parabola"),
        (
            "study-hill-climbing:c=0.05,loss=0.08,delta=50%,guard=on,concurrency=peak,rest=15,\
          band=0.2",
            "hill-climbing",
        ),
    ];
    for (one, other) in same {
        let [one, other] = [one, other].map(|text| minute(text.parse().unwrap()));
        assert_eq!(one, other);
    }
    for (one, other) in [
        ("study-hill-climbing:delta=20", "study-hill-climbing"),
        ("external-scheduling:loss=0.3", "external-scheduling"),
        ("vegas:highest=10", "vegas"),
        ("gaussian-process:price=0.3", "gaussian-process"),
        ("paired-comparison:cold=3", "paired-comparison"),
    ] {
        let [one, other] = [one, other].map(|text| minute(text.parse().unwrap()));
        assert_ne!(one, other);
    }
}

#[test]
fn bad_parameters_are_refused_with_those_that_exist_and_their_ranges() {
    for (text, parts) in [
        (
            "external-scheduling:loss=1",
            ["loss=1 is not allowed: 0.001 to 0.9", "response-time-loss"],
        ),
        (
            "study-hill-climbing:gamma=0.3",
            ["no parameter `gamma`", "c (0 to 1; share), delta (1 to"],
        ),
        ("study-hill-climbing:", ["`` is not of the form name=value", "c (0 to 1; share)"]),
        ("study-hill-climbing:c=0.4,c=0.5", ["`c` is given twice", "c (0 to 1; share)"]),
        (
            "study-hill-climbing:delta=0",
            ["delta=0 is not allowed: 1 to", "1% to 1000% of the limit"],
        ),
        ("study-global-parabola:gamma=10.001", ["gamma=10.001 is not allowed", "0.001 to 10"]),
        ("vegas:lowest=20,highest=3", ["lowest is above highest", "lowest (1 to 1000000;"]),
        ("half-and-half:concurrency=none", ["peak or end", "tolerance"]),
    ] {
        let error = text.parse::<Algorithm>().expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn in_a_list_parameters_belong_to_the_name_before_them() {
    let listed = |text: &str| -> Vec<String> {
        let list = Algorithm::list(text).unwrap_or_else(|error| panic!("{error}"));
        list.iter().map(ToString::to_string).collect()
    };
    assert_eq!(listed("vegas, fixed:3"), ["vegas", "fixed:3"]);
    assert_eq!(
        listed("study-hill-climbing:c=0.3,delta=20,vegas:samples=5,aimd"),
        ["study-hill-climbing:c=0.3,delta=20", "vegas:samples=5", "aimd"]
    );
    for text in ["", "vegas,", "vegas,c=0.3", "c=0.3"] {
        let error = Algorithm::list(text).expect_err(text).to_string();
        assert!(error.contains("no algorithm is called"), "{error}");
    }
}

#[test]
fn observe_is_a_way_to_use_an_algorithm() {
    for (text, written) in [
        ("observe", "observe:gaussian-process"),
        ("observe:gaussian-process:price=0.1", "observe:gaussian-process:price=0.1"),
        ("observe:fixed:20", "observe:fixed:20"),
        ("vegas", "vegas"),
    ] {
        let choice: ControlChoice = text.parse().unwrap();
        assert_eq!(choice.to_string(), written);
        assert_eq!(written.parse(), Ok(choice));
        assert_eq!(choice.is_observing, text.starts_with("observe"));
    }
    let error = |text: &str| text.parse::<ControlChoice>().expect_err(text).to_string();
    assert!(error("observe:").contains("no algorithm is called ``"));
    assert!(error("observed").contains("no algorithm is called `observed`"));
    assert!(error("observe:observe").contains("without observe"));
    let text = "observe:gaussian-process:prize=1";
    assert!(error(text).contains("there is no parameter `prize`"), "{}", error(text));
    for algorithm in Algorithm::ALL {
        if algorithm == Algorithm::GaussianProcess {
            continue;
        }
        let error = error(&format!("observe:{algorithm}"));
        assert!(
            error.contains("would say nothing") && error.contains("observe:fixed:N"),
            "{error}"
        );
    }
    let obeyed = "observe".parse::<Algorithm>().expect_err("to be obeyed").to_string();
    assert!(obeyed.contains("tidegate proxy"), "{obeyed}");
}
