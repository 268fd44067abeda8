//! The rules of style that a reader of one file can check.

use std::ops::Range;

use crate::Offence;
use crate::lexer::{block_after, code_only, functions, line_of, word_offsets};

/// Longest function, in lines from `fn` to the closing brace.
const FUNCTION_LINES_MAX: usize = 70;

/// Longest line, in characters.
const LINE_CHARS_MAX: usize = 100;

/// Functions that may be longer, as (path, name). The list only shrinks: an entry that is no
/// longer needed is an offence too.
pub(crate) const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Where `unsafe` may be written.
const UNSAFE_PERMITTED: &[&str] = &[
    "bench/engine/src/engines/lmdb.rs",
    "bench/relay/",
    "crates/engine/src/buffer/arena.rs",
    "crates/engine/src/buffer/frame.rs",
    "crates/runtime/src/fiber.rs",
    "crates/runtime/src/sync/raw.rs",
];

/// Where output is the purpose.
const PRINTS_PERMITTED: &[&str] = &["crates/cli/", "bench/"];

/// Notes to oneself, cut in two so that this file passes its own test.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// Directories of one person's machine.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// The offences that any text file can hold.
pub(crate) fn text_offences(path: &str, text: &str) -> Vec<Offence> {
    let mut found = Vec::new();
    for note in NOTES {
        for at in word_offsets(text, note) {
            found.push(Offence::new(path, line_of(text, at), format!("{note} left in the text")));
        }
    }
    for directory in MACHINE_PATHS {
        for (at, _) in text.match_indices(directory) {
            if starts_a_path(text, at) {
                let what = format!("{directory} is a directory of one machine");
                found.push(Offence::new(path, line_of(text, at), what));
            }
        }
    }
    if is_program(path) {
        found.extend(long_lines(path, text));
    }
    found
}

/// Whether the slash at `at` is the first of a path rather than one in its middle.
fn starts_a_path(text: &str, at: usize) -> bool {
    let before = text[..at].chars().next_back();
    !before.is_some_and(|c| c.is_alphanumeric() || "_-.~}*$".contains(c))
}

/// Programs and scripts have a line limit; documents, records and locks have none.
fn is_program(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some(("", _)) => false,
        Some((_, extension)) => ["rs", "py", "sh"].contains(&extension),
        None => !["LICENSE", "NOTICE"].contains(&name),
    }
}

fn long_lines(path: &str, text: &str) -> Vec<Offence> {
    let too_long = |line: &str| line.chars().count() > LINE_CHARS_MAX && !line.contains("https://");
    let lines = text.lines().enumerate().filter(|(_, line)| too_long(line));
    let what = format!("line longer than {LINE_CHARS_MAX} characters");
    lines.map(|(index, _)| Offence::new(path, index + 1, what.clone())).collect()
}

/// The offences of a Rust source file, beside those of its text.
pub(crate) fn rust_offences(path: &str, text: &str) -> Vec<Offence> {
    let code = code_only(text);
    let mut found = module_doc_offence(path, text);
    found.extend(macro_offences(path, &code));
    found.extend(unsafe_offences(path, &code));
    found.extend(ignore_offences(path, &code));
    found.extend(length_offences(path, &code, LONG_FUNCTIONS));
    found
}

/// A file opens with `//!`; only inner attributes and plain comments may come before.
fn module_doc_offence(path: &str, text: &str) -> Vec<Offence> {
    let is_preamble = |line: &str| {
        let plain_comment = line.starts_with("//") && !line.starts_with("//!");
        line.is_empty() || line.starts_with("#!") || plain_comment
    };
    let first = text.lines().map(str::trim).find(|line| !is_preamble(line));
    if first.is_some_and(|line| line.starts_with("//!")) {
        return Vec::new();
    }
    vec![Offence::new(path, 1, "no module documentation (`//!`) at the top".into())]
}

fn macro_offences(path: &str, code: &str) -> Vec<Offence> {
    // A build script speaks to Cargo by printing.
    let prints_permitted = PRINTS_PERMITTED.iter().any(|place| path.starts_with(place))
        || is_test_file(path)
        || path.ends_with("build.rs");
    let tests = test_items(code);
    let calls = |name: &'static str| {
        word_offsets(code, name).filter(move |at| code[at + name.len()..].starts_with('!'))
    };
    let mut found = Vec::new();
    for name in ["dbg", "todo", "unimplemented"] {
        for at in calls(name) {
            found.push(Offence::new(
                path,
                line_of(code, at),
                format!("`{name}!` left in the code"),
            ));
        }
    }
    for name in ["print", "println", "eprint", "eprintln"] {
        let strays = calls(name).filter(|at| !tests.iter().any(|test| test.contains(at)));
        for at in strays.filter(|_| !prints_permitted) {
            let what = format!("`{name}!` outside the command line; use tracing");
            found.push(Offence::new(path, line_of(code, at), what));
        }
    }
    found
}

