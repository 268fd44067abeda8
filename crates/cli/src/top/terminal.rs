//! The terminal: its size, its keys, and that it is as it was before when the program ends.

use std::io::{self, Read, Stdin, Stdout, Write, stdin, stdout};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::canvas::Canvas;

/// The other screen, without a cursor; and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Leave,
    Next,
    Hold,
}

/// Returns the terminal's columns and lines, if there is one that says so.
pub(super) fn size() -> Option<(u16, u16)> {
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
}

/// The terminal, taken over; dropping it gives it back as it was.
pub(super) struct Terminal {
    input: Stdin,
    output: Stdout,
    before: Termios,
}

impl Terminal {
    /// Takes the terminal over: keys come one by one, and are not shown.
    ///
    /// # Errors
    /// Standard input is no terminal.
    pub(super) fn open() -> io::Result<Terminal> {
        let (input, output) = (stdin(), stdout());
        let before = tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&input, OptionalActions::Flush, &raw)?;
        let mut terminal = Terminal { input, output, before };
        terminal.write(ENTER)?;
        Ok(terminal)
    }

    /// Shows a frame.
    ///
    /// # Errors
    /// The terminal has gone.
    pub(super) fn show(&mut self, canvas: &Canvas) -> io::Result<()> {
        let is_coloured = std::env::var_os("NO_COLOR").is_none();
        let lines = canvas.lines(is_coloured).join("\x1b[K\r\n");
        self.write(&format!("\x1b[H{lines}\x1b[K\x1b[J"))
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.output.write_all(text.as_bytes())?;
        self.output.flush()
    }

    /// Waits for a key that means something, up to `timeout`.
    ///
    /// # Errors
    /// The terminal has gone.
    pub(super) fn key(&mut self, timeout: Duration) -> io::Result<Option<Key>> {
        let mut polled = [PollFd::new(&self.input, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: timeout.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        match poll(&mut polled, Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            polled => drop(polled?),
        }
        let mut bytes = [0; 64];
        let len = self.input.read(&mut bytes)?;
        Ok(match bytes[..len] {
            // The end of the input: who closes the terminal leaves.
            [] | [b'q' | b'Q' | 3 | 4, ..] => Some(Key::Leave),
            [b'\t', ..] => Some(Key::Next),
            [b' ', ..] => Some(Key::Hold),
            _ => None,
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may have gone.
        let _ = self.write(LEAVE);
        let _ = tcsetattr(&self.input, OptionalActions::Flush, &self.before);
    }
}
