//! What the proxies of all tests have logged at info level or above.

use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

static LINES: Mutex<String> = Mutex::new(String::new());
static START: Once = Once::new();

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lines().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lines() -> MutexGuard<'static, String> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins to collect; what is logged before the first call is lost.
pub(crate) fn collect() {
    START.call_once(|| tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init());
}

/// The lines that hold `text`, which has to be the test's own.
pub(crate) fn lines_with(text: &str) -> Vec<String> {
    lines().lines().filter(|line| line.contains(text)).map(str::to_owned).collect()
}
