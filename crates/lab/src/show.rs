//! An experiment's results as text: a table for each curve, with a small picture; the same as JSON;
//! and the list of experiments.

pub(crate) mod figure;
pub mod timeline;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};
use tidegate_control::Mpl;

use crate::experiment::machine;
use crate::experiment::treatment::{Admission, ArrivalSpec};
use crate::grid::Grid;
use crate::store::{Curve, ExperimentRow, Point};
use crate::tap::posterior::{DRAWS, MODEL, SEED};
use crate::tap::{
    Check, OutcomeProbability, Posterior, RetainedBatchset, TapReport, ThrashingPoint,
};
pub use figure::FigureError;

/// One straggler to so many transactions that ended is told: 5 %.
const STRAGGLERS: i64 = 20;

/// Told where the mean of all is so many times the mean of those that ended.
const TOO_LOW: f64 = 1.1;

/// One that failed to so many that ended is told: 1 %.
const ERRORS: i64 = 100;

const BAR: f64 = 40.0;

/// The share of the posterior that the outcomes told of have together.
const CREDIBLE: f64 = 0.9;

/// What went wrong in an experiment, a line for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Consistency conditions that did not hold.
    pub violations: Vec<String>,
    /// Measurements of whose tables nobody knows whether they hold.
    pub unchecked: Vec<String>,
    /// Executions that failed and are not done.
    pub failures: Vec<String>,
}

/// The curves, each with its thrashing point where the analysis gives one.
pub fn text(curves: &[Curve], report: Option<&TapReport>) -> String {
    let mut text = String::new();
    for curve in curves.iter().filter(|curve| !curve.points.is_empty()) {
        push_curve(&mut text, curve, report);
    }
    if text.is_empty() {
        text.push_str("nothing has been measured yet\n");
    }
    text
}

fn push_curve(text: &mut String, curve: &Curve, report: Option<&TapReport>) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{}", title(curve));
    let by_mpl = by_mpl(&curve.points);
    let top = by_mpl.values().map(|points| mean(points)).fold(0.0, f64::max);
    let point = thrashing_point(curve, report);
    let marked = |(&mpl, points): (&u32, &Vec<Point>)| {
        let mark = if point == Some(mpl) { " <- thrashing point" } else { "" };
        format!("{}{mark}", bar(mean(points), top))
    };
    let bars: Vec<String> = by_mpl.iter().map(marked).collect();
    // A grid puts cells to the right; bars as wide as the widest begin at the left all the same.
    let width = bars.iter().map(String::len).max().unwrap_or(0);
    let rows = by_mpl.iter().zip(&bars).map(|((mpl, points), bar)| {
        vec![
            mpl.to_string(),
            format!("{:.1}", mean(points)),
            spread(points),
            format!("{:.2}", mean_ms(points)),
            format!("{bar:<width$}"),
        ]
    });
    let level = if is_held(curve) { "MPL" } else { "first limit" };
    let head = [level, "tps", "lowest-highest", "mean ms", ""].map(str::to_owned).to_vec();
    text.push_str(&Grid { head, rows: rows.collect() }.text());
    for line in by_mpl.iter().flat_map(|(&mpl, points)| doubts(curve, mpl, points)) {
        let _ = writeln!(text, "{line}");
    }
    let _ = writeln!(text, "{}\n", verdict(curve, report));
}

/// What the numbers of a level leave out, where it is much.
///
/// The mean latency is of the transactions that ended. Where many had not when the time was up it
/// is too low, since these are the slow ones. In a closed loop Little's law says what all took
/// together with thinking: clients over throughput.
fn doubts(curve: &Curve, mpl: u32, points: &[Point]) -> Vec<String> {
    let sum = |of: fn(&Point) -> i64| points.iter().map(of).sum::<i64>();
    let ended = sum(|point| point.transactions);
    let (stragglers, errors) = (sum(|point| point.stragglers), sum(|point| point.errors));
    let mut doubts = Vec::new();
    let all = match curve.batchset.treatment.arrivals {
        ArrivalSpec::Closed => little_ms(points),
        ArrivalSpec::Poisson(_) | ArrivalSpec::Constant(_) => None,
    };
    let mean_ms = points.iter().map(|point| point.mean_ms).sum::<f64>() / points.len() as f64;
    let is_much = all.is_none_or(|ms| ms > TOO_LOW * mean_ms);
    if is_much && stragglers.saturating_mul(STRAGGLERS) > ended {
        let all = all.map_or_else(String::new, |ms| format!("; clients over tps are {ms:.2} ms"));
        doubts.push(format!(
            "MPL {mpl}: the mean ms is of {ended} transactions that ended, and leaves out \
             {stragglers} that did not{all}"
        ));
    }
    if errors.saturating_mul(ERRORS) > ended {
        doubts.push(format!("MPL {mpl}: {errors} transactions failed, beside {ended} that ended"));
    }
    doubts
}

