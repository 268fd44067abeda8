//! What a lock costs: runs the engine's own benchmark and judges its figures.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Result;
use crate::report::{Report, verdict};

/// The most nanoseconds for a lock and its unlock.
const NANOSECONDS_MAX: f64 = 200.0;

/// The least that two threads do, as a multiple of one.
const SCALE_MIN: f64 = 1.8;

/// A line of the benchmark.
struct Line<'o> {
    name: &'o str,
    /// Lowest and median for one thread, what two take, and how they scale.
    figures: [f64; 4],
}

/// Runs it and writes its figures down.
pub(crate) fn measure(report: &mut Report) -> Result<()> {
    eprintln!("locks: cargo bench -p tidegate-engine --bench locks");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["bench", "-p", "tidegate-engine", "--bench", "locks", "--manifest-path"])
        .arg(manifest)
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo bench has failed: {}", output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<Line<'_>> = text.lines().filter_map(parse).collect();
    if lines.is_empty() {
        return Err("the locks benchmark has printed no figures that are understood".into());
    }
    report.heading("Locks");
    report.paragraph(
        "`cargo bench -p tidegate-engine --bench locks`: nanoseconds for an operation, alone and \
         while a second thread does the same with other keys; `scale` is how many times one \
         thread's throughput two have. The floor are two uncontended mutexes; of 4,096 that both \
         threads visit, each on cache lines of its own, it is what moving one pair of lines costs. \
         With tables of their own, threads share nothing but the machine.",
    );
    let cells: Vec<Vec<String>> = lines.iter().map(Line::cells).collect();
    report.table(&["operation", "lowest", "median", "2 threads", "scale"], &cells);
    for line in lines.iter().filter(|line| line.name.starts_with("lock + unlock")) {
        let [_, median, _, scale] = line.figures;
        report.item(&format!(
            "{}: median {median:.0} ns, at most {NANOSECONDS_MAX:.0}: {}; scale {scale:.2}, at \
             least {SCALE_MIN}: {}",
            line.name,
            verdict(median <= NANOSECONDS_MAX),
            verdict(scale >= SCALE_MIN)
        ));
    }
    Ok(())
}

impl Line<'_> {
    fn cells(&self) -> Vec<String> {
        let [lowest, median, both, scale] = self.figures;
        let figures = [lowest, median, both].map(|figure| format!("{figure:.1}"));
        [&[self.name.to_owned()][..], &figures, &[format!("{scale:.2}")]].concat()
    }
}

/// `name   lowest   median |   two   scale`; `None` for what is not such a line.
fn parse(line: &str) -> Option<Line<'_>> {
    let (left, right) = line.split_once('|')?;
    let mut words = left.split_whitespace().rev();
    let median = words.next()?.parse().ok()?;
    let lowest = words.next()?;
    let name = left[..left.find(lowest)?].trim();
    let mut right = right.split_whitespace();
    let (both, scale) = (right.next()?.parse().ok()?, right.next()?.parse().ok()?);
    Some(Line { name, figures: [lowest.parse().ok()?, median, both, scale] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_figures_is_told_from_others() {
        let line =
            parse("lock + unlock, 4,096 keys   101.5    110.0 |     120.5     1.83").unwrap();
        assert_eq!(line.name, "lock + unlock, 4,096 keys");
        assert_eq!(line.cells()[1..], ["101.5", "110.0", "120.5", "1.83"]);
        assert!(parse("ns    lowest   median | 2 threads    scale").is_none());
        assert!(parse("running 1 test").is_none());
    }
}
