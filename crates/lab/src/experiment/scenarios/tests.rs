//! Each scenario's file: what batchsets it makes, and what it refuses.

use std::path::Path;

use super::Recipe;
use crate::experiment::treatment::{Admission, ArrivalSpec, Exchange, Split};
use crate::experiment::{Batchset, Choice, Plan, parse};

fn recipes(text: &str) -> Result<Vec<Recipe>, String> {
    let head = "name = \"x\"\nsubjects = [\"simulated\"]\nctl = \"1s\"";
    let text = format!("{head}\n{text}\n[workload]\nkind = \"tpcb\"\n");
    let experiment = parse(Path::new("e.toml"), &text, &Choice::default());
    experiment.map(|mut one| one.scenario.runs.swap_remove(0).1).map_err(|error| error.to_string())
}

fn described(text: &str) -> Vec<String> {
    recipes(text).unwrap().iter().map(|recipe| recipe.treatment.to_string()).collect()
}

#[test]
fn a_controller_is_a_batchset() {
    let text = "scenario = \"autotune\"\nmpl = [4]\nclients = 50\n[factors]\n\
                control = [\"vegas\", \"study-global-parabola:gamma=0.5\", \
                \"external-scheduling:delta=4,loss=0.20\"]";
    let expected =
        ["vegas", "study-global-parabola:gamma=0.5", "external-scheduling:loss=0.2,delta=4"];
    assert_eq!(described(text), expected.map(|control| format!("{control}, 50 clients")));
}

#[test]
fn a_switch_goes_both_ways() {
    let text = "scenario = \"switch\"\nmpl = [4]\nclients = 9\n[factors]\ncontrol = [\"vegas\"]\n\
                then = { kind = \"point-select\" }\nboth_ways = true";
    let both = recipes(text).unwrap();
    let first: Vec<String> = both.iter().map(|recipe| recipe.workload.describe()).collect();
    assert_eq!(first, ["tpcb, scale 1", "point-select, scale 1"]);
    let then = |recipe: &Recipe| match &recipe.treatment.exchange {
        Some(Exchange::Workload(then)) => then.describe(),
        other => panic!("{other:?}"),
    };
    assert_eq!((then(&both[0]), then(&both[1])), (first[1].clone(), first[0].clone()));
    let text = "scenario = \"switch\"\nmpl = [4]\nclients = 9\nbuffer = \"8MB\"\n[factors]\n\
                control = [\"vegas\"]\nthen_buffer = \"4MB\"\nboth_ways = true";
    assert_eq!(
        described(text),
        [
            "vegas, 9 clients, buffer 8MB, then buffer 4MB",
            "vegas, 9 clients, buffer 4MB, then buffer 8MB",
        ]
    );
}

#[test]
fn each_value_of_a_parameter_meets_each_of_the_other() {
    let text = "scenario = \"sensitivity\"\nmpl = [4]\nclients = 9\n[factors]\n\
                control = \"study-hill-climbing\"\nc = [0.1, 0.5]\ndelta = [10, 20]";
    let tuned = ["c=0.1,delta=10", "c=0.1,delta=20", "c=0.5,delta=10", "c=0.5,delta=20"];
    assert_eq!(
        described(text),
        tuned.map(|parameters| format!("study-hill-climbing:{parameters}, 9 clients"))
    );
}

#[test]
fn a_split_with_a_buffer_is_a_batchset_of_an_aging_store() {
    let text = "scenario = \"deteriorate\"\nmpl = [4]\n[factors]\ntransactions = 500\n\
                split = [\"half\", \"adaptive\"]\nbuffers = [\"1MB\", \"2MB\"]";
    let recipes = recipes(text).unwrap();
    let splits = recipes.iter().map(|recipe| recipe.treatment.aging.unwrap().split.unwrap());
    let expected = [Split::Half, Split::Half, Split::Adaptive, Split::Adaptive];
    assert_eq!(splits.collect::<Vec<_>>(), expected);
    let treatments = recipes.iter().map(|recipe| &recipe.treatment);
    assert!(treatments.clone().all(|one| one.needs_fresh_tables() && one.clients(4) == 4));
    let buffers = treatments.map(|one| one.buffer.unwrap().to_string());
    assert_eq!(buffers.collect::<Vec<_>>(), ["1MB", "2MB", "1MB", "2MB"]);
}

