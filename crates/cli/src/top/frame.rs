//! One frame: the document as characters.

use tidegate_proxy::status::{HistorySecond, ServerStatus, Status};

use super::canvas::{Canvas, Look};

/// Seconds over which the present is a mean.
const LATELY: usize = 10;

/// What is shown.
pub(super) struct View<'a> {
    pub(super) status: &'a Status,
    /// The number of the server.
    pub(super) server: usize,
    /// A line about the program itself, at the end.
    pub(super) note: Option<String>,
}

/// Returns the frame for a terminal of this size.
pub(super) fn frame(view: &View<'_>, width: u16, height: u16) -> Canvas {
    let mut canvas = Canvas::new(width, height);
    head(&mut canvas, view.status);
    let servers = &view.status.servers;
    if let Some(server) = servers.get(view.server.min(servers.len().saturating_sub(1))) {
        of_server(&mut canvas, view, server);
    }
    let last = canvas.height().saturating_sub(1);
    let room = canvas.width();
    match &view.note {
        Some(note) => canvas.put(last, 0, room, note, Look::Bad),
        None => canvas.put(last, 0, room, "q leave   Tab next server   Space hold", Look::Soft),
    };
    canvas
}

fn head(canvas: &mut Canvas, status: &Status) {
    let state_look = if status.state == "serving" { Look::Sea } else { Look::Bad };
    let mut at = canvas.put(0, 0, 40, &format!("Tidegate {}", status.tidegate), Look::Strong);
    at = canvas.put(0, at + 2, 20, &status.state.replace('_', " "), state_look);
    let hold = if status.hold == "none" { String::new() } else { format!("all {}  ", status.hold) };
    at = canvas.put(0, at + 2, 20, &hold, Look::Bad);
    let facts = format!(
        "up {}  clients {}  connections {} busy, {} open",
        lasted(status.uptime_s),
        grouped(status.clients.connected as f64),
        status.connections.busy,
        status.connections.open,
    );
    let room = canvas.width();
    canvas.put(0, at, room, &facts, Look::Plain);
}

fn of_server(canvas: &mut Canvas, view: &View<'_>, server: &ServerStatus) {
    let (width, height) = (canvas.width(), canvas.height());
    let mut at = canvas.put(1, 0, width / 2, &server.server, Look::Strong);
    let control = match &*server.control.order {
        "configured" => server.control.in_force.clone(),
        order => format!("{} ({order})", server.control.in_force),
    };
    at = canvas.put(1, at + 2, width, &control, Look::Plain);
    if view.status.servers.len() > 1 {
        let which = format!("{} of {} servers", view.server + 1, view.status.servers.len());
        at = canvas.put(1, at + 2, width, &which, Look::Soft);
    }
    if !server.is_reachable {
        let outage = server.outage.as_deref().unwrap_or("no connection");
        canvas.put(1, at + 2, width, &format!("cannot be reached: {outage}"), Look::Bad);
    } else if !server.paused.is_empty() {
        canvas.put(1, at + 2, width, &format!("paused: {}", server.paused.join(", ")), Look::Bad);
    }
    numbers(canvas, server);
    let why = server.why.as_ref().map_or("no decision yet", |why| &why.sentence);
    for (row, (label, text)) in [("why", why), ("outlook", &*server.outlook)].iter().enumerate() {
        canvas.put(3 + row, 0, 9, label, Look::Soft);
        canvas.put(3 + row, 9, width, text, Look::Plain);
    }
    // What is left, without the last line, is shared out: the plot gets most.
    let left = height.saturating_sub(7);
    let lists = (left / 3).clamp(3.min(left), 16);
    let plot = left.saturating_sub(lists + 1);
    let half = width * 11 / 20;
    curve(canvas, server, Area { top: 6, left: 0, width: half.saturating_sub(2), height: plot });
    minutes(canvas, server, Area { top: 6, left: half, width: width - half, height: plot });
    let top = 6 + plot;
    holders(canvas, server, Area { top, left: 0, width: half.saturating_sub(2), height: lists });
    decisions(canvas, server, Area { top, left: half, width: width - half, height: lists });
}

/// A part of the canvas.
#[derive(Clone, Copy)]
struct Area {
    top: usize,
    left: usize,
    width: usize,
    height: usize,
}

fn lately(server: &ServerStatus) -> &[HistorySecond] {
    &server.history[server.history.len().saturating_sub(LATELY)..]
}

/// Returns the mean over the last seconds; `None` if there are none.
fn present(server: &ServerStatus, of: impl Fn(&HistorySecond) -> f64) -> Option<f64> {
    let lately = lately(server);
    (!lately.is_empty()).then(|| lately.iter().map(of).sum::<f64>() / lately.len() as f64)
}

