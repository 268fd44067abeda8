//! One situation, one script: `tests/locks/scenarios/*.txt`.
//!
//! A line that begins with `>` is a move, the lines under it are what came of it: who was answered
//! what, and then every locked resource with its holders, and behind `;` the queue. `S>X` is a
//! conversion that waits. The rest is commentary. With `UPDATE_SCENARIOS=1` in the environment the
//! scripts are written anew; read the difference before you keep it.
//!
//! ```text
//! table [SETTING ..]                   an empty lock table; settings are
//!                                        check: look for deadlocks when a request blocks
//!                                        priorities: preempt on wait
//!                                        youngest, lowest: the victim
//!                                        escalate: a/1 is part of a, at most 2 parts are locked
//! enter NAME [PRIORITY]                a transaction begins
//! NAME lock RESOURCE MODE              and waits if it must
//! NAME briefly RESOURCE MODE           the same, with a timeout of no time
//! NAME try RESOURCE MODE               and does not wait
//! NAME instant RESOURCE MODE           lock of instant duration
//! NAME unlock RESOURCE                 give one back
//! NAME release                         give all back
//! detect                               look for deadlocks
//! count                                statistics
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use tidegate_engine::lock::multi_granularity::{IS, IX, S, SIX};
use tidegate_engine::lock::{
    Escalation, Hierarchy, LockManager, LockRequest, LockSettings, Mode, ModeTable, Priorities,
    Priority, Victim,
};

use crate::stage::{Answer, Command, Name, Stage};

struct Script {
    stage: Stage,
    names: Vec<String>,
}

impl Script {
    fn new(settings: &[&str], has_wholes: bool) -> Script {
        let mut set = LockSettings { timeout: None, ..LockSettings::default() };
        let mut escalates = false;
        for setting in settings {
            match *setting {
                "check" => set.check_on_block = true,
                "priorities" => set.priorities = Priorities::PreemptOnWait,
                "youngest" => set.victim = Victim::Youngest,
                "lowest" => set.victim = Victim::LowestPriority,
                "escalate" => escalates = true,
                _ => panic!("no such setting: {setting}"),
            }
        }
        let modes = ModeTable::multi_granularity();
        let manager = if escalates || has_wholes {
            let escalation = escalates.then(escalation);
            LockManager::with_hierarchy(modes, set, Hierarchy { is_whole: |_| true, escalation })
        } else {
            LockManager::new(modes, set)
        };
        Script { stage: Stage::new(manager), names: Vec::new() }
    }

    /// Makes one move and tells what came of it.
    fn make(&mut self, words: &[&str]) -> String {
        let (answers, actor) = match *words {
            ["enter", name] => return self.enter(name, 0),
            ["enter", name, priority] => {
                return self.enter(name, priority.parse().expect("a priority"));
            }
            ["count"] => return self.count(),
            ["detect"] => (self.stage.break_deadlocks(), None),
            [name, ref command @ ..] => {
                let actor = self.name(name);
                (self.stage.tell(actor, self.command(command)), Some(actor))
            }
            [] => panic!("no move"),
        };
        self.tell(&answers, actor) + &self.queues()
    }

    fn enter(&mut self, name: &str, priority: u8) -> String {
        self.stage.enter(Priority(priority));
        self.names.push(name.into());
        String::new()
    }

    fn name(&self, name: &str) -> Name {
        let known = self.names.iter().position(|known| known == name);
        known.unwrap_or_else(|| panic!("{name} has not entered"))
    }

    fn command(&self, words: &[&str]) -> Command {
        match *words {
            ["release"] => Command::Release,
            ["unlock", resource] => Command::Unlock(resource.into()),
            ["lock", resource, mode] => Command::Lock(resource.into(), self.mode(mode)),
            ["briefly", resource, mode] => Command::LockBriefly(resource.into(), self.mode(mode)),
            ["try", resource, mode] => Command::Try(resource.into(), self.mode(mode)),
            ["instant", resource, mode] => Command::Instant(resource.into(), self.mode(mode)),
            _ => panic!("no such move: {words:?}"),
        }
    }

    fn mode(&self, name: &str) -> Mode {
        let mode = self.stage.manager.modes().mode(name);
        mode.unwrap_or_else(|| panic!("no mode {name}"))
    }

    fn tell(&self, answers: &BTreeMap<Name, Answer>, actor: Option<Name>) -> String {
        let mut told = String::new();
        if let Some(actor) = actor.filter(|actor| !answers.contains_key(actor)) {
            writeln!(told, "{} waits", self.names[actor]).expect("a string takes everything");
        }
        for (name, answer) in answers {
            let answer = match answer {
                Answer::Granted => "granted",
                Answer::Refused => "refused",
                Answer::Released => "released",
                Answer::Deadlock => "deadlock",
                Answer::TimedOut => "timed out",
                Answer::Preempted => "preempted",
            };
            writeln!(told, "{} {answer}", self.names[*name]).expect("a string takes everything");
        }
        told
    }