/// Clients over throughput, in milliseconds, where there was any.
fn little_ms(points: &[Point]) -> Option<f64> {
    let clients: f64 = points.iter().map(|point| f64::from(point.clients)).sum();
    let tps: f64 = points.iter().map(|point| point.tps).sum();
    (tps > 0.0).then_some(1e3 * clients / tps)
}

/// What is to be known of the hosts, a line for each: batchsets that several measured, and factors
/// that cannot be told from them.
pub fn host_warnings(report: &TapReport) -> impl Iterator<Item = String> {
    let several =
        report.violations.iter().filter(|violation| violation.check == Check::SeveralHosts);
    let confounded = report.confounded.iter().map(|one| format!("warning: {one}"));
    several.map(|one| format!("warning: {one}")).chain(confounded)
}

pub fn title(curve: &Curve) -> String {
    let processors = match curve.run.processors {
        0 => String::new(),
        1 => ", 1 processor".to_owned(),
        count => format!(", {count} processors"),
    };
    let machine = machine::described(&curve.run.settings);
    let keys = if curve.run.primary_key { "" } else { ", no primary keys" };
    let (subject, set) = (&curve.run.subject, &curve.batchset);
    let described = set.describe();
    format!("{subject}{processors}{machine}{keys}: batchset {}, {described}", set.number)
}

pub fn by_mpl(points: &[Point]) -> BTreeMap<u32, Vec<Point>> {
    let mut by_mpl: BTreeMap<u32, Vec<Point>> = BTreeMap::new();
    for &point in points {
        by_mpl.entry(point.mpl).or_default().push(point);
    }
    by_mpl
}

pub fn mean(points: &[Point]) -> f64 {
    points.iter().map(|point| point.tps).sum::<f64>() / points.len().max(1) as f64
}

fn mean_ms(points: &[Point]) -> f64 {
    points.iter().map(|point| point.mean_ms).sum::<f64>() / points.len().max(1) as f64
}

fn spread(points: &[Point]) -> String {
    let tps = || points.iter().map(|point| point.tps);
    match points.len() {
        1 => "-".to_owned(),
        _ => format!("{:.1}-{:.1}", tps().fold(f64::INFINITY, f64::min), tps().fold(0.0, f64::max)),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the bar")]
fn bar(tps: f64, top: f64) -> String {
    let length = if top > 0.0 { (tps / top * BAR).round() } else { 0.0 };
    "#".repeat(length.clamp(0.0, BAR) as usize)
}

/// A curve's thrashing point, where its levels were held, the analysis retained it, and there is
/// one.
pub fn thrashing_point(curve: &Curve, report: Option<&TapReport>) -> Option<u32> {
    if !is_held(curve) {
        return None;
    }
    retained(curve, report?)?.thrashing_point.mpl().map(Mpl::get)
}

fn retained<'r>(curve: &Curve, report: &'r TapReport) -> Option<&'r RetainedBatchset> {
    report.retained.iter().find(|set| is_of(curve, set.key))
}

/// The posterior of a curve's thrashing point, where its levels were held and the analysis retained
/// it.
fn posterior(curve: &Curve, report: Option<&TapReport>) -> Option<Posterior> {
    let report = report.filter(|_| is_held(curve))?;
    retained(curve, report).map(RetainedBatchset::posterior)
}

fn is_of(curve: &Curve, key: crate::tap::BatchsetKey) -> bool {
    (key.run.0, key.batchset) == (i64::from(curve.run.number), curve.batchset.number)
}