fn numbers(canvas: &mut Canvas, server: &ServerStatus) {
    let now =
        |of: fn(&HistorySecond) -> f64| present(server, of).map_or_else(|| "-".to_owned(), grouped);
    let refused: u64 = server.refusals.iter().map(|refusal| refusal.count).sum();
    let all = [
        ("limit", format!("{} ({}-{})", server.limit, server.limit_min, server.limit_max)),
        ("tps", now(|second| second.tps)),
        ("running", now(|second| second.running)),
        ("waiting", grouped(server.waiting as f64)),
        ("failed/s", now(|second| second.failed_tps)),
        ("refused", grouped(refused as f64)),
    ];
    let mut at = 0;
    for (label, value) in all {
        at = canvas.put(2, at, label.len(), label, Look::Soft) + 1;
        let look = if label == "limit" { Look::Limit } else { Look::Strong };
        at = canvas.put(2, at, 24, &value, look) + 2;
    }
}

/// Throughput against transactions in the database, as measured and as expected.
fn curve(canvas: &mut Canvas, server: &ServerStatus, area: Area) {
    let Area { top, left, width, height } = area;
    if height < 4 || width < 20 {
        return;
    }
    canvas.put(top, left, width, "tps against transactions in the database", Look::Soft);
    let rows = server.curve.iter().flat_map(|curve| &curve.rows);
    let bands: Vec<_> = rows.filter_map(|row| Some((f64::from(row.limit), row.tps?))).collect();
    let now = present(server, |it| it.running).zip(present(server, |it| it.tps));
    let limits = bands.iter().map(|(limit, _)| *limit);
    let mpls = server.measurements.iter().map(|it| it.mpl).chain(limits);
    let most = mpls.chain([f64::from(server.limit), 8.0]).fold(1.0, f64::max);
    let tps = server.measurements.iter().map(|it| it.tps);
    let tps = tps.chain(bands.iter().map(|(_, band)| band.high)).chain(now.map(|it| it.1));
    let highest = tps.fold(1.0, f64::max);
    let (margin, plot_height) = (7, height - 2);
    let plot_width = width - margin;
    let x = |mpl: f64| {
        margin + left + cell(libm::log(mpl.max(1.0)) / libm::log(most.max(2.0)), plot_width)
    };
    let y = |tps: f64| top + plot_height - cell(tps / highest, plot_height);
    canvas.put_right(top + 1, left + margin - 1, &compact(highest), Look::Soft);
    canvas.put_right(top + plot_height, left + margin - 1, "0", Look::Soft);
    for row in top + 1..=top + plot_height {
        canvas.dot(row, x(f64::from(server.limit)), '│', Look::Limit);
    }
    for pair in bands.windows(2) {
        let [(one, low), (other, high)] = pair else { continue };
        for column in x(*one)..=x(*other) {
            let from = x(*one);
            let part = (column - from) as f64 / (x(*other) - from).max(1) as f64;
            let between = |a: f64, b: f64| a + part * (b - a);
            for row in y(between(low.high, high.high))..=y(between(low.low, high.low)) {
                canvas.dot(row, column, '░', Look::Sea);
            }
            canvas.dot(y(between(low.median, high.median)), column, '━', Look::Sea);
        }
    }
    for point in &server.measurements {
        canvas.dot(y(point.tps), x(point.mpl), '•', Look::Strong);
    }
    if let Some((running, tps)) = now.filter(|(running, _)| *running > 0.0) {
        canvas.dot(y(tps), x(running), '◆', Look::Limit);
    }
    let axis = top + plot_height + 1;
    let mut free = 0;
    for mark in [1.0, 2.0, 5.0].into_iter().cycle().zip(0..).map(mark).take_while(|it| *it <= most)
    {
        let text = format!("{mark:.0}");
        if x(mark) >= free {
            canvas.put(axis, x(mark), text.len(), &text, Look::Soft);
            free = x(mark) + text.len() + 2;
        }
    }
}

/// Returns the marks 1, 2, 5, 10, 20 and so on.
fn mark((digit, index): (f64, i32)) -> f64 {
    digit * 10_f64.powi(index / 3)
}

/// Returns the cell of a share of so many.
fn cell(share: f64, cells: usize) -> usize {
    let last = cells.saturating_sub(1);
    let at = (share.clamp(0.0, 1.0) * last as f64).round();
    (0..last).find(|index| *index as f64 >= at).unwrap_or(last)
}

/// A number of a second.
type NumberOf = Box<dyn Fn(&HistorySecond) -> Option<f64>>;