    fn queues(&self) -> String {
        let mut queues = self.stage.manager.dump();
        queues.sort_by(|one, other| one.resource.cmp(&other.resource));
        queues.iter().fold(String::new(), |mut told, queue| {
            assert_eq!(self.stage.manager.queue(&queue.resource), *queue);
            let granted = self.requests(&queue.granted);
            let waiting = self.requests(&queue.waiting);
            let then = if waiting.is_empty() { "" } else { "; " };
            writeln!(told, "    {}: {granted}{then}{waiting}", queue.resource)
                .expect("a string takes everything");
            told
        })
    }

    fn requests(&self, requests: &[LockRequest]) -> String {
        let modes = self.stage.manager.modes();
        let told = requests.iter().map(|request| {
            let is_asking = |name: &Name| self.stage.id(*name) == request.locker;
            let name = (0..self.names.len()).find(is_asking).expect("somebody of the script");
            let from = request.converts.map(|held| format!("{}>", modes.name(held)));
            let (from, mode) = (from.unwrap_or_default(), modes.name(request.mode));
            format!("{} {from}{mode}", self.names[name])
        });
        told.collect::<Vec<String>>().join(", ")
    }

    fn count(&self) -> String {
        let seen = self.stage.manager.statistics();
        format!(
            "requests {}, waits {}, deadlocks {}, timeouts {}, preemptions {}, escalations {}\n\
             held {}, {} of them by who waits, {} waiting, conflict ratio {:.2}\n",
            seen.requests,
            seen.waits,
            seen.deadlocks,
            seen.timeouts,
            seen.preemptions,
            seen.escalations,
            seen.held,
            seen.held_by_waiting,
            seen.waiting,
            seen.conflict_ratio(),
        )
    }
}

/// `a/1` is a part of `a`.
fn escalation() -> Escalation<String> {
    Escalation {
        parent: Box::new(|resource: &String| {
            let (whole, _) = resource.rsplit_once('/')?;
            Some(whole.into())
        }),
        parts_max: Box::new(|_, _| 2),
        covering: Box::new(|mode| match mode {
            IS => S,
            IX | SIX => tidegate_engine::lock::multi_granularity::X,
            mode => mode,
        }),
        above: Box::new(|_| None),
        counts_repeats: false,
    }
}

/// The script as it should read: its own commentary and moves, with what came of each. Where
/// all resources are wholes, intention locks are kept elsewhere, and nobody should see it.
fn play(text: &str, has_wholes: bool) -> String {
    let mut script = None;
    let mut played = String::new();
    for line in text.lines() {
        let Some(step) = line.strip_prefix('>') else {
            if line.starts_with('#') || line.is_empty() {
                played.extend([line, "\n"]);
            }
            continue;
        };
        let words: Vec<&str> = step.split_whitespace().collect();
        let said = if let ["table", ref settings @ ..] = words[..] {
            if let Some(Script { stage, .. }) = script.replace(Script::new(settings, has_wholes)) {
                stage.clear();
            }
            String::new()
        } else {
            let script = script.as_mut().expect("a script begins with `> table`");
            script.make(&words)
        };
        played.extend([line, "\n", &said]);
    }
    if let Some(Script { stage, .. }) = script {
        stage.clear();
    }
    played
}

/// What was played, with those who hold a resource in no order: intention locks on wholes have
/// none.
fn unordered(played: &str) -> Vec<Vec<&str>> {
    let words = |line| {
        let (granted, waiting) = str::split_once(line, ';').unwrap_or((line, ""));
        let mut words: Vec<&str> = granted.split(", ").flat_map(|part| part.split(": ")).collect();
        words.sort_unstable();
        words.push(waiting);
        words
    };
    played.lines().map(words).collect()
}

#[test]
fn every_script_plays_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/scenarios");
    let files = std::fs::read_dir(directory).expect("the scripts are beside this file");
    let mut differing = Vec::new();
    let mut count = 0;
    for file in files {
        let path = file.expect("the directory can be read").path();
        let written = std::fs::read_to_string(&path).expect("a script can be read");
        let played = play(&written, false);
        let with_wholes = play(&written, true);
        assert_eq!(unordered(&with_wholes), unordered(&played), "{} with wholes", path.display());
        if std::env::var_os("UPDATE_SCENARIOS").is_some() {
            std::fs::write(&path, played).expect("a script can be written");
        } else if played != written {
            differing.push(format!("{}, played:\n{played}", path.display()));
        }
        count += 1;
    }
    assert!(count > 0, "no scripts");
    assert!(differing.is_empty(), "{}", differing.join("\n"));
}
