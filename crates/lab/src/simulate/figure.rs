//! The simulation's picture: throughput of every controller on every plant, as a heat map.
//!
//! The SVG is written by hand rather than drawn through a library, because it is text and
//! rectangles only, and because a reader who cannot see the colours is owed more than they give:
//! the number stands in each cell, names and both numbers in its title, and the picture has a title
//! and a description.

use std::fmt::Write;

use super::{CellResult, Measure, SimulationReport};

const CELL: (usize, usize) = (46, 22);
/// Between the plants and what is said of them all.
const GAP: usize = 6;
/// Room for the plants' names on the left, the controllers' at the top.
const LEFT: usize = 250;
const TOP: usize = 190;
const BOTTOM: usize = 70;
/// A slanted name at the right edge needs room.
const RIGHT: usize = 120;
const FONT: &str = "font-family=\"sans-serif\" font-size=\"12\"";

/// Colours of shares of the best throughput, straight lines between them; told apart also by those
/// who do not tell red from green.
const COLOURS: [(f64, [f64; 3]); 5] = [
    (0.0, [90.0, 20.0, 30.0]),
    (0.5, [200.0, 80.0, 50.0]),
    (0.8, [245.0, 200.0, 130.0]),
    (0.95, [190.0, 220.0, 235.0]),
    (1.0, [40.0, 110.0, 180.0]),
];

pub(super) fn heat_map(report: &SimulationReport) -> String {
    let (columns, rows) = (report.controllers.len(), report.plants.len() + 2);
    let width = LEFT + columns * CELL.0 + RIGHT;
    let bottom = TOP + rows * CELL.1 + GAP;
    let height = bottom + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-labelledby=\"title description\" {FONT}>\n\
         <title id=\"title\">Throughput of each controller on each simulated plant</title>\n\
         <desc id=\"description\">{}</desc>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"12\" y=\"26\" font-size=\"17\">Throughput, % of the best fixed limit's</text>\n\
         <text x=\"12\" y=\"46\" fill=\"#555\">mean of {} runs, seeds from {}</text>\n",
        escaped(&description(report)),
        report.seeds,
        report.seed,
    );
    for (column, summary) in report.controllers.iter().enumerate() {
        svg += &column_name(column, &summary.controller);
    }
    for (row, plant) in report.plants.iter().enumerate() {
        let y = TOP + row * CELL.1;
        svg += &row_name(y, &plant.plant, "normal");
        for (column, summary) in report.controllers.iter().enumerate() {
            let result = report.cell(&summary.controller, &plant.plant);
            let title = format!("{} on {}", summary.controller, plant.plant);
            svg += &cell((column, y), &title, result.and_then(value), result.and_then(worst));
        }
    }
    svg += &summary_rows(report);
    svg += &scale(bottom + 24);
    svg + "</svg>\n"
}

/// Two rows below the plants: the mean over them and the worst.
fn summary_rows(report: &SimulationReport) -> String {
    let mean_y = TOP + report.plants.len() * CELL.1 + GAP;
    let worst_y = mean_y + CELL.1;
    let mut svg = row_name(mean_y, "mean over plants", "bold");
    svg += &row_name(worst_y, "worst plant", "bold");
    for (column, summary) in report.controllers.iter().enumerate() {
        let name = &summary.controller;
        let mean = summary.over_plants.mean.get(Measure::Throughput);
        let worst = summary.over_plants.worst.get(Measure::Throughput);
        svg += &cell((column, mean_y), &format!("{name}, mean over plants"), mean, None);
        svg += &cell((column, worst_y), &format!("{name}, worst plant"), worst, None);
    }
    svg
}

fn value(result: &CellResult) -> Option<f64> {
    result.over_seeds.mean.get(Measure::Throughput)
}

fn worst(result: &CellResult) -> Option<f64> {
    result.over_seeds.worst.get(Measure::Throughput)
}

