//! What is written is read back to the last bit, and replayed to the same decisions; and whatever
//! else stands in a journal is named.

use std::time::Duration;

use tidegate_control::{
    ClassObservation, CurveInterval, CurveRow, LockObservation, ServerObservation, SplitMix64,
    Timing, Unknown,
};

use super::*;

const SERVER: &str = "db:5432";

fn control(algorithm: Algorithm, random: &mut SplitMix64) -> Control {
    let (min, max) = pick(random, &[(1, 1), (3, 7), (1, 1_000), (1, u32::MAX)]);
    let bounds = Bounds::new(Mpl::at_least_one(min), Mpl::at_least_one(max)).unwrap();
    let start = bounds.clamp(Mpl::at_least_one(pick(random, &[1, 4, 64, u32::MAX])));
    let resources = Resources { cpus: pick(random, &[1, 2, 32]), disks: pick(random, &[0, 1, 16]) };
    let setting = Setting { bounds, start, resources };
    Control { algorithm, is_observing: false, keep: None, arms: None, setting }
}

fn pick<T: Copy>(random: &mut SplitMix64, listed: &[T]) -> T {
    listed[usize::try_from(random.next_bits() % listed.len() as u64).unwrap()]
}

fn count(random: &mut SplitMix64) -> u64 {
    let bits = random.next_bits();
    pick(random, &[0, 1, 2, 100, 1_000, 5_000, bits, u64::MAX])
}

fn level(random: &mut SplitMix64) -> u32 {
    pick(random, &[0, 1, 2, 7, 64, 1_000, u32::MAX])
}

/// A number of any size, or one as it is in practice; of all that there are, only NaN and the
/// infinities are left out.
fn number(random: &mut SplitMix64) -> f64 {
    let any = f64::from_bits(random.next_bits());
    let any = if any.is_finite() { any } else { f64::MIN_POSITIVE / 3.0 };
    let usual = random.next_draw().value();
    pick(random, &[0.0, -0.0, 0.1, usual, usual, usual * 100.0, any, f64::MAX, f64::MIN])
}

fn timing(random: &mut SplitMix64) -> Timing {
    Timing {
        count: count(random),
        mean_s: number(random),
        variance_s2: number(random),
        min_s: number(random),
        p50_s: number(random),
        p95_s: number(random),
        p99_s: number(random),
    }
}

fn class(random: &mut SplitMix64) -> ClassObservation {
    ClassObservation {
        completions: count(random),
        failures: count(random),
        in_database: timing(random),
        in_queue: timing(random),
        response: timing(random),
        late: count(random),
    }
}

fn locks(random: &mut SplitMix64) -> LockObservation {
    LockObservation {
        mature_running: level(random),
        mature_blocked: level(random),
        young_running: level(random),
        young_blocked: level(random),
        locks_held: count(random),
        locks_held_by_running: count(random),
    }
}

fn server(random: &mut SplitMix64) -> ServerObservation {
    ServerObservation {
        samples: level(random),
        processor: number(random),
        lock: number(random),
        lwlock: number(random),
        io: number(random),
        client: number(random),
        other: number(random),
        idle_in_transaction: number(random),
        hidden: number(random),
    }
}

fn observation(limit: Mpl, random: &mut SplitMix64) -> Observation {
    let second = Duration::from_secs(1);
    let any = Duration::from_nanos(random.next_bits());
    Observation {
        interval: pick(random, &[second, second, any, Duration::ZERO, Duration::MAX]),
        limit: pick(random, &[limit, limit, limit, Mpl::at_least_one(u32::MAX)]),
        running: level(random),
        concurrency: level(random),
        concurrency_peak: level(random),
        concurrency_mean: number(random),
        running_mean: number(random),
        idle: level(random),
        idle_mean: number(random),
        discounted: level(random),
        discounted_mean: number(random),
        waiting_share: number(random),
        completions: count(random),
        failures: count(random),
        in_database: timing(random),
        in_queue: timing(random),
        locks: pick(random, &[true, false]).then(|| locks(random)),
        server: pick(random, &[true, false]).then(|| server(random)),
        classes: (0..random.next_bits() % 3).map(|_| class(random)).collect(),
    }
}

