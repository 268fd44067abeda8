//! `tidegate xml`: stores of documents from load to dump, and what goes wrong.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::symlink;
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::{text, tidegate, wait_until};

/// A directory in which the commands run.
struct Play(TempDir);

impl Play {
    fn new() -> Play {
        Play(tempfile::tempdir().unwrap())
    }

    fn with(files: &[(&str, &str)]) -> Play {
        let play = Play::new();
        for (name, content) in files {
            fs::write(play.0.path().join(name), content).unwrap();
        }
        play
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tidegate(&["xml"]);
        command.args(arguments).current_dir(self.0.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a command that must succeed and returns what it prints.
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail with this exit code, and returns what it says.
    fn fails(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
        said
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

const SHOP: &str = "<shop xmlns:p='urn:p'><item id='a' p:k='1'>one &amp; <b>two</b></item>\
                    <item id='b'><price>7</price></item><!--c--></shop>";

fn shop() -> Play {
    let play = Play::with(&[("shop.xml", SHOP)]);
    play.done(&["load", "s", "shop.xml", "--index", "ids=cas text //@id"]);
    play
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn a_document_is_loaded_queried_updated_checked_and_dumped() {
    let play = shop();
    let query = |expression: &str| play.done(&["query", "s", "shop.xml", expression]);
    assert_eq!(query("//item[@id = 'b']/price"), "<price xmlns:p=\"urn:p\">7</price>\n");
    assert_eq!(query("//item/@id"), "id=\"a\"\nid=\"b\"\n");
    assert_eq!(query("sum(//price) div 2"), "3.5\n");
    assert_eq!(query("//price > 6"), "true\n");
    assert_eq!(query("string(//b)"), "two\n");
    assert_eq!(query("//nothing"), "");

    let update = |change: &[&str]| play.done(&[&["update", "s", "shop.xml"], change].concat());
    assert_eq!(update(&["delete", "//item", "--dry-run"]).lines().count(), 1);
    update(&["insert", "last", "/shop", "<item id='c'/>"]);
    update(&["insert", "first", "//item[@id = 'c']", "a < b", "--text"]);
    update(&["set-value", "//price", "8"]);
    update(&["set-attribute", "//item[@id = 'b']", "p:new", "x"]);
    update(&["--ns", "q=urn:p", "remove-attribute", "//item[@q:k]", "q:k"]);
    update(&["rename", "//b", "strong"]);
    update(&["move", "//item[@id = 'c']", "before", "/shop/item[1]"]);
    let deleted = update(&["delete", "//comment()", "--format", "json"]);
    assert_eq!(
        json(&deleted),
        serde_json::json!({"document": "shop.xml", "matched": 1, "changed": 1, "dry_run": false})
    );
    assert_eq!(play.done(&["check", "s"]).lines().count(), 1);
    let expected = "<shop xmlns:p=\"urn:p\"><item id=\"c\">a &lt; b</item><item id=\"a\">\
                    one &amp; <strong>two</strong></item><item id=\"b\" p:new=\"x\">\
                    <price>8</price></item></shop>";
    assert_eq!(play.done(&["dump", "s", "shop.xml", "--canonical"]), expected);
    play.done(&["dump", "s", "shop.xml", "--output", "out.xml"]);
    play.done(&["load", "s", "out.xml", "--virtual-inner-nodes"]);
    assert_eq!(play.done(&["dump", "s", "out.xml", "--canonical"]), expected);
    assert_eq!(play.names(), ["out.xml", "s", "shop.xml"], "no temporary file is left");
}

#[test]
fn several_documents_are_a_collection() {
    let play = Play::with(&[("1.xml", "<a>1</a>"), ("2.xml", "<a>2</a><!--x-->"), ("3", "<b/>")]);
    play.done(&["load", "s", "--into", "c", "1.xml", "2.xml"]);
    play.done(&["load", "s", "3", "--name", "odd \"name\" ä"]);
    assert_eq!(play.done(&["list", "s"]), "c/1.xml\nc/2.xml\nodd \"name\" ä\n");
    assert_eq!(play.done(&["list", "s", "c/"]), "c/1.xml\nc/2.xml\n");
    assert_eq!(play.done(&["query", "s", "c/", "/a"]), "<a>1</a>\n<a>2</a>\n");
    assert_eq!(play.done(&["query", "s", "c/", "number(/a)"]), "c/1.xml\t1\nc/2.xml\t2\n");
    assert_eq!(play.done(&["query", "s", "/", "count(//*) = 1"]).lines().count(), 3);
    play.done(&["index", "create", "s", "c/", "names", "name"]);
    assert_eq!(play.done(&["index", "list", "s"]), "c/1.xml\tnames\tname\nc/2.xml\tnames\tname\n");
    play.done(&["index", "drop", "s", "c/1.xml", "names"]);
    assert!(play.fails(1, &["index", "drop", "s", "c/1.xml", "names"]).contains("no index"));
    play.done(&["update", "s", "c/", "set-value", "/a", "9"]);
    assert_eq!(play.done(&["query", "s", "c/", "/a", "--value"]), "9\n9\n");
    assert_eq!(play.done(&["drop", "s", "c/"]), "dropped c/1.xml\ndropped c/2.xml\n");
    assert!(play.fails(1, &["query", "s", "c/", "/a"]).contains("begins with \"c/\""));
    assert!(play.fails(1, &["drop", "s", "c/1.xml"]).contains("tidegate xml list"));
}

#[test]
fn answers_in_json_have_one_object_a_line() {
    let play = shop();
    let query = |expression: &str, more: &[&str]| {
        let command = ["query", "s", "shop.xml", expression, "--format", "json"];
        let lines = play.done(&[&command[..], more].concat());
        lines.lines().map(json).collect::<Vec<_>>()
    };
    let nodes = query("//item[2]/price | //@id", &[]);
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes[0]["kind"], "attribute");
    assert_eq!(nodes[0]["xml"], "id=\"a\"");
    assert_eq!(nodes[2]["path"], "/shop/item/price");
    assert_eq!(nodes[2]["document"], "shop.xml");
    assert!(nodes[2]["node"].as_str().unwrap().starts_with("1."));
    assert_eq!(query("//price", &["--value"])[0]["value"], "7");
    assert_eq!(query("//item", &["--count"])[0]["count"], 2);
    assert_eq!(query("2 + 2", &[])[0]["number"], 4);
    assert_eq!(query("1 div 0", &[])[0]["number"], "Infinity");
    assert_eq!(query("1 = 1", &[])[0]["boolean"], true);
    assert_eq!(query("'\"'", &[])[0]["string"], "\"");
    let limited = play.run(&["query", "s", "shop.xml", "//item", "--limit", "1", "--value"]);
    assert_eq!(text(&limited.stdout), "one & two\n");
    assert!(text(&limited.stderr).contains("there are more"));
    let whole = play.run(&["query", "s", "shop.xml", "//item", "--limit", "2", "--value"]);
    assert_eq!(text(&whole.stderr), "");

    let explain = ["explain", "s", "shop.xml", "//item[@id = 'a']", "--format", "json"];
    let lines: Vec<_> = play.done(&explain).lines().map(json).collect();
    assert!(lines.iter().any(|line| line["index"] == "ids (cas text //@id)"), "{lines:?}");
    let walk = play.done(&["explain", "s", "shop.xml", "//item[@id = 'a']", "--no-indexes"]);
    assert!(!walk.contains("ids"), "{walk}");
    let figures = json(&play.done(&["stat", "s", "--format", "json"]));
    assert_eq!(figures["nodes"]["elements"], 5);
    assert_eq!(figures["indexes"][0]["tree"]["entries"], 2);
    assert_eq!(json(&play.done(&["check", "s", "--format", "json"]))["problems"], 0);
}

#[test]
fn wrong_input_is_refused_with_what_to_do() {
    let play = shop();
    fs::write(play.0.path().join("bad.xml"), "<a>\n  <b></a>").unwrap();
    fs::write(play.0.path().join("empty.xml"), "").unwrap();
    fs::create_dir(play.0.path().join("folder")).unwrap();
    fs::write(play.0.path().join("folder/letter"), "x").unwrap();
    let deep = "<a>".repeat(600) + &"</a>".repeat(600);
    fs::write(play.0.path().join("deep.xml"), deep).unwrap();
    let cases: [(i32, &[&str], &str); 29] = [
        (2, &["load", "s", "shop.xml", "--into", ""], "a collection has a name"),
        (2, &["load", "s", "shop.xml", "--into", "/"], "a collection has a name"),
        (1, &["load", "s", "deep.xml"], "deep.xml: line 1, column"),
        (1, &["load", "s", "deep.xml"], "by --label-max BYTES, up to 1000; it is not loaded"),
        (1, &["load", "t", "deep.xml", "--limit", "depth=500"], "by --limit depth=N; it is not"),
        (2, &["load", "t", "deep.xml", "--limit", "width=500"], "there is no limit width"),
        (1, &["update", "s", "shop.xml", "set-attribute", "//b", "xmlns", "u"], "is no attribute"),
        (1, &["load", "s", "bad.xml"], "bad.xml: line 2, column 6"),
        (1, &["load", "s", "empty.xml"], "the document ends before its root element"),
        (1, &["load", "s", "folder"], "it is a directory; name the files in it"),
        (1, &["load", "s", "missing.xml"], "missing.xml: No such file"),
        (1, &["load", "s", "shop.xml"], "choose another name or drop that one"),
        (2, &["load", "s", "-"], "standard input needs --name NAME"),
        (2, &["load", "s", "shop.xml", "bad.xml", "--name", "x"], "for a single file"),
        (2, &["load", "s", "shop.xml", "--index", "x=tree"], "the first word is name, path"),
        (1, &["load", "folder", "shop.xml"], "name a new or an empty directory"),
        (1, &["load", "shop.xml", "bad.xml"], "shop.xml is a file; a store is a directory"),
        (1, &["query", "shop.xml", "s", "//a"], "shop.xml is a file; a store is a directory"),
        (1, &["query", "none", "shop.xml", "//a"], "`tidegate xml load` makes one"),
        (1, &["query", "folder", "shop.xml", "//a"], "there is no store in folder"),
        (1, &["query", "s", "none", "//a"], "there is no document \"none\"; load it first"),
        (2, &["query", "s", "shop.xml", "//a["], "at byte 4: expected a step"),
        (2, &["query", "s", "shop.xml", "//q:a"], "add it to the prefixes by --ns PREFIX=URI"),
        (2, &["query", "s", "shop.xml", "//a", "--ns", "q"], "expected a name, =, and a value"),
        (2, &["query", "s", "shop.xml", "1", "--count"], "this one is a number"),
        (1, &["update", "s", "shop.xml", "delete", "/shop"], "a document keeps its root element"),
        (1, &["update", "s", "shop.xml", "insert", "last", "//b", "<x>"], "line 1, column 4"),
        (1, &["update", "s", "shop.xml", "rename", "//b", "z:b"], "is not bound to a namespace"),
        (
            2,
            &["update", "s", "shop.xml", "move", "//b", "last", "//item"],
            "finds 2 nodes; name one destination",
        ),
    ];
    for (code, arguments, expected) in cases {
        let said = play.fails(code, arguments);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
    assert_eq!(fs::read_dir(play.0.path().join("folder")).unwrap().count(), 1);
    assert_eq!(play.done(&["list", "s"]), "shop.xml\n");
    play.done(&["load", "t", "deep.xml", "--limit", "depth=600", "--label-max", "1000"]);
    assert_eq!(play.done(&["query", "t", "deep.xml", "count(//a)"]), "600\n");
    assert_eq!(play.done(&["dump", "s", "shop.xml", "//b"]), "<b xmlns:p=\"urn:p\">two</b>\n");
}

#[test]
fn of_several_files_the_good_ones_are_loaded() {
    let play = Play::with(&[("1.xml", "<a/>"), ("2.xml", "<a>"), ("3.xml", "<a/>")]);
    let output = play.run(&["load", "s", "1.xml", "2.xml", "3.xml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<_> = text(&output.stdout).lines().map(json).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines[1]["error"].as_str().unwrap().contains("line 1"), "{lines:?}");
    assert_eq!(lines[2]["nodes"], 1);
    assert_eq!(play.done(&["list", "s"]), "1.xml\n3.xml\n");
}

/// A load from a pipe that stays open.
fn waiting_load(play: &Play) -> std::process::Child {
    let load = ["load", "s", "-", "--name", "slow", "--index", "n=name"];
    let mut child = play.command(&load).stdin(Stdio::piped()).spawn().unwrap();
    let input = child.stdin.as_mut().unwrap();
    input.write_all(b"<a>").unwrap();
    input.write_all("<b>text</b>".repeat(200_000).as_bytes()).unwrap();
    child
}

#[test]
fn an_interrupted_load_leaves_nothing() {
    let play = shop();
    let mut child = waiting_load(&play);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("interrupted; nothing of \"slow\" is stored"), "{said}");
    // The program has ended while the pipe was open.
    let _ = input.write_all(b"</a>");
    assert_eq!(play.done(&["list", "s"]), "shop.xml\n");
    assert_eq!(play.done(&["check", "s"]).lines().count(), 1);
    play.done(&["update", "s", "shop.xml", "delete", "//b"]);
}

#[test]
fn a_store_in_use_is_left_to_the_one_who_uses_it() {
    let play = shop();
    let child = waiting_load(&play);
    let query = ["query", "s", "shop.xml", "//b"];
    // The load has opened the store when it takes more than a pipe holds.
    wait_until("the store is in use", || !play.run(&query).status.success());
    for arguments in [&query[..], &["load", "s", "shop.xml", "--name", "x"], &["check", "s"]] {
        let said = play.fails(1, arguments);
        assert!(said.contains("is open already") && said.contains("fuser"), "{said}");
    }
    let output = {
        let mut child = child;
        child.stdin.take().unwrap().write_all(b"</a>").unwrap();
        child.wait_with_output().unwrap()
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    let count = ["query", "s", "slow", "//b", "--count"];
    assert_eq!(play.done(&count), "200000\n");
}

#[test]
fn a_reader_that_leaves_ends_the_query() {
    let play = Play::with(&[("d.xml", &format!("<a>{}</a>", "<b>text</b>".repeat(50_000)))]);
    play.done(&["load", "s", "d.xml"]);
    for arguments in [&["query", "s", "d.xml", "//b"][..], &["dump", "s", "d.xml"]] {
        let mut child = play.command(arguments).spawn().unwrap();
        let mut output = BufReader::with_capacity(64, child.stdout.take().unwrap());
        let mut line = String::new();
        output.get_mut().take(8).read_to_string(&mut line).unwrap();
        drop(output);
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stderr), "");
        assert_eq!(output.status.code(), Some(0), "{line}");
    }
}

#[test]
fn output_files_are_whole_or_not_there() {
    let play = shop();
    fs::create_dir(play.0.path().join("folder")).unwrap();
    let to = |path: &str| play.run(&["dump", "s", "shop.xml", "--output", path]);
    let output = to("folder");
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("folder is a directory; name a file in it"));
    assert_eq!(to("none/out.xml").status.code(), Some(1));
    fs::write(play.0.path().join("out.xml"), "old").unwrap();
    // An expression that fails while it is written leaves the old file.
    let failing = ["dump", "s", "shop.xml", "//@id", "--canonical", "--output", "out.xml"];
    assert!(play.fails(2, &failing).contains("leave out --canonical"));
    assert_eq!(fs::read_to_string(play.0.path().join("out.xml")).unwrap(), "old");
    assert!(to("out.xml").status.success());
    assert!(fs::read_to_string(play.0.path().join("out.xml")).unwrap().starts_with("<?xml"));
    assert_eq!(text(&to("-").stdout), fs::read_to_string(play.0.path().join("out.xml")).unwrap());
    symlink("/dev/full", play.0.path().join("full")).unwrap();
    let output = to("full");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No space left"), "{}", text(&output.stderr));
    assert_eq!(play.names(), ["folder", "full", "out.xml", "s", "shop.xml"]);
}

#[test]
fn generated_documents_are_the_same_for_the_same_seed() {
    let play = Play::new();
    let first = play.done(&["generate", "--factor", "0.001", "--seed", "5"]);
    play.done(&["generate", "--factor", "0.001", "--seed", "5", "--output", "site.xml"]);
    assert_eq!(fs::read_to_string(play.0.path().join("site.xml")).unwrap(), first);
    assert!(play.fails(2, &["generate", "--factor", "0"]).contains("above 0"));
    play.done(&["load", "s", "site.xml", "--index", "names=name", "--index", "all=content text"]);
    let people = ["query", "s", "site.xml", "count(//person)"];
    assert_eq!(play.done(&people), play.done(&[&people[..], &["--no-indexes"]].concat()));
}

#[test]
fn help_has_examples_and_the_shape_of_json() {
    let play = Play::new();
    for (command, word) in [
        (&["--help"][..], "a name that ends in / stands for the collection"),
        (&["load", "--help"], "zcat site.xml.gz"),
        (&["query", "--help"], "JSON has one object a line"),
        (&["update", "--help"], "one transaction"),
        (&["index", "create", "--help"], "cas text|number [PATH...]"),
    ] {
        let help = play.done(command);
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains(word), "{command:?}: {help}");
    }
    let lines = BufReader::new(&*play.run(&["query"]).stderr).lines().count();
    assert!(lines > 1);
}

/// The protocol of a store is exchanged while transactions run on it, and kept.
#[test]
fn a_protocol_is_exchanged_under_load() {
    let play = Play::new();
    play.done(&["generate", "--factor", "0.002", "--output", "site.xml"]);
    let indexes = ["--index", "names=name", "--index", "ids=cas text //@id"];
    play.done(&[&["load", "shop", "site.xml"][..], &indexes].concat());
    assert_eq!(play.done(&["protocol", "shop"]), "document\n");
    assert_eq!(play.done(&["protocol", "shop", "mgl/3"]), "MGL/3\n");
    assert_eq!(play.done(&["protocol", "shop"]), "MGL/3\n");
    let said = play.fails(2, &["protocol", "shop", "taDOM9"]);
    assert!(said.contains("taDOM3+"), "{said}");
    let mut load =
        play.command(&["xmark", "shop", "site.xml", "--clients", "3", "--seconds", "600"]);
    let mut load = load.spawn().unwrap();
    let mut lines = BufReader::new(load.stdout.take().unwrap()).lines();
    let mut until = |protocol: &str| {
        let found = lines.by_ref().find(|line| line.as_ref().unwrap().ends_with(protocol));
        found.unwrap().unwrap()
    };
    until("MGL/3");
    for protocol in ["taDOM3+", "X", "taDOM3+/2/aggressive"] {
        assert_eq!(play.done(&["protocol", "shop", protocol]), format!("{protocol}\n"));
        assert_eq!(play.done(&["protocol", "shop"]), format!("{protocol}\n"));
        until(protocol);
        let line = until(protocol);
        let committed: u64 = line.split_whitespace().nth(4).unwrap().parse().unwrap();
        assert!(committed > 0, "{line}");
    }
    let said = play.fails(1, &["update", "shop", "site.xml", "delete", "//mail"]);
    assert!(said.contains("open"), "{said}");
    kill_process(Pid::from_child(&load), Signal::INT).unwrap();
    let consistent = until("conditions");
    assert!(consistent.starts_with("the document is consistent"), "{consistent}");
    assert!(load.wait().unwrap().success());
    assert_eq!(play.done(&["protocol", "shop"]), "taDOM3+/2/aggressive\n");
    let left = fs::read_dir(play.0.path().join("shop")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name == "locking.socket"), "{left:?}");
}
