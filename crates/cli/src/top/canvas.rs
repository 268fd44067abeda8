//! A rectangle of characters with colours.

use std::fmt::Write;

use unicode_width::UnicodeWidthChar;

/// How a character looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Look {
    /// As the terminal has it.
    #[default]
    Plain,
    /// Of less weight.
    Soft,
    /// Of more weight.
    Strong,
    /// What was measured or is expected.
    Sea,
    /// The limit.
    Limit,
    /// What is wrong.
    Bad,
}

impl Look {
    fn code(self) -> &'static str {
        match self {
            Look::Plain => "\x1b[0m",
            Look::Soft => "\x1b[0;2m",
            Look::Strong => "\x1b[0;1m",
            Look::Sea => "\x1b[0;36m",
            Look::Limit => "\x1b[0;33m",
            Look::Bad => "\x1b[0;1;31m",
        }
    }
}

/// The second half of a wide character.
const CONTINUED: char = '\0';

/// The rectangle.
#[derive(Clone, Debug)]
pub(super) struct Canvas {
    width: usize,
    cells: Vec<Vec<(char, Look)>>,
}

/// Returns a character that only stands where it is put: not one that moves the cursor, turns the
/// direction of writing, or joins the one before.
fn harmless(character: char) -> char {
    match character.width() {
        Some(1 | 2) if !is_format(character) => character,
        _ => '\u{b7}',
    }
}

fn is_format(character: char) -> bool {
    matches!(character, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

impl Canvas {
    pub(super) fn new(width: u16, height: u16) -> Canvas {
        let line = vec![(' ', Look::Plain); width.into()];
        Canvas { width: width.into(), cells: vec![line; height.into()] }
    }

    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn height(&self) -> usize {
        self.cells.len()
    }

    /// Puts one character; nothing outside.
    pub(super) fn dot(&mut self, row: usize, column: usize, character: char, look: Look) {
        if let Some(cell) = self.cells.get_mut(row).and_then(|line| line.get_mut(column)) {
            *cell = (character, look);
        }
    }

    /// Puts a text of at most `room` columns; one that is longer ends with `…`. Returns the column
    /// behind it.
    pub(super) fn put(
        &mut self,
        row: usize,
        column: usize,
        room: usize,
        text: &str,
        look: Look,
    ) -> usize {
        let room = room.min(self.width.saturating_sub(column));
        let width = |character: char| character.width().unwrap_or(1);
        let characters: Vec<char> = text.chars().map(harmless).collect();
        let is_long = characters.iter().map(|it| width(*it)).sum::<usize>() > room;
        let room = if is_long { room.saturating_sub(1) } else { room };
        let mut at = column;
        for character in characters {
            if at + width(character) > column + room {
                break;
            }
            self.dot(row, at, character, look);
            if width(character) == 2 {
                self.dot(row, at + 1, CONTINUED, look);
            }
            at += width(character);
        }
        if is_long {
            self.dot(row, at, '…', look);
            at += 1;
        }
        at
    }

    /// Puts a text so that it ends before `end`.
    pub(super) fn put_right(&mut self, row: usize, end: usize, text: &str, look: Look) {
        let column = end.saturating_sub(text.chars().count());
        self.put(row, column, end - column, text, look);
    }

    /// Returns its lines, with the codes of a terminal for colours if they are wanted, and each
    /// with its end.
    pub(super) fn text(&self, is_coloured: bool) -> String {
        self.lines(is_coloured).into_iter().fold(String::new(), |mut text, line| {
            let _ = writeln!(text, "{line}");
            text
        })
    }

    /// Returns its lines, without spaces at their ends.
    pub(super) fn lines(&self, is_coloured: bool) -> Vec<String> {
        let line = |cells: &Vec<(char, Look)>| {
            let end = cells.iter().rposition(|cell| cell.0 != ' ').map_or(0, |last| last + 1);
            let mut line = String::new();
            let mut now = Look::Plain;
            for &(character, look) in &cells[..end] {
                if is_coloured && look != now {
                    line.push_str(look.code());
                    now = look;
                }
                if character != CONTINUED {
                    line.push(character);
                }
            }
            if now != Look::Plain {
                line.push_str(Look::Plain.code());
            }
            line
        };
        self.cells.iter().map(line).collect()
    }
}