/// The picture in words: each controller's mean and worst plant.
fn description(report: &SimulationReport) -> String {
    let mut text = String::from("Mean throughput over all plants, and on the worst plant: ");
    for (index, summary) in report.controllers.iter().enumerate() {
        let mean = percent(summary.over_plants.mean.get(Measure::Throughput));
        let worst = percent(summary.over_plants.worst.get(Measure::Throughput));
        let separator = if index == 0 { "" } else { "; " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}{} {mean} and {worst}", summary.controller);
    }
    text + "."
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "n/a".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn column_name(column: usize, name: &str) -> String {
    let (x, y) = (LEFT + column * CELL.0 + CELL.0 / 2, TOP - 8);
    format!("<text transform=\"translate({x} {y}) rotate(-55)\">{}</text>\n", escaped(name))
}

fn row_name(y: usize, name: &str, weight: &str) -> String {
    let (x, y) = (LEFT - 8, y + CELL.1 - 7);
    let name = escaped(name);
    format!(
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"end\" font-weight=\"{weight}\">{name}</text>\n"
    )
}

/// One cell, its top at `y`: its colour, its number, and both in words for those who point at it.
fn cell(
    (column, y): (usize, usize),
    title: &str,
    share: Option<f64>,
    worst: Option<f64>,
) -> String {
    let x = LEFT + column * CELL.0;
    let (width, height) = (CELL.0 - 1, CELL.1 - 1);
    let (fill, ink) = share.map_or_else(|| ("#eee".to_owned(), "#777"), colours);
    let number = share.map_or_else(|| "n/a".to_owned(), |share| format!("{:.0}", share * 100.0));
    let mut title = format!("{title}: {}", percent(share));
    if worst.is_some() {
        title = format!("{title}, worst seed {}", percent(worst));
    }
    let (text_x, text_y) = (x + CELL.0 / 2, y + CELL.1 - 7);
    format!(
        "<g><title>{}</title><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         fill=\"{fill}\"/><text x=\"{text_x}\" y=\"{text_y}\" text-anchor=\"middle\" \
         fill=\"{ink}\">{number}</text></g>\n",
        escaped(&title),
    )
}

/// The colour of a share, and one for text on it.
fn colours(share: f64) -> (String, &'static str) {
    let share = share.clamp(0.0, 1.0);
    let after = COLOURS.partition_point(|&(at, _)| at < share).clamp(1, COLOURS.len() - 1);
    let ((low, from), (high, to)) = (COLOURS[after - 1], COLOURS[after]);
    let part = (share - low) / (high - low);
    let mix = |index: usize| from[index] + (to[index] - from[index]) * part;
    let [red, green, blue] = [mix(0), mix(1), mix(2)];
    let brightness = 0.299 * red + 0.587 * green + 0.114 * blue;
    let ink = if brightness > 140.0 { "#111" } else { "#fff" };
    (format!("rgb({red:.0},{green:.0},{blue:.0})"), ink)
}

/// The scale of colours, its top at `y`.
fn scale(y: usize) -> String {
    const STEPS: usize = 50;
    const STEP: usize = 6;
    let mut svg = String::new();
    for step in 0..=STEPS {
        let (x, share) = (LEFT + step * STEP, step as f64 / STEPS as f64);
        let fill = colours(share).0;
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{STEP}\" height=\"12\" fill=\"{fill}\"/>"
        );
        if step % 10 == 0 {
            let (x, y, percent) = (x + STEP / 2, y + 28, step * 100 / STEPS);
            let _ =
                writeln!(svg, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">{percent}</text>");
        }
    }
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_lie_between_their_neighbours_and_text_stands_out() {
        assert_eq!(colours(0.0), ("rgb(90,20,30)".to_owned(), "#fff"));
        assert_eq!(colours(0.25), ("rgb(145,50,40)".to_owned(), "#fff"));
        assert_eq!(colours(0.95), ("rgb(190,220,235)".to_owned(), "#111"));
        assert_eq!(colours(1.0), colours(1.2));
        assert_eq!(colours(0.0), colours(-1.0));
    }

    #[test]
    fn names_cannot_break_the_picture() {
        assert_eq!(escaped("a<b> & \"c\""), "a&lt;b&gt; &amp; &quot;c&quot;");
    }
}