/// The last minutes, a line for each number.
fn minutes(canvas: &mut Canvas, server: &ServerStatus, area: Area) {
    let Area { top, left, width, height } = area;
    if height < 2 || width < 24 {
        return;
    }
    canvas.put(top, left, width, "the last minutes", Look::Soft);
    let mut all: Vec<(String, NumberOf, bool)> = vec![
        ("limit".into(), Box::new(|it| Some(f64::from(it.limit))), false),
        ("tps".into(), Box::new(|it| Some(it.tps)), false),
        ("running".into(), Box::new(|it| Some(it.running)), false),
        ("waiting".into(), Box::new(|it| Some(it.waiting)), false),
    ];
    for (index, class) in server.classes.iter().enumerate() {
        let queue = move |it: &HistorySecond| it.classes.get(index)?.queue_ms;
        let database = move |it: &HistorySecond| it.classes.get(index)?.database_ms;
        all.push((format!("{} queue", class.class), Box::new(queue), true));
        all.push((format!("{} db", class.class), Box::new(database), true));
    }
    for (row, (label, of, is_time)) in all.into_iter().take(height - 1).enumerate() {
        let row = top + 1 + row;
        let values: Vec<Option<f64>> = server.history.iter().map(of).collect();
        let room = width.saturating_sub(24);
        canvas.put(row, left, 12, &label, Look::Plain);
        line(canvas, (row, left + 13), room, &values);
        let last = values.last().copied().flatten();
        let value =
            last.map_or_else(|| "-".to_owned(), |it| if is_time { ms(it) } else { grouped(it) });
        canvas.put_right(row, left + width, &value, Look::Strong);
    }
}

/// A line of blocks as high as the numbers.
fn line(canvas: &mut Canvas, (row, column): (usize, usize), room: usize, values: &[Option<f64>]) {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    if room == 0 || values.is_empty() {
        return;
    }
    let chunk = values.len().div_ceil(room).max(1);
    let means: Vec<Option<f64>> = values
        .rchunks(chunk)
        .rev()
        .map(|part| {
            let known: Vec<f64> = part.iter().copied().flatten().collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
        })
        .collect();
    let most = means.iter().copied().flatten().fold(0.0, f64::max);
    let first = column + room.saturating_sub(means.len());
    for (index, mean) in means.iter().enumerate() {
        let Some(mean) = mean else { continue };
        let block = if most > 0.0 { BLOCKS[cell(mean / most, BLOCKS.len())] } else { BLOCKS[0] };
        canvas.dot(row, first + index, block, Look::Sea);
    }
}

fn holders(canvas: &mut Canvas, server: &ServerStatus, area: Area) {
    let Area { top, left, width, height } = area;
    let title = format!("{} hold a permit, the longest first", server.holders_total);
    canvas.put(top, left, width, &title, Look::Soft);
    for (row, holder) in server.holders.iter().take(height.saturating_sub(1)).enumerate() {
        let row = top + 1 + row;
        canvas.put_right(row, left + 9, &ms(holder.held_ms), Look::Strong);
        let idle = if holder.idle_ms.is_some() { " idle" } else { "" };
        let text = format!(
            "{}@{} {} {}{idle}",
            holder.user, holder.database, holder.application, holder.class
        );
        canvas.put(row, left + 11, width.saturating_sub(11), &text, Look::Plain);
    }
}

fn decisions(canvas: &mut Canvas, server: &ServerStatus, area: Area) {
    let Area { top, left, width, height } = area;
    canvas.put(top, left, width, "decisions, the last first", Look::Soft);
    let newest = server.decisions.iter().rev().take(height.saturating_sub(1));
    for (row, decision) in newest.enumerate() {
        let row = top + 1 + row;
        canvas.put_right(row, left + 5, &decision.limit.to_string(), Look::Limit);
        let times = if decision.repeats > 1 {
            format!(" ({} times)", decision.repeats)
        } else {
            String::new()
        };
        let text = format!("{}{times}", decision.sentence);
        canvas.put(row, left + 7, width.saturating_sub(7), &text, Look::Plain);
    }
}

/// Returns a number with groups of three digits, and one decimal if it is small.
fn grouped(value: f64) -> String {
    let text = if value.fract() == 0.0 || value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    };
    let (whole, rest) = text.split_once('.').map_or((&*text, None), |(one, two)| (one, Some(two)));
    let mut out = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    rest.map_or(out.clone(), |rest| format!("{out}.{rest}"))
}

fn compact(value: f64) -> String {
    if value >= 1e6 {
        format!("{:.1}M", value / 1e6)
    } else if value >= 1e4 {
        format!("{:.1}k", value / 1e3)
    } else {
        format!("{value:.0}")
    }
}

fn ms(value: f64) -> String {
    match value {
        _ if value < 10.0 => format!("{value:.2} ms"),
        _ if value < 100.0 => format!("{value:.1} ms"),
        _ if value < 1e3 => format!("{value:.0} ms"),
        _ if value < 1e5 => format!("{:.1} s", value / 1e3),
        _ => lasted(value / 1e3),
    }
}

fn lasted(seconds: f64) -> String {
    let minutes = (seconds / 60.0).floor();
    match seconds {
        _ if seconds < 60.0 => format!("{seconds:.0} s"),
        _ if seconds < 3600.0 => format!("{minutes:.0} min"),
        _ if seconds < 172_800.0 => {
            format!("{:.0} h {:.0} min", (minutes / 60.0).floor(), minutes % 60.0)
        }
        _ => format!("{:.0} days", (seconds / 86400.0).floor()),
    }
}