/// So many decisions of a controller that sees anything at all.
fn decisions(control: &Control, intervals: usize, random: &mut SplitMix64) -> Vec<Decided> {
    let mut controller = control.controller();
    let mut limit = controller.start();
    let decide = |index| {
        let observation = observation(limit, random);
        let draw = random.next_draw();
        let Decision { limit: next_limit, reason } = controller.decide(&observation, draw);
        limit = next_limit;
        let (reason, kind) = (reason.to_string(), reason.kind().to_owned());
        let name = controller.name().to_owned();
        let (server, at_s) = (SERVER.to_owned(), f64::from(u32::try_from(index).unwrap()) * 1.1);
        Decided {
            line: 0,
            at_s,
            server,
            controller: name,
            next_limit,
            reason,
            kind,
            draw,
            observation,
            proposal: controller.proposal().as_ref().map(Proposed::from),
            arm: controller.arm().as_ref().map(DecidedArm::from),
            curve: None,
        }
    };
    (0..intervals).map(decide).collect()
}

/// A curve comes back as it was written, and a journal of before there were curves is read.
#[test]
fn curves_are_read_back_and_may_be_absent() {
    let mut random = SplitMix64::new(77);
    let control = control(Algorithm::HillClimbing, &mut random);
    let mut decisions = decisions(&control, 2, &mut random);
    let told = CurveInterval { low: 0.1, median: 1.0 / 3.0, high: f64::MAX };
    let known =
        CurveRow { limit: Mpl::ONE, throughput_tps: Some(told), response_s: None, unknown: None };
    let unknown = CurveRow {
        limit: Mpl::at_least_one(64),
        throughput_tps: None,
        response_s: None,
        unknown: Some(Unknown::Unseen),
    };
    decisions[1].curve = Some(WhatIfCurve {
        at_s: 1.1,
        present: 300.5,
        measurements: 64,
        widening: 1.25,
        rows: vec![known, unknown],
    });
    let file = written(&[(control, decisions.clone())]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    assert_eq!(text.matches("\"curve\"").count(), 1, "{text}");
    let recorded = read(file.path()).unwrap();
    assert_eq!(exact(&recorded.runs[0].decisions), exact(&decisions));
}

/// A file with these records, one run for each.
fn written(runs: &[(Control, Vec<Decided>)]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    for (control, decisions) in runs {
        append(file.path(), control, decisions);
    }
    file
}

fn append(path: &Path, control: &Control, decisions: &[Decided]) {
    let mut journal = Journal::open(path).unwrap();
    journal.begin(SERVER, control, 9).unwrap();
    for decided in decisions {
        journal.add(decided).unwrap();
    }
}

/// As text in which every number has digits that belong to no other: 0 and -0 too.
fn exact(decisions: &[Decided]) -> Vec<String> {
    let unnumbered = decisions.iter().map(|decided| Decided { line: 0, ..decided.clone() });
    unnumbered.map(|decided| format!("{decided:?}")).collect()
}

fn is_word(kind: &str) -> bool {
    !kind.is_empty()
        && kind
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

#[test]
fn every_algorithm_decides_again_as_it_did_whatever_it_saw() {
    const SEEDS: u64 = 20;
    const INTERVALS: usize = 60;
    let fixed = Algorithm::Fixed(Mpl::at_least_one(5));
    let obeyed = Algorithm::ALL.into_iter().chain([fixed]).map(|algorithm| (algorithm, false));
    let asked = [fixed, ControlChoice::ASKED].map(|algorithm| (algorithm, true));
    let goals = [None, Some("high:p95=200ms"), Some("normal:mean=1s")];
    for (algorithm, is_observing) in obeyed.chain(asked) {
        for seed in 0..SEEDS {
            let random = &mut SplitMix64::new(seed);
            let keep = pick(random, &goals).filter(|_| !is_observing);
            let keep = keep.map(|keep| keep.parse::<ClassGoal>().unwrap());
            let keep = keep.map(|keep| keep.of(&Classes::default()).unwrap());
            let arms = pick(random, &[None, NonZeroUsize::new(1), NonZeroUsize::new(3)]);
            let arms = arms.filter(|_| !is_observing);
            let control = Control { is_observing, keep, arms, ..control(algorithm, random) };
            let decisions = decisions(&control, INTERVALS, random);
            let file = written(&[(control, decisions.clone())]);
            let Recorded { runs, cut_off } = read(file.path()).unwrap();
            let [run] = runs.as_slice() else { panic!("{} runs", runs.len()) };
            assert_eq!((run.control, run.seed, cut_off), (control, 9, vec![]));
            assert_eq!(exact(&run.decisions), exact(&decisions), "{algorithm}, seed {seed}");
            assert_eq!(run.first_difference(), None, "{algorithm}, seed {seed}");
            for decided in &run.decisions {
                assert!(is_word(&decided.kind), "{} is no metric's label", decided.kind);
                assert_eq!(decided.proposal.is_some(), is_observing);
            }
        }
    }
}

/// A journal of before there were response times, and goals, is read as one without them.
#[test]
fn a_journal_without_response_times_is_read() {
    let (control, decisions) = hill_climbing();
    let file = written(&[(control, decisions)]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let without = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        let classes = line.pointer_mut("/observation/classes").and_then(|one| one.as_array_mut());
        for class in classes.into_iter().flatten() {
            let class = class.as_object_mut().unwrap();
            assert!(class.remove("response").is_some() && class.remove("late").is_some());
        }
        line.to_string() + "\n"
    };
    std::fs::write(file.path(), text.lines().map(without).collect::<String>()).unwrap();
    let run = read(file.path()).unwrap().runs.remove(0);
    assert_eq!((run.control.keep, run.first_difference()), (None, None));
    let mut classes = run.decisions.iter().flat_map(|one| &one.observation.classes);
    assert!(classes.all(|class| (class.response, class.late) == (Timing::default(), 0)));
}

fn hill_climbing() -> (Control, Vec<Decided>) {
    let random = &mut SplitMix64::new(5);
    let control = control(Algorithm::HillClimbing, random);
    (control, decisions(&control, 12, random))
}

#[test]
fn a_changed_record_is_noticed_in_limit_and_reason() {
    let (control, decisions) = hill_climbing();
    let changed = |change: fn(&mut Decided)| {
        let mut decisions = decisions.clone();
        change(&mut decisions[7]);
        read(written(&[(control, decisions)]).path()).unwrap().runs.remove(0)
    };
    let limit = changed(|decided| {
        decided.next_limit = Mpl::at_least_one(decided.next_limit.get().wrapping_add(1));
    });
    let reason = changed(|decided| decided.reason.push('!'));
    for run in [limit, reason] {
        let Difference { recorded, replayed, .. } = run.first_difference().unwrap();
        // The first line begins the run.
        assert_eq!((recorded.line, recorded), (9, &run.decisions[7]));
        assert_eq!(replayed.limit, decisions[7].next_limit);
        assert_eq!(replayed.reason.to_string(), decisions[7].reason);
    }
}

#[test]
fn a_changed_proposal_is_noticed() {
    let random = &mut SplitMix64::new(5);
    let control = Control { is_observing: true, ..control(ControlChoice::ASKED, random) };
    let mut decisions = decisions(&control, 12, random);
    let proposal = decisions[7].proposal.as_mut().unwrap();
    proposal.best_in_words.push('!');
    let run = read(written(&[(control, decisions)]).path()).unwrap().runs.remove(0);
    let Difference { recorded, proposal, .. } = run.first_difference().unwrap();
    let words = |proposal: &Option<Proposed>| proposal.as_ref().unwrap().best_in_words.clone();
    assert_eq!(words(&recorded.proposal), words(&proposal) + "!");
}

#[test]
fn another_algorithm_sees_what_was_recorded() {
    let (control, decisions) = hill_climbing();
    let run = read(written(&[(control, decisions)]).path()).unwrap().runs.remove(0);
    let limits = |algorithm: Algorithm| -> Vec<Mpl> {
        run.decisions_of(algorithm).map(|(_, decision)| decision.limit).collect()
    };
    let expected = control.setting.bounds.max();
    assert_eq!(limits(Algorithm::Fixed(expected)), [expected; 12]);
    let recorded: Vec<Mpl> = run.decisions.iter().map(|decided| decided.next_limit).collect();
    assert_eq!(limits(Algorithm::HillClimbing), recorded);
}

#[test]
fn every_beginning_begins_a_run_also_after_half_a_line() {
    let (control, decisions) = hill_climbing();
    let file = written(&[(control, decisions.clone())]);
    let length = file.as_file().metadata().unwrap().len();
    file.as_file().set_len(length - 20).unwrap();
    let half = read(file.path()).unwrap();
    assert_eq!((half.runs[0].decisions.len(), half.cut_off), (11, vec![13]));

    append(file.path(), &control, &decisions);
    append(file.path(), &control, &[]);
    let Recorded { runs, cut_off } = read(file.path()).unwrap();
    let shape: Vec<_> = runs.iter().map(|run| (run.line, run.decisions.len())).collect();
    assert_eq!(shape, [(1, 11), (14, 12), (27, 0)]);
    assert_eq!(cut_off, [13]);
    assert!(runs.iter().all(|run| run.first_difference().is_none()));
}

/// Wherever it was cut off, in a number, a word or a string.
#[test]
fn half_a_line_is_known_as_one() {
    let (control, decisions) = hill_climbing();
    let text = std::fs::read(written(&[(control, decisions)]).path()).unwrap();
    let ends: Vec<usize> = (0..text.len()).filter(|&at| text[at] == b'\n').collect();
    let read = |end: usize| {
        let Recorded { runs, cut_off } = parse(&text[..end]).unwrap();
        let decisions: usize = runs.iter().map(|run| run.decisions.len()).sum();
        (runs.len(), decisions, cut_off)
    };
    for end in 1..ends[0] {
        assert_eq!(read(end), (0, 0, vec![1]), "cut off after {end} bytes");
    }
    for end in ends[0] + 2..ends[1] {
        assert_eq!(read(end), (1, 0, vec![2]), "cut off after {end} bytes");
    }
    assert_eq!(read(ends[1]), (1, 1, vec![]), "only the line's end is missing");
}

/// Before idle and discounted permits were told apart, none did not count.
#[test]
fn a_record_without_the_fields_of_today_is_replayed() {
    let (control, decisions) = hill_climbing();
    let file = written(&[(control, decisions.clone())]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let older = |line: &str| {
        let mut line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(seen) = line.get_mut("observation").and_then(|seen| seen.as_object_mut()) {
            for field in ["idle", "idle_mean", "discounted", "discounted_mean"] {
                assert!(seen.remove(field).is_some(), "{field}");
            }
            seen.remove("server");
        }
        line.to_string() + "\n"
    };
    std::fs::write(file.path(), text.lines().map(older).collect::<String>()).unwrap();
    let run = read(file.path()).unwrap().runs.remove(0);
    assert_eq!((run.decisions.len(), run.first_difference()), (12, None));
    for (read, written) in run.decisions.iter().zip(&decisions) {
        let (seen, before) = (&read.observation, &written.observation);
        assert_eq!((seen.idle, seen.discounted, seen.running), (0, 0, before.running));
        assert_eq!((seen.idle_mean, seen.discounted_mean), (0.0, 0.0));
        assert_eq!(seen.server, None);
    }
}

#[test]
fn servers_share_a_file_line_by_line() {
    let (control, decisions) = hill_climbing();
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut journal = Journal::open(file.path()).unwrap();
    for server in ["a", "b"] {
        journal.begin(server, &control, 1).unwrap();
    }
    for decided in &decisions {
        for server in ["a", "b"] {
            journal.add(&Decided { server: server.to_owned(), ..decided.clone() }).unwrap();
        }
    }
    for (run, server) in read(file.path()).unwrap().runs.iter().zip(["a", "b"]) {
        assert_eq!((run.server.as_str(), run.decisions.len()), (server, 12));
        assert_eq!(run.first_difference(), None);
    }
}

#[test]
fn what_a_proxy_does_not_write_is_named_by_its_line() {
    let (control, decisions) = hill_climbing();
    let file = written(&[(control, decisions)]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (begin, decision) = (lines[0], lines[1]);
    let half = &decision[..decision.len() / 2];
    let with = |line: &str, from: &str, to: &str| {
        assert!(line.contains(from), "{line}");
        line.replacen(from, to, 1)
    };
    let draw = |number: &str| with(decision, "\"draw\":", &format!("\"draw\":{number},\"was\":"));
    for (lines, line, message) in [
        (vec![decision.into()], 1, "a decision about db:5432, and no line before it"),
        (vec![begin.into(), half.into(), decision.into()], 2, "EOF while parsing"),
        (vec![begin.into(), decision.into(), "reading".into(), begin.into()], 3, "no line of a"),
        (vec![begin.into(), "{\"line\":\"decision\"}".into()], 2, "missing field `at_s`"),
        (vec![begin.into(), "{\"line\":\"note\"}".into()], 2, "unknown variant `note`"),
        (vec![with(begin, "\"format\":1", "\"format\":2")], 1, "format 2, and this program reads"),
        (vec![with(begin, "hill-climbing", "guessing")], 1, "no algorithm is called `guessing`"),
        (vec![with(begin, "\"min_mpl\":", "\"min_mpl\":99999")], 1, "is above the highest"),
        (vec![with(begin, "\"start_mpl\":", "\"start_mpl\":0,\"was\":")], 1, "a limit is 0"),
        (vec![begin.into(), draw("1.0")], 2, "the draw is not"),
        (vec![begin.into(), draw("-0.25")], 2, "the draw is not"),
        (vec![begin.into(), draw("1e-300")], 2, "the draw is not"),
        (vec![begin.into(), draw("null")], 2, "invalid type: null"),
    ] {
        std::fs::write(file.path(), lines.join("\n") + "\n").unwrap();
        let error = read(file.path()).unwrap_err().to_string();
        let path = file.path().display();
        assert!(error.starts_with(&format!("{path}: line {line}: ")), "{error}");
        assert!(error.contains(message), "{message}: {error}");
    }
    std::fs::write(file.path(), "").unwrap();
    assert!(read(file.path()).unwrap_err().to_string().ends_with("holds no run"));
    let none = read(Path::new("/nonexistent.jsonl")).unwrap_err().to_string();
    assert!(none.starts_with("cannot read the journal /nonexistent.jsonl: No such file"), "{none}");
}

/// The fields that plots and the laboratory read, and JSON whatever the numbers are.
#[test]
fn a_line_is_json_with_a_summary() {
    let (control, mut decisions) = hill_climbing();
    decisions.truncate(1);
    let seen = &mut decisions[0].observation;
    (seen.interval, seen.completions) = (Duration::from_millis(500), 100);
    (seen.limit, seen.concurrency) = (Mpl::at_least_one(4), 6);
    seen.in_queue.mean_s = f64::NAN;
    seen.in_database.mean_s = 0.02;
    let file = written(&[(control, decisions)]);
    let text = std::fs::read_to_string(file.path()).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["line"], "decision");
    assert_eq!((&line["interval_s"], &line["tps"]), (&0.5.into(), &200.0.into()));
    assert_eq!((&line["limit"], &line["concurrency"]), (&4.into(), &6.into()));
    assert_eq!(line["in_database_mean_s"], 0.02);
    assert!(line["in_queue_mean_s"].is_null());
    let error = read(file.path()).unwrap_err().to_string();
    assert!(error.contains("line 2: "), "{error}");
}