#[test]
fn priority_is_given_and_then_not() {
    let text = "scenario = \"priority\"\nmpl = [4, 8]\nclients = 20\n[factors]\nhigh = 25\n\
                arrivals = { poisson = 50.0 }";
    let recipes = recipes(text).unwrap();
    let given: Vec<bool> =
        recipes.iter().map(|recipe| recipe.treatment.priority.unwrap().is_given).collect();
    assert_eq!(given, [true, false]);
    for Recipe { treatment, .. } in &recipes {
        assert_eq!(treatment.admission, Admission::Limit { clients: 20 });
        assert_eq!(treatment.arrivals, ArrivalSpec::Poisson(50.0));
        assert_eq!(treatment.priority.map(|share| share.high_percent), Some(25.0));
    }
}

#[test]
fn each_place_of_a_priority_is_varied_with_each_other() {
    let text = "scenario = \"priority\"\nmpl = [4]\nclients = 20\n[factors]\ngate = [false]\n\
                locks = [false, true]\nprocessors = [false, true]";
    assert_eq!(
        described(text),
        [
            "20 clients, 10 % apart but not first",
            "20 clients, 10 % first on processors",
            "20 clients, 10 % first in lock queues",
            "20 clients, 10 % first in lock queues and on processors",
        ]
    );
}

/// Priorities past the gate are refused on subjects that have none, by their line.
#[test]
fn priorities_are_for_subjects_that_have_them() {
    let of = |subject: &str, factor: &str| {
        let text = format!(
            "name = \"x\"\nsubjects = [\"{subject}\"]\nctl = \"1s\"\nscenario = \"priority\"\n\
             mpl = [4]\nclients = 9\n[workload]\nkind = \"tpcb\"\n[factors]\n{factor} = [true]"
        );
        parse(Path::new("e.toml"), &text, &Choice::default())
    };
    for (subject, factor, expected) in [
        ("postgres", "gate", None),
        ("postgres", "locks", Some("line 10: `factors.locks`: only the embedded engine")),
        ("postgres", "processors", Some("line 10: `factors.processors`: ")),
        ("embedded", "locks", None),
        ("embedded", "processors", Some("only a machine in virtual time has them, not embedded")),
        ("embedded-in-virtual-time", "locks", None),
        ("embedded-in-virtual-time", "processors", None),
        ("simulated", "locks", None),
    ] {
        let error = of(subject, factor).err().map(|error| error.to_string());
        match (&error, expected) {
            (None, None) => {}
            (Some(error), Some(part)) => assert!(error.contains(part), "{error}"),
            _ => panic!("{subject}, {factor}: {error:?}"),
        }
    }
    // The settings of the subject of a run say whether its lock queues know priorities.
    let plan = |factor| Plan::new(&of("embedded", factor).unwrap()).runs.swap_remove(0);
    assert!(plan("locks").subject.settings.preempt_on_wait);
    assert!(!plan("gate").subject.settings.preempt_on_wait);
}