/// Whether a level is an MPL that was held; where a controller chooses, it is only the first.
fn is_held(curve: &Curve) -> bool {
    !matches!(curve.batchset.treatment.admission, Admission::Control { .. })
}

fn verdict(curve: &Curve, report: Option<&TapReport>) -> String {
    let Some(report) = report.filter(|_| is_held(curve)) else { return String::new() };
    let Some(retained) = retained(curve, report) else {
        return "the analysis protocol dropped this curve; see `tidegate lab tap`".to_owned();
    };
    let point = verdict_of(retained.thrashing_point);
    format!("{point}\n{}", certainty(&retained.posterior()))
}

/// How probable the outcomes are, and what that depends on.
fn certainty(posterior: &Posterior) -> String {
    let best = posterior.most_probable();
    let set: Vec<String> =
        posterior.credible_set(CREDIBLE).iter().map(|one| outcome(one.point)).collect();
    let measured = if posterior.is_noise_measured {
        ""
    } else {
        ", which one execution a level does not measure: it is by the prior and the roughness of \
         the curve"
    };
    format!(
        "posterior: no thrashing {}; most probable {} ({}); {} credible set: {}; noise between \
         executions {}{measured} ({DRAWS} draws, seed {SEED})",
        percent(posterior.none()),
        outcome(best.point),
        percent(best.probability),
        percent(CREDIBLE),
        set.join(", "),
        percent(posterior.noise),
    )
}

fn outcome(point: ThrashingPoint) -> String {
    point.mpl().map_or_else(|| "none".to_owned(), |mpl| mpl.to_string())
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

fn verdict_of(point: ThrashingPoint) -> String {
    match point {
        ThrashingPoint::AtLowest { mpl, next } => format!(
            "thrashing point {mpl} or below: throughput falls before {next}, and {mpl} is the \
             lowest level"
        ),
        ThrashingPoint::At { mpl, next } => {
            format!("thrashing point {mpl}: throughput falls before {next}")
        }
        ThrashingPoint::Between { high, .. } => format!("throughput falls before {high}"),
        ThrashingPoint::Infinite { highest } => format!("no thrashing up to {highest}"),
    }
}

/// The same for programs. `thrashing_point` is null where there is none, also in the `outcomes` of
/// `posterior`, which is null where there is no verdict. `retained` is false where the analysis
/// protocol dropped the curve, null where it did not judge it. Why it could not is in
/// `not_analysed`.
pub fn json(
    row: &ExperimentRow,
    curves: &[Curve],
    judged: Result<Option<&TapReport>, &String>,
    troubles: &Troubles,
) -> Value {
    let report = judged.ok().flatten();
    let curve = |curve: &Curve| {
        let points = curve.points.iter().map(|point| {
            let Point { mpl, repetition, tps, mean_ms, p99_ms, .. } = point;
            json!({ "mpl": mpl, "repetition": repetition, "tps": tps, "mean_ms": mean_ms,
                    "p99_ms": p99_ms, "clients": point.clients,
                    "transactions": point.transactions, "stragglers": point.stragglers,
                    "errors": point.errors })
        });
        let judging = report.filter(|_| !curve.points.is_empty());
        let is_retained =
            judging.map(|report| report.retained.iter().any(|set| is_of(curve, set.key)));
        json!({
            "run": curve.run.number,
            "subject": curve.run.subject,
            "processors": curve.run.processors,
            "machine": machine::parts(&curve.run.settings),
            "primary_key": curve.run.primary_key,
            "batchset": curve.batchset.number,
            "workload": curve.batchset.spec,
            "retained": is_retained,
            "thrashing_point": thrashing_point(curve, report),
            "posterior": posterior(curve, report).as_ref().map(posterior_json),
            "points": points.collect::<Vec<Value>>(),
        })
    };
    json!({
        "experiment": row.id,
        "name": row.name,
        "scenario": row.scenario,
        "preset": row.preset,
        "planned": row.planned,
        "done": row.done,
        "not_analysed": judged.err(),
        "hosts": report.map(|report| &report.hosts),
        "warnings": report.map(|report| host_warnings(report).collect::<Vec<_>>()),
        "curves": curves.iter().map(curve).collect::<Vec<Value>>(),
        "violations": troubles.violations,
        "unchecked": troubles.unchecked,
        "failures": troubles.failures,
    })
}

fn posterior_json(posterior: &Posterior) -> Value {
    let outcome = |one: &OutcomeProbability| {
        json!({ "thrashing_point": one.point.mpl().map(Mpl::get), "prior": one.prior,
                "probability": one.probability })
    };
    let points = |outcomes: &[OutcomeProbability]| -> Vec<Option<u32>> {
        outcomes.iter().map(|one| one.point.mpl().map(Mpl::get)).collect()
    };
    json!({
        "model": MODEL,
        "draws": DRAWS,
        "seed": SEED,
        "none": posterior.none(),
        "most_probable": posterior.most_probable().point.mpl().map(Mpl::get),
        "credible_set_90": points(&posterior.credible_set(CREDIBLE)),
        "noise": posterior.noise,
        "is_noise_measured": posterior.is_noise_measured,
        "outcomes": posterior.outcomes.iter().map(outcome).collect::<Vec<Value>>(),
    })
}

/// The experiments, a line for each.
pub fn list(rows: &[ExperimentRow]) -> String {
    let mut text = String::new();
    for row in rows {
        let preset = if row.preset.is_empty() { "" } else { ", preset " };
        let measured = row.measured_us.map(|us| format!(", last measured {}", moment(us)));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {} ({}{preset}{}) on {}: {} of {} executions; begun {}{}",
            row.id,
            row.name,
            row.scenario,
            row.preset,
            row.subjects,
            row.done,
            row.planned,
            moment(row.began_us),
            measured.unwrap_or_default()
        );
    }
    if text.is_empty() {
        text.push_str("no experiments yet\n");
    }
    text
}

