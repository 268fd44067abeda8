//! The arrows of ARCHITECTURE.md against the dependencies in the manifests.
//!
//! The document holds one block fenced as `arrows`, one line for each room:
//!
//! ```text
//! proxy -> gate, wire     proxy may depend on gate and wire, and does
//! wire -> nothing
//! cli -> everything       any room but itself
//! tests -> subject        any room's tests may use subject as well
//! nothing -> cli          no line may name cli on its right
//! ```
//!
//! An arrow that no manifest has is an offence too: the map shows what is built.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Offence;

const DOCUMENT: &str = "ARCHITECTURE.md";

/// A crate of the workspace, named like its directory.
#[derive(Debug, Default)]
pub(crate) struct Room {
    name: String,
    /// Rooms it is built on.
    builds_on: BTreeSet<String>,
    /// Rooms that only its tests use.
    tests_use: BTreeSet<String>,
}

/// The rooms in the output of `cargo metadata`.
pub(crate) fn rooms(metadata: &Value) -> Vec<Room> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.map(room).collect()
}

fn room(package: &Value) -> Room {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let directory = manifest.trim_end_matches("/Cargo.toml");
    let mut room = Room { name: last_part(directory), ..Room::default() };
    for dependency in package["dependencies"].as_array().into_iter().flatten() {
        // Only crates of the workspace are found by path.
        let Some(path) = dependency["path"].as_str() else {
            continue;
        };
        let tests_only = dependency["kind"].as_str() == Some("dev");
        let uses = if tests_only { &mut room.tests_use } else { &mut room.builds_on };
        uses.insert(last_part(path));
    }
    room
}

fn last_part(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).into()
}

/// The map: for each left side its line and its right sides.
type Map = BTreeMap<String, (usize, BTreeSet<String>)>;

/// Reads the lines of the block fenced as `arrows`; the error is the line that cannot be read.
fn map(document: &str) -> Result<Map, Offence> {
    let lines = document.lines().zip(1..).skip_while(|(line, _)| *line != "```arrows").skip(1);
    let mut map = Map::new();
    for (text, line) in lines.take_while(|(line, _)| *line != "```") {
        let sides = text.split_once("->");
        let (left, right) = sides.ok_or_else(|| at(line, format!("not an arrow: `{text}`")))?;
        let right = right.split(',').map(|room| room.trim().to_owned()).collect();
        if map.insert(left.trim().to_owned(), (line, right)).is_some() {
            return Err(at(line, format!("second line for `{}`", left.trim())));
        }
    }
    if map.is_empty() {
        return Err(at(1, "no block fenced as `arrows`".into()));
    }
    Ok(map)
}

fn at(line: usize, what: String) -> Offence {
    Offence::new(DOCUMENT, line, what)
}

/// Where the map in `document` and the `rooms` as built disagree.
pub(crate) fn offences(document: &str, rooms: &[Room]) -> Vec<Offence> {
    let mut map = match map(document) {
        Ok(map) => map,
        Err(unreadable) => return vec![unreadable],
    };
    let nobody_uses = map.remove("nothing").unwrap_or_default();
    let tests_may_use = map.remove("tests").unwrap_or_default().1;
    let mut found = Vec::new();
    for (left, (line, right)) in &map {
        for forbidden in right.intersection(&nobody_uses.1) {
            found.push(at(*line, format!("{left} -> {forbidden}, but nothing -> {forbidden}")));
        }
        if !rooms.iter().any(|room| room.name == *left) {
            found.push(at(*line, format!("there is no room `{left}`")));
        }
    }
    for room in rooms {
        match map.get(&room.name) {
            Some((line, right)) => {
                found.extend(undocumented(room, right, &tests_may_use, &nobody_uses.1));
                found.extend(unbuilt(room, right).into_iter().map(|what| at(*line, what)));
            }
            None => found.push(at(1, format!("no arrow starts at the room `{}`", room.name))),
        }
    }
    found
}