#[test]
fn what_does_not_fit_is_refused() {
    for (text, expected) in [
        ("scenario = \"autotune\"\nmpl = [4]\nclients = 5", "names no controller"),
        ("scenario = \"autotune\"\nmpl = [4]\n[factors]\ncontrol = [\"vegas\"]", "`clients`"),
        ("scenario = \"autotune\"\nmpl = [4]\n[factors]\ncontrol = [\"magic\"]", "`magic`"),
        (
            "scenario = \"autotune\"\nmpl = [4]\n[factors]\ncontrol = [\"observe\"]",
            "tidegate proxy",
        ),
        ("scenario = \"autotune\"\nmpl = [4]\n[factors]\nc = [0.1]", "line 7"),
        (
            "scenario = \"switch\"\nmpl = [4]\nclients = 5\n[factors]\ncontrol = [\"vegas\"]",
            "either `then` or `then_buffer`",
        ),
        (
            "scenario = \"switch\"\nmpl = [4]\nclients = 5\n[factors]\ncontrol = [\"vegas\"]\n\
             then_buffer = \"4MB\"",
            "needs `buffer`",
        ),
        (
            "scenario = \"switch\"\nmpl = [4]\nclients = 5\n[factors]\ncontrol = [\"vegas\"]\n\
             then = { kind = \"point-select\", scale = 2 }",
            "both workloads have a table `",
        ),
        (
            "scenario = \"sensitivity\"\nmpl = [4]\nclients = 5\n[factors]\n\
             control = \"study-hill-climbing\"",
            "varies nothing",
        ),
        (
            "scenario = \"sensitivity\"\nmpl = [4]\nclients = 5\n[factors]\n\
             control = \"study-hill-climbing\"\ngamma = [0.1]",
            "study-hill-climbing:gamma=0.1",
        ),
        ("scenario = \"deteriorate\"\nmpl = [4]", "`factors.transactions` is missing"),
        (
            "scenario = \"deteriorate\"\nmpl = [4]\n[factors]\ntransactions = 9\nlook = \"0s\"",
            "`factors.look`",
        ),
        ("scenario = \"priority\"\nmpl = [4]", "needs `clients`"),
        ("scenario = \"priority\"\nmpl = [4]\nclients = 3", "above the 3 `clients`"),
        (
            "scenario = \"priority\"\nmpl = [4]\nclients = 5\n[factors]\n\
             arrivals = { constant = 1e-20 }",
            "line 8: `factors.arrivals`: give a number from 1e-7",
        ),
        (
            "scenario = \"priority\"\nmpl = [4]\nclients = 5\n[factors]\nlocks = []",
            "line 8: `factors.locks`: give [true], [false], or both, each once",
        ),
        (
            "scenario = \"priority\"\nmpl = [4]\nclients = 5\n[factors]\ngate = [true, true]",
            "line 8: `factors.gate`: give [true], [false], or both, each once",
        ),
        ("scenario = \"priority\"\nmpl = [4]\nclients = 5\n[factors]\nprocessors = true", "line 8"),
        (
            "scenario = \"priority\"\nmpl = [4]\nclients = 5\n[factors]\nhigh = 1e-9",
            "line 8: `factors.high`: give a number from 0.001 to 100",
        ),
        ("scenario = \"thrash\"\nmpl = [4]", "has its own workload"),
    ] {
        let error = recipes(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn lockings(factors: &str) -> Result<Vec<String>, String> {
    let text = format!(
        "name = \"x\"\nsubjects = [\"embedded-xml\"]\nctl = \"1s\"\nmpl = [8]\n\
         scenario = \"xml-locking\"\n[factors]\n{factors}\n\
         [workload]\nkind = \"xmark\"\nfactor = 0.1\n"
    );
    let experiment = parse(Path::new("e.toml"), &text, &Choice::default());
    let plan = Plan::new(&experiment.map_err(|error| error.to_string())?);
    Ok(plan.runs[0].batchsets.iter().map(Batchset::describe).collect())
}

#[test]
fn each_way_to_lock_is_there_once() {
    let found = lockings(
        "protocol = [\"x\", \"mgl\"]\ndepth = [3, \"unbounded\"]\n\
         escalation = [\"none\", \"eager\"]\nreading = [\"formula\", \"sentence\"]\nskew = [99]",
    );
    let of_mgl = [
        "mgl to depth 3",
        "mgl to depth 3, eager escalation by the formula",
        "mgl to depth 3, eager escalation by the sentence",
        "mgl",
        "mgl, eager escalation by the formula",
        "mgl, eager escalation by the sentence",
    ];
    let expected = ["x"].into_iter().chain(of_mgl);
    let workload = "xmark navigation, factor 0.1, skew 99 %; ";
    let expected: Vec<String> = expected.map(|locking| format!("{workload}{locking}")).collect();
    assert_eq!(found.unwrap(), expected);
}

#[test]
fn what_locks_nothing_is_refused() {
    for (factors, expected) in [
        ("protocol = [\"tadom2\"]", "no lock protocol is called `tadom2`"),
        ("protocol = []", "leaves no batchset"),
        ("depth = [\"deep\"]", "a lock depth is a number or"),
        ("escalation = [\"always\"]", "unknown variant `always`"),
        ("skew = [101]", "a skew of 101 %"),
        ("buffer_percent = [0]", "0 is no share in per cent"),
        ("control = [\"vegas\"]", "a controller needs `clients`"),
    ] {
        let error = lockings(factors).unwrap_err();
        assert!(error.contains(expected), "{factors}: {error}");
    }
    let refused = |subject: &str, workload: &str| {
        let text = format!(
            "name = \"x\"\nsubjects = [\"{subject}\"]\nctl = \"1s\"\nmpl = [8]\n\
             scenario = \"characterise\"\n[workload]\n{workload}\n"
        );
        parse(Path::new("e.toml"), &text, &Choice::default()).unwrap_err().to_string()
    };
    let xmark = refused("embedded", "kind = \"xmark\"\nfactor = 0.1");
    assert!(xmark.contains("run it on an XML store"), "{xmark}");
    let tables = refused("embedded-xml", "kind = \"tpcb\"");
    assert!(tables.contains("take the workload xmark"), "{tables}");
}
