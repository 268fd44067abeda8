//! The log on standard error: as text, as JSON, or for journald.
//!
//! - `text` is for people: moment, level, message, fields.
//! - `json` is an object in each line, with `timestamp`, `level` and `message` and a key for each
//!   field.
//! - `journald` begins each line with its priority, as in `<6>`, and leaves the moment to the
//!   journal: see `sd-daemon(3)`. It is chosen where `JOURNAL_STREAM` says that standard error
//!   leads to the journal.
//!
//! The form may be named in the configuration, which is read when something may have been logged
//! already; so it can be changed while the program runs.

use std::fmt::{self, Write as _};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::SystemTime;

use serde_json::{Map, Value};
use tidegate_proxy::config::LogFormat;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The form in use: its number in [`LogFormat::ALL`].
static FORMAT: AtomicU8 = AtomicU8::new(0);

/// Begins to log, in a form that was named on the command line or in the one that fits.
pub(crate) fn begin(level: LevelFilter, format: Option<LogFormat>) {
    set(format.unwrap_or_else(fitting));
    let text = Format::default().with_target(false);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        .event_format(Lines { text })
        .init();
}

/// Goes on in another form.
pub(crate) fn set(format: LogFormat) {
    let number = LogFormat::ALL.iter().position(|it| *it == format).unwrap_or_default();
    FORMAT.store(u8::try_from(number).unwrap_or_default(), Ordering::Relaxed);
}

fn current() -> LogFormat {
    let number = usize::from(FORMAT.load(Ordering::Relaxed));
    LogFormat::ALL.get(number).copied().unwrap_or_default()
}

/// Returns the form for where standard error leads.
fn fitting() -> LogFormat {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let ours = std::fs::metadata("/proc/self/fd/2").map(|it| format!("{}:{}", it.dev(), it.ino()));
    if ours.is_ok_and(|ours| ours == stream) { LogFormat::Journald } else { LogFormat::Text }
}

/// Writes events, a line each.
struct Lines {
    text: Format<Full>,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        match current() {
            LogFormat::Text => self.text.format_event(context, writer, event),
            LogFormat::Json => {
                let mut fields = Fields::default();
                event.record(&mut fields);
                let at = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
                writeln!(writer, "{}", fields.json(*event.metadata().level(), &at))
            }
            LogFormat::Journald => {
                let mut fields = Fields::default();
                event.record(&mut fields);
                let priority = priority(*event.metadata().level());
                writeln!(writer, "<{priority}>{}", fields.line())
            }
        }
    }
}

/// Returns the priority of syslog.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// The message and the fields of an event.
#[derive(Default)]
struct Fields {
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => self.fields.push((name, value)),
        }
    }

    /// Returns an object in a line.
    fn json(self, level: Level, at: &str) -> String {
        let mut object = Map::new();
        for (name, value) in self.fields {
            object.insert(name.to_owned(), value);
        }
        // A field of such a name does not take their place.
        object.insert("timestamp".to_owned(), at.into());
        object.insert("level".to_owned(), level.as_str().into());
        object.insert("message".to_owned(), self.message.into());
        Value::Object(object).to_string()
    }

    /// Returns one line of text: the priority holds for one line.
    fn line(self) -> String {
        let mut line = self.message;
        for (name, value) in self.fields {
            let _ = write!(line, " {name}={value}");
        }
        line.chars().map(|it| if it.is_control() { ' ' } else { it }).collect()
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields() -> Fields {
        let fields = vec![
            ("user", Value::from("eve\n<0>\x1b[2J\"")),
            ("limit", Value::from(12)),
            ("level", Value::from("none")),
        ];
        Fields { message: "limit changed".to_owned(), fields }
    }

    #[test]
    fn json_is_an_object_in_a_line() {
        let line = fields().json(Level::INFO, "2026-01-01T00:00:00Z");
        assert!(!line.contains('\n') && !line.contains('\x1b'), "{line}");
        let read: Map<String, Value> = serde_json::from_str(&line).unwrap();
        assert_eq!(read["message"], "limit changed");
        assert_eq!((&read["level"], &read["limit"]), (&"INFO".into(), &12.into()));
        assert_eq!(read["user"], "eve\n<0>\x1b[2J\"");
        assert_eq!(read["timestamp"], "2026-01-01T00:00:00Z");
    }

    #[test]
    fn a_line_for_the_journal_stays_one_line() {
        let line = fields().line();
        assert!(line.starts_with("limit changed user=\"eve"), "{line}");
        assert!(line.contains(" limit=12") && !line.contains(char::is_control), "{line}");
    }

    #[test]
    fn levels_have_priorities_of_syslog() {
        let all = [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG, Level::TRACE];
        assert_eq!(all.map(priority), [3, 4, 6, 7, 7]);
    }
}