/// Dependencies that the map does not allow.
fn undocumented(
    room: &Room,
    right: &BTreeSet<String>,
    tests_may_use: &BTreeSet<String>,
    nobody_uses: &BTreeSet<String>,
) -> Vec<Offence> {
    let allowed = |to: &String| {
        right.contains(to) || (right.contains("everything") && !nobody_uses.contains(to))
    };
    let built = room.builds_on.iter().filter(|to| !allowed(to));
    let tested = room.tests_use.iter().filter(|to| !allowed(to) && !tests_may_use.contains(*to));
    let manifest = format!("crates/{}/Cargo.toml", room.name);
    built
        .chain(tested)
        .map(|to| {
            let what = format!("{} -> {to} is not an arrow of {DOCUMENT}", room.name);
            Offence::new(&manifest, 1, what)
        })
        .collect()
}

/// Arrows that no manifest has.
fn unbuilt(room: &Room, right: &BTreeSet<String>) -> Vec<String> {
    right
        .iter()
        .filter(|to| !["everything", "nothing"].contains(&to.as_str()))
        .filter(|to| !room.builds_on.contains(*to))
        .map(|to| format!("{} -> {to} is not in the manifest", room.name))
        .collect()
}

#[cfg(test)]
mod samples {
    //! Small maps and workspaces that disagree in each possible way.

    use super::*;

    const MAP: &str = "# Title\n```arrows\na -> nothing\nb -> a\nc -> everything\ntests -> b\n\
                       nothing -> c\n```\n";

    fn workspace(uses: &[(&str, &str, &str)]) -> Vec<Room> {
        let package = |name: &str| {
            let mut dependencies = Vec::new();
            for (_, to, kind) in uses.iter().filter(|(from, ..)| *from == name) {
                let path = format!("x/crates/{to}");
                dependencies.push(serde_json::json!({"path": path, "kind": kind}));
            }
            let manifest = format!("x/crates/{name}/Cargo.toml");
            serde_json::json!({"manifest_path": manifest, "dependencies": dependencies})
        };
        let packages = ["a", "b", "c"].map(package);
        rooms(&serde_json::json!({"packages": packages}))
    }

    fn disagreements(map: &str, uses: &[(&str, &str, &str)]) -> Vec<String> {
        offences(map, &workspace(uses)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_true_map_has_no_offence() {
        let uses = [("b", "a", ""), ("c", "a", ""), ("c", "b", "build"), ("a", "b", "dev")];
        assert_eq!(disagreements(MAP, &uses), [""; 0]);
    }

    #[test]
    fn an_arrow_against_the_map_offends() {
        let uses = [("b", "a", ""), ("a", "b", ""), ("b", "c", "dev"), ("c", "c", "")];
        let expected = [
            "crates/a/Cargo.toml:1: a -> b is not an arrow of ARCHITECTURE.md",
            "crates/b/Cargo.toml:1: b -> c is not an arrow of ARCHITECTURE.md",
            "crates/c/Cargo.toml:1: c -> c is not an arrow of ARCHITECTURE.md",
        ];
        assert_eq!(disagreements(MAP, &uses), expected);
    }

    #[test]
    fn an_arrow_that_is_not_built_offends() {
        let expected = ["ARCHITECTURE.md:4: b -> a is not in the manifest"];
        assert_eq!(disagreements(MAP, &[("b", "a", "dev")]), expected);
    }

    #[test]
    fn rooms_on_one_side_only_offend() {
        let map = MAP.replace("a -> nothing", "d -> nothing");
        let expected = [
            "ARCHITECTURE.md:3: there is no room `d`",
            "ARCHITECTURE.md:1: no arrow starts at the room `a`",
        ];
        assert_eq!(disagreements(&map, &[("b", "a", "")]), expected);
    }

    #[test]
    fn a_map_that_contradicts_itself_offends() {
        let map = MAP.replace("b -> a", "b -> a, c");
        let expected = "ARCHITECTURE.md:4: b -> c, but nothing -> c";
        assert_eq!(disagreements(&map, &[("b", "a", ""), ("b", "c", "")]), [expected]);
    }

    #[test]
    fn an_unreadable_map_offends() {
        let one = |map: &str| disagreements(map, &[]).join("");
        assert_eq!(one("a -> b"), "ARCHITECTURE.md:1: no block fenced as `arrows`");
        assert_eq!(one("```arrows\na b\n```"), "ARCHITECTURE.md:2: not an arrow: `a b`");
        assert_eq!(one("```arrows\na -> b\na -> c\n```"), "ARCHITECTURE.md:3: second line for `a`");
    }
}