/// Integration tests, benchmarks and examples, and test modules in a file of their own, which by
/// convention is called `tests.rs` or ends with `_test.rs` or `_tests.rs`.
fn is_test_file(path: &str) -> bool {
    let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
    let in_test_directory = directories
        .split('/')
        .any(|directory| ["tests", "benches", "examples", "fuzz"].contains(&directory));
    let test_name = ["tests.rs", "_test.rs"].iter().any(|ending| name.ends_with(ending));
    in_test_directory || test_name
}

/// The blocks of items that are compiled for tests only.
fn test_items(code: &str) -> Vec<Range<usize>> {
    let attributes = ["#[cfg(test)]", "#[cfg(all(test"];
    let starts = attributes.iter().flat_map(|attribute| code.match_indices(attribute));
    starts.filter_map(|(at, _)| block_after(code, at + 1)).collect()
}

fn unsafe_offences(path: &str, code: &str) -> Vec<Offence> {
    if UNSAFE_PERMITTED.iter().any(|place| path.starts_with(place)) {
        return Vec::new();
    }
    let what = "`unsafe` outside the permitted places";
    let offence = |at| Offence::new(path, line_of(code, at), what.into());
    word_offsets(code, "unsafe").map(offence).collect()
}

/// `#[ignore]` and `#[cfg_attr(.., ignore)]` must say why: `ignore = "reason"`.
fn ignore_offences(path: &str, code: &str) -> Vec<Offence> {
    let has_reason = |after: &str| {
        let value = after.trim_start().strip_prefix('=').map(str::trim_start);
        value.is_some_and(|value| !value.starts_with("\"\""))
    };
    let mut found = Vec::new();
    for (start, _) in code.match_indices("#[") {
        let attribute = code[start..].split(']').next().unwrap_or_default();
        let conditional = attribute.starts_with("#[cfg_attr");
        let skips = word_offsets(attribute, "ignore").filter(|&at| at == 2 || conditional);
        for at in skips.filter(|at| !has_reason(&attribute[at + "ignore".len()..])) {
            let line = line_of(code, start + at);
            found.push(Offence::new(path, line, "ignored test without a reason".into()));
        }
    }
    found
}

fn length_offences(path: &str, code: &str, exceptions: &[(&str, &str)]) -> Vec<Offence> {
    let functions = functions(code);
    let excepted = |name: &str| exceptions.contains(&(path, name));
    let long = functions.iter().filter(|function| function.length > FUNCTION_LINES_MAX);
    let mut found: Vec<_> = long
        .clone()
        .filter(|function| !excepted(&function.name))
        .map(|function| {
            let (name, length) = (&function.name, function.length);
            let what =
                format!("function `{name}` has {length} lines, {FUNCTION_LINES_MAX} at most");
            Offence::new(path, function.line, what)
        })
        .collect();
    for (_, name) in exceptions.iter().filter(|(file, _)| *file == path) {
        if !long.clone().any(|function| function.name == *name) {
            let what = format!("`{name}` no longer needs its entry in LONG_FUNCTIONS");
            found.push(Offence::new(path, 1, what));
        }
    }
    found
}

#[cfg(test)]
mod samples {
    //! Every rule on a sample that breaks it and on one that does not.

    use super::*;

    const NONE: [usize; 0] = [];

    fn lines(offences: &[Offence]) -> Vec<usize> {
        let mut lines: Vec<usize> = offences.iter().map(|offence| offence.line).collect();
        lines.sort_unstable();
        lines
    }

    #[test]
    fn notes_to_oneself_offend_as_whole_words() {
        let text = format!("a\n# {}: b\nmktemp d.XXXXXX\n{}\n", NOTES[0], NOTES[1]);
        assert_eq!(lines(&text_offences("a.md", &text)), [2, 4]);
    }

    #[test]
    fn machine_paths_offend_where_a_path_starts() {
        let [home, root, work, _] = MACHINE_PATHS else { panic!("four directories") };
        let text = format!("cd {home}me\nlet x = \"{root}x\"\nsrc{work}a\n../..{root}b\n");
        assert_eq!(lines(&text_offences("a.py", &text)), [1, 2]);
    }

