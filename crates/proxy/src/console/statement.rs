//! The text of a query, as commands.

/// An order with an optional database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Pause,
    Resume,
    Reconnect,
    Kill,
    WaitClose,
    Disable,
    Enable,
}

/// The orders by the word that begins them.
pub(super) const ORDERS: [(&str, Order); 7] = [
    ("PAUSE", Order::Pause),
    ("RESUME", Order::Resume),
    ("RECONNECT", Order::Reconnect),
    ("KILL", Order::Kill),
    ("WAIT_CLOSE", Order::WaitClose),
    ("DISABLE", Order::Disable),
    ("ENABLE", Order::Enable),
];

/// A command of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// SHOW of something, in lower case.
    Show(String),
    /// An order, and the database that it is about.
    Order(Order, Option<String>),
    KillClient(u64),
    Suspend,
    Reload,
    /// With the word that says when.
    Shutdown(Option<String>),
    /// A setting, in lower case, and its value.
    Set(String, String),
}

/// A text that is no command.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid command '{0}', use SHOW HELP;")]
pub(super) struct InvalidCommand(pub(super) String);

/// Splits a text at semicolons outside quotes. Empty statements are left out.
pub(super) fn split(text: &str) -> Vec<&str> {
    let (mut statements, mut begin, mut quote) = (Vec::new(), 0, None);
    for (index, character) in text.char_indices() {
        match (quote, character) {
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            (None, ';') => {
                statements.push(&text[begin..index]);
                begin = index + 1;
            }
            _ => {}
        }
    }
    statements.push(&text[begin..]);
    statements.into_iter().map(str::trim).filter(|statement| !statement.is_empty()).collect()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    Quoted(String),
    Equals,
}

impl Token {
    fn into_text(self) -> Option<String> {
        match self {
            Token::Word(text) | Token::Quoted(text) => Some(text),
            Token::Equals => None,
        }
    }

    /// Returns a word of the language, in upper case.
    fn keyword(&self) -> Option<String> {
        match self {
            Token::Word(word) => Some(word.to_ascii_uppercase()),
            _ => None,
        }
    }
}

/// Returns the tokens of a statement; `None` if a character has no meaning or a quote has no end.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start());
    while let Some(first) = rest.chars().next() {
        let is_word = |character: char| character.is_alphanumeric() || "_-.*$".contains(character);
        if first == '=' {
            tokens.push(Token::Equals);
            rest = &rest[1..];
        } else if first == '\'' || first == '"' {
            let (mut quoted, mut characters) = (String::new(), rest[1..].char_indices().peekable());
            let end = loop {
                let (index, character) = characters.next()?;
                if character != first {
                    quoted.push(character);
                } else if characters.next_if(|(_, next)| *next == first).is_some() {
                    quoted.push(first);
                } else {
                    break index + 2;
                }
            };
            tokens.push(Token::Quoted(quoted));
            rest = &rest[end..];
        } else if is_word(first) {
            let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        } else {
            return None;
        }
        rest = rest.trim_start();
    }
    Some(tokens)
}

/// Reads one statement.
///
/// # Errors
/// It is no command.
pub(super) fn parse(text: &str) -> Result<Command, InvalidCommand> {
    let invalid = || InvalidCommand(text.trim().to_owned());
    let mut tokens = tokens(text).ok_or_else(invalid)?.into_iter();
    let command = tokens.next().and_then(|token| token.keyword()).ok_or_else(invalid)?;
    let rest: Vec<Token> = tokens.collect();
    let mut rest = rest.into_iter();
    if command == "SET" {
        let key = rest.next().and_then(Token::into_text).ok_or_else(invalid)?;
        let sign = rest.next().ok_or_else(invalid)?;
        if sign != Token::Equals && sign.keyword().as_deref() != Some("TO") {
            return Err(invalid());
        }
        let value = rest.next().and_then(Token::into_text).ok_or_else(invalid)?;
        let set = Command::Set(key, value);
        return if rest.next().is_none() { Ok(set) } else { Err(invalid()) };
    }
    let argument = match rest.next() {
        Some(token) => Some(token.into_text().ok_or_else(invalid)?),
        None => None,
    };
    if rest.next().is_some() {
        return Err(invalid());
    }
    let order = ORDERS.iter().find(|(word, _)| *word == command).map(|(_, order)| *order);
    match (&*command, argument) {
        ("SHOW" | "SELECT", Some(what)) => Ok(Command::Show(what.to_ascii_lowercase())),
        ("SHOW", None) => Ok(Command::Show("help".into())),
        ("SUSPEND", None) => Ok(Command::Suspend),
        ("RELOAD", None) => Ok(Command::Reload),
        ("SHUTDOWN", mode) => Ok(Command::Shutdown(mode.map(|it| it.to_ascii_uppercase()))),
        ("KILL_CLIENT", Some(id)) => id.parse().map(Command::KillClient).map_err(|_| invalid()),
        (_, database) => Ok(Command::Order(order.ok_or_else(invalid)?, database)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_are_read_as_pgbouncer_reads_them() {
        let show = |what: &str| Ok(Command::Show(what.into()));
        let pause =
            |database: Option<&str>| Ok(Command::Order(Order::Pause, database.map(str::to_owned)));
        assert_eq!(parse("show Pools"), show("pools"));
        assert_eq!(parse("  SHOW\n\t\"stats\" "), show("stats"));
        assert_eq!(parse("PAUSE"), pause(None));
        assert_eq!(parse("pause \"my \"\"db\""), pause(Some("my \"db")));
        assert_eq!(parse("pause Shop"), pause(Some("Shop")), "names keep their case");
        assert_eq!(parse("KILL_CLIENT 12"), Ok(Command::KillClient(12)));
        let set = |value: &str| Ok(Command::Set("Verbose".into(), value.into()));
        assert_eq!(parse("SET Verbose=1"), set("1"));
        assert_eq!(parse("set Verbose TO 'it''s'"), set("it's"));
        for text in
            ["", "bla", "show", "SHOW a b", "pause (", "KILL_CLIENT x", "set a", "SUSPEND a", "'a"]
        {
            let is_help = text == "show";
            assert_eq!(parse(text).is_err(), !is_help, "{text}");
        }
        let error = parse(" show a b ").unwrap_err().to_string();
        assert_eq!(error, "invalid command 'show a b', use SHOW HELP;");
    }

    #[test]
    fn a_text_is_split_outside_quotes() {
        assert_eq!(split("a; b 'x;y' ;; \"c;\" ;"), ["a", "b 'x;y'", "\"c;\""]);
        assert_eq!(split(" ; "), [""; 0]);
    }

    proptest! {
        #[test]
        fn any_text_is_a_command_or_an_error(text: String) {
            for statement in split(&text) {
                let _ = parse(statement);
            }
        }

        #[test]
        fn a_quoted_name_is_read_back(name in "[^\0]{0,20}") {
            let quoted = format!("PAUSE \"{}\"", name.replace('"', "\"\""));
            prop_assert_eq!(split(&quoted), [quoted.trim()]);
            let command = Command::Order(Order::Pause, Some(name));
            prop_assert_eq!(parse(&quoted), Ok(command));
        }
    }
}