/// A moment of the store in words, in UTC.
fn moment(us: i64) -> String {
    let since = Duration::from_micros(u64::try_from(us).unwrap_or(0));
    let mut text = String::new();
    // A moment that no calendar has is an error of formatting.
    match write!(text, "{}", humantime::format_rfc3339_seconds(UNIX_EPOCH + since)) {
        Ok(()) => text,
        Err(_) => "at no time".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::treatment::Treatment;
    use crate::experiment::workload::WorkloadSpec;
    use crate::store::{BatchsetRow, RunRow};
    use crate::tap::{DataSet, LevelSample, Rule, analyse};

    fn curve(tps: &[(u32, f64)]) -> Curve {
        let run = RunRow {
            id: 1,
            number: 1,
            subject: "simulated".to_owned(),
            processors: 2,
            primary_key: true,
            settings: BTreeMap::new(),
        };
        let batchset = BatchsetRow {
            id: 1,
            run: 1,
            number: 1,
            spec: WorkloadSpec::Tpcb { scale: 1, reads_first: false },
            treatment: Treatment::default(),
        };
        let point = |&(mpl, tps)| Point {
            mpl,
            repetition: 1,
            tps,
            mean_ms: 2.0,
            p99_ms: 3.0,
            clients: mpl,
            transactions: 1_000,
            stragglers: 50,
            errors: 10,
        };
        Curve { run, batchset, points: tps.iter().map(point).collect() }
    }

    #[test]
    fn bars_begin_at_the_left_and_lines_end_where_they_end() {
        let text = text(&[curve(&[(1, 10.0), (16, 100.0), (256, 5.0)])], None);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "simulated, 2 processors: batchset 1, tpcb, scale 1");
        assert_eq!(lines[2], "1     10.0               -     2.00  ####");
        assert_eq!(lines[3], format!("16   100.0               -     2.00  {}", "#".repeat(40)));
        assert_eq!(lines[4], "256    5.0               -     2.00  ##");
    }

    #[test]
    fn what_the_mean_leaves_out_is_told() {
        let lines = |curve: &Curve| -> Vec<String> {
            text(std::slice::from_ref(curve), None)
                .lines()
                .filter(|line| line.starts_with("MPL ") && line.contains(':'))
                .map(str::to_owned)
                .collect()
        };
        let mut curve = curve(&[(10, 50.0), (1000, 100.0)]);
        assert_eq!(lines(&curve), Vec::<String>::new());
        (curve.points[1].stragglers, curve.points[1].errors) = (51, 11);
        let stragglers = "MPL 1000: the mean ms is of 1000 transactions that ended, and leaves out \
                          51 that did not";
        let errors = "MPL 1000: 11 transactions failed, beside 1000 that ended";
        let little = format!("{stragglers}; clients over tps are 10000.00 ms");
        assert_eq!(lines(&curve), [little.as_str(), errors]);
        // In an open loop the clients that wait for an arrival are no latency.
        curve.batchset.treatment.arrivals = ArrivalSpec::Constant(9.0);
        assert_eq!(lines(&curve), [stragglers, errors]);
    }

    #[test]
    fn a_controller_s_level_is_the_first_limit() {
        let mut curve = curve(&[(4, 50.0)]);
        let head = |curve: &Curve| {
            text(std::slice::from_ref(curve), None).lines().nth(1).map(str::to_owned)
        };
        assert!(head(&curve).is_some_and(|line| line.starts_with("MPL  ")));
        let control = "hill-climbing".parse().expect("an algorithm");
        curve.batchset.treatment.admission = Admission::Control { clients: 10, control };
        assert!(head(&curve).is_some_and(|line| line.starts_with("first limit  ")));
    }

    #[test]
    fn how_certain_a_point_is_is_told() {
        let level = |(mpl, tps): (u32, f64), repetitions| LevelSample {
            mpl: Mpl::at_least_one(mpl),
            tps: vec![tps; repetitions],
            variance_within: 0.0,
        };
        let said = |points: [(u32, f64); 3], repetitions| {
            let levels = points.map(|point| level(point, repetitions));
            certainty(&Posterior::new(Rule::Equation1, &levels).expect("levels"))
        };
        let sure = said([(100, 90.0), (200, 100.0), (300, 50.0)], 5);
        assert!(
            sure.starts_with(
                "posterior: no thrashing 0 %; most probable 200 (100 %); 90 % credible set: 200; \
                 noise between executions "
            ),
            "{sure}"
        );
        assert!(sure.ends_with(" % (4000 draws, seed 20)"), "{sure}");
        let unsure = said([(100, 90.0), (200, 100.0), (300, 83.0)], 1);
        assert!(unsure.contains("90 % credible set: 200, none;"), "{unsure}");
        assert!(unsure.contains("which one execution a level does not measure"), "{unsure}");
    }

    fn row() -> ExperimentRow {
        ExperimentRow {
            id: 3,
            name: "quick".to_owned(),
            scenario: "characterise".to_owned(),
            preset: "published".to_owned(),
            subjects: "embedded".to_owned(),
            file: String::new(),
            began_us: 1_000_000_000_000_000,
            measured_us: None,
            planned: 9,
            done: 0,
        }
    }

    #[test]
    fn a_curve_that_was_not_judged_is_not_one_that_was_dropped() {
        let report = analyse(&DataSet::default(), Rule::default()).expect("no rows");
        let reason = "run 1 is there twice".to_owned();
        let (measured, planned) = (curve(&[(1, 10.0)]), curve(&[]));
        for (judged, curve, expected) in [
            (Ok(Some(&report)), &measured, [json!(false), Value::Null]),
            (Ok(Some(&report)), &planned, [Value::Null, Value::Null]),
            (Ok(None), &measured, [Value::Null, Value::Null]),
            (Err(&reason), &measured, [Value::Null, json!(reason)]),
        ] {
            let shown = json(&row(), std::slice::from_ref(curve), judged, &Troubles::default());
            let found = [&shown["curves"][0]["retained"], &shown["not_analysed"]].map(Value::clone);
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn experiments_are_listed_with_their_times() {
        let row = row();
        let begun = "3: quick (characterise, preset published) on embedded: 0 of 9 executions; \
                     begun 2001-09-09T01:46:40Z";
        assert_eq!(list(std::slice::from_ref(&row)), format!("{begun}\n"));
        let row = ExperimentRow { measured_us: Some(1_000_000_001_999_999), ..row };
        let measured = ", last measured 2001-09-09T01:46:41Z";
        assert_eq!(list(&[row]), format!("{begun}{measured}\n"));
        assert_eq!(list(&[]), "no experiments yet\n");
        assert_eq!(moment(i64::MAX), "at no time");
    }
}