    #[test]
    fn long_lines_offend_in_programs_only() {
        let text =
            format!("{}\n{}\nsee https://{}\n", "é".repeat(100), "a".repeat(101), "b".repeat(101));
        for program in ["src/a.rs", "bench/a.py", "Makefile", "scripts/setup", ".ci/run"] {
            assert_eq!(lines(&text_offences(program, &text)), [2], "{program}");
        }
        for other in ["README.md", "Cargo.lock", "LICENSE", ".gitignore", "out.json"] {
            assert_eq!(lines(&text_offences(other, &text)), NONE, "{other}");
        }
    }

    #[test]
    fn a_file_without_module_documentation_offends() {
        for text in ["", "use a;\n//! late\n", "/// An item.\nfn f() {}\n", "// plain\nmod a;\n"] {
            assert_eq!(lines(&module_doc_offence("a.rs", text)), [1], "{text}");
        }
        for text in ["//! A.\n", "#![no_main]\n\n//! A.\n", "// Licence.\n//! A.\n"] {
            assert_eq!(lines(&module_doc_offence("a.rs", text)), NONE, "{text}");
        }
    }

    #[test]
    fn unfinished_code_offends_everywhere() {
        let code =
            "fn f() {\n    dbg!(1);\n    todo!()\n}\n#[cfg(test)]\nfn g() { unimplemented!() }\n";
        assert_eq!(lines(&macro_offences("crates/cli/src/a.rs", code)), [2, 3, 6]);
        assert_eq!(lines(&macro_offences("a.rs", "fn todo() { my_dbg!() }")), NONE);
    }

    #[test]
    fn prints_offend_outside_the_command_line_and_tests() {
        let code = "fn f() {\n    println!();\n    eprint!();\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn g() { println!() }\n}\nfn h() { print!() }\n";
        assert_eq!(lines(&macro_offences("crates/gate/src/lib.rs", code)), [2, 3, 9]);
        for permitted in [
            "crates/cli/src/main.rs",
            "crates/gate/tests/model.rs",
            "crates/gate/src/tests.rs",
            "crates/gate/src/queue_test.rs",
            "bench/relay/src/main.rs",
            "crates/wire/fuzz/fuzz_targets/a.rs",
        ] {
            assert_eq!(lines(&macro_offences(permitted, code)), NONE, "{permitted}");
        }
    }

    #[test]
    fn unsafe_offends_outside_the_permitted_places() {
        let code = code_only("#![deny(unsafe_code)]\n// unsafe\nfn f() { unsafe {} }\n");
        assert_eq!(lines(&unsafe_offences("crates/proxy/src/lib.rs", &code)), [3]);
        assert_eq!(lines(&unsafe_offences("bench/relay/src/main.rs", &code)), NONE);
    }

    #[test]
    fn ignored_tests_say_why() {
        let text = "#[ignore]\n#[ignore = \"\"]\n#[cfg_attr(miri, ignore)]\n#[ignore = \"slow\"]\n\
                    #[cfg_attr(miri, ignore = \"sockets\")]\n#[allow(unused)] // ignore\n";
        assert_eq!(lines(&ignore_offences("a.rs", &code_only(text))), [1, 2, 3]);
    }

    #[test]
    fn long_functions_offend_unless_excepted_and_exceptions_expire() {
        let function =
            |name: &str, lines: usize| format!("fn {name}() {{\n{}}}\n", "\n".repeat(lines - 2));
        let code = function("short", 70) + &function("long", 71);
        assert_eq!(lines(&length_offences("a.rs", &code, &[])), [71]);
        assert_eq!(lines(&length_offences("a.rs", &code, &[("b.rs", "long")])), [71]);
        assert_eq!(lines(&length_offences("a.rs", &code, &[("a.rs", "long")])), NONE);
        let expired = [("a.rs", "long"), ("a.rs", "short"), ("a.rs", "gone")];
        assert_eq!(lines(&length_offences("a.rs", &code, &expired)), [1, 1]);
    }

    #[test]
    fn samples_inside_strings_and_comments_do_not_offend() {
        let text = "//! A.\n// dbg!(1) unsafe #[ignore]\nconst S: &str = \"todo!() #[ignore]\";\n";
        assert_eq!(lines(&rust_offences("crates/gate/src/a.rs", text)), NONE);
    }
}
