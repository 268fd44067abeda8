//! The start-up parameter `options`: the command line of a server process.
//!
//! In transaction mode there is no process of the client's own that could be started with it, so
//! each switch becomes the setting that it stands for. The server does the same
//! (`process_postgres_switches` in `tcop/postgres.c`).

/// Parameters and their values.
type Pairs = Vec<(String, String)>;

/// Returns the settings that `options` asks for: `-c name=value`, `--name=value` and the switches
/// of one letter that stand for settings. A backslash protects the next character. `None` if there
/// is anything else, which only a connection of the client's own could obey.
pub(crate) fn settings(options: &str) -> Option<Pairs> {
    let mut words = words(options).into_iter();
    let mut settings = Vec::new();
    while let Some(word) = words.next() {
        if let Some(assignment) = word.strip_prefix("--") {
            settings.push(assigned(assignment)?);
            continue;
        }
        let switch = word.strip_prefix('-')?;
        let letter = switch.chars().next()?;
        let attached = &switch[letter.len_utf8()..];
        let mut argument = || match attached {
            "" => words.next(),
            attached => Some(attached.to_owned()),
        };
        match letter {
            'c' => settings.push(assigned(&argument()?)?),
            'd' => settings.extend(debug(&argument()?)?),
            'e' if attached.is_empty() => settings.push(pair("datestyle", "euro")),
            'f' => settings.push(pair(plan(&argument()?)?, "false")),
            'O' if attached.is_empty() => {
                settings.push(pair("allow_system_table_mods", "true"));
            }
            's' if attached.is_empty() => settings.push(pair("log_statement_stats", "true")),
            'S' => settings.push(pair("work_mem", &argument()?)),
            't' => settings.push(pair(statistics(&argument()?)?, "true")),
            _ => return None,
        }
    }
    Some(settings)
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

fn assigned(assignment: &str) -> Option<(String, String)> {
    let (name, value) = assignment.split_once('=')?;
    Some((name.replace('-', "_"), value.to_owned()))
}

/// The settings of a debugging level (`set_debug_options`), but for those of the whole server.
fn debug(level: &str) -> Option<Pairs> {
    let level: u32 = level.parse().ok()?;
    let shown = match level {
        0 => "notice".to_owned(),
        level => format!("debug{}", level.min(5)),
    };
    let mut settings = vec![pair("log_min_messages", &shown)];
    let further = [
        (2, "log_statement", "all"),
        (3, "debug_print_parse", "true"),
        (4, "debug_print_plan", "true"),
        (5, "debug_print_rewritten", "true"),
    ];
    let asked = further.iter().filter(|(from, ..)| level >= *from);
    settings.extend(asked.map(|(_, name, value)| pair(name, value)));
    Some(settings)
}

/// The setting that forbids a kind of plan (`set_plan_disabling_options`).
fn plan(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "s" => "enable_seqscan",
        "i" => "enable_indexscan",
        "o" => "enable_indexonlyscan",
        "b" => "enable_bitmapscan",
        "t" => "enable_tidscan",
        "n" => "enable_nestloop",
        "m" => "enable_mergejoin",
        "h" => "enable_hashjoin",
        _ => return None,
    })
}

/// The setting that logs the statistics of a part of the server (`get_stats_option_name`).
fn statistics(part: &str) -> Option<&'static str> {
    Some(match part {
        "pa" | "parser" => "log_parser_stats",
        "pl" | "planner" => "log_planner_stats",
        "e" | "executor" => "log_executor_stats",
        _ => return None,
    })
}

/// Splits at white space that no backslash protects.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let protected = if character == '\\' { characters.next() } else { None };
        match protected {
            None if character.is_whitespace() => words.push(std::mem::take(&mut word)),
            None => word.push(character),
            Some(protected) => word.push(protected),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_as_the_server_reads_them() {
        type Expected<'a> = Option<&'a [(&'a str, &'a str)]>;
        let table: [(&str, Expected<'_>); 11] = [
            (
                "-c search_path=a,b -cwork_mem=1MB",
                Some(&[("search_path", "a,b"), ("work_mem", "1MB")]),
            ),
            (r"--application-name=a\ b", Some(&[("application_name", "a b")])),
            ("  ", Some(&[])),
            (
                "-e -fh -f s",
                Some(&[
                    ("datestyle", "euro"),
                    ("enable_hashjoin", "false"),
                    ("enable_seqscan", "false"),
                ]),
            ),
            ("-S 4096 -s", Some(&[("work_mem", "4096"), ("log_statement_stats", "true")])),
            ("-tpl", Some(&[("log_planner_stats", "true")])),
            ("-d 2", Some(&[("log_min_messages", "debug2"), ("log_statement", "all")])),
            ("-c", None),
            ("-fx", None),
            ("-B 100", None),
            ("work_mem=1", None),
        ];
        for (options, expected) in table {
            let expected = expected.map(|pairs| {
                pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()
            });
            assert_eq!(settings(options), expected, "{options:?}");
        }
    }
}
