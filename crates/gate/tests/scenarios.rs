//! One situation, one script: `tests/scenarios/*.txt`.
//!
//! A line that begins with `>` is a move, the lines under it are what came of it, and the rest is
//! commentary. After each move the script shows permits out, the limit and the queue. With
//! `UPDATE_SCENARIOS=1` in the environment the scripts are written anew; read the difference before
//! you keep it.
//!
//! ```text
//! gate LIMIT WAITING_MAX [MPL_MAX]     a gate; without MPL_MAX it is LIMIT, so that nothing is
//!                                      discounted and nobody let in for a permit that is lent
//! at MS                                the time is now MS milliseconds
//! request NAME high|normal [until MS]  ask for a permit
//! claim NAME                           take the permit, if the gate has granted it
//! finish NAME completed|failed         give the permit back
//! next NAME completed|failed           begin the next transaction under the permit
//! begin NAME                           NAME begins to work only now
//! lend NAME                            NAME's client is idle: its permit counts no longer
//! aside NAME                           NAME has no connection: its permit counts for nothing
//! connections COUNT                    there may be so many connections
//! resume NAME                          NAME's client goes on
//! refused COUNT                        the server gives no connection to COUNT permits
//! drop NAME                            drop what NAME holds, permit or ticket
//! panic NAME                           panic while NAME's permit is held
//! limit LIMIT                          change the limit
//! expire                               let deadlines pass
//! discount                             let overdue permits count no longer
//! totals                               counters since the start
//! observe                              end the interval
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tidegate_control::{Mpl, Timing};
use tidegate_gate::{Admission, Claim, Class, Gate, Limits, Outcome, Permit, Request};
use tidegate_gate::{Ticket, Waker};

enum Held {
    Ticket(Ticket),
    Permit(Permit),
}

struct Script {
    gate: Gate,
    held: BTreeMap<String, Held>,
    /// Everybody who ever asked; the position is the token.
    names: Vec<String>,
    waker: Waker,
    woken: Arc<Mutex<Vec<u64>>>,
    start: Instant,
    now: Instant,
}

impl Script {
    fn new(limit: u32, waiting_max: usize, mpl_max: u32) -> Script {
        let now = Instant::now();
        let woken = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&woken);
        let mpl = Mpl::at_least_one(limit);
        Script {
            gate: Gate::new(Limits { mpl, mpl_max: Mpl::at_least_one(mpl_max), waiting_max }, now),
            held: BTreeMap::new(),
            names: Vec::new(),
            waker: Arc::new(move |token| heard.lock().expect("no waker panics").push(token)),
            woken,
            start: now,
            now,
        }
    }

    /// Makes one move and tells what came of it.
    fn make(&mut self, words: &[&str]) -> String {
        let said = match *words {
            ["at", ms] => {
                self.now = self.time(ms);
                return String::new();
            }
            ["request", name, class] => self.request(name, class, None),
            ["request", name, class, "until", ms] => self.request(name, class, Some(self.time(ms))),
            ["claim", name] => self.claim(name),
            ["finish", name, outcome] => {
                self.permit(name).finish(outcome_named(outcome), self.now);
                String::new()
            }
            ["next", name, outcome] => {
                let mut permit = self.permit(name);
                permit.next_transaction(outcome_named(outcome), self.now);
                self.held.insert(name.into(), Held::Permit(permit));
                String::new()
            }
            ["begin", name] => self.with_permit(name, |permit, now| permit.begin_work(now)),
            ["lend", name] => self.with_permit(name, Permit::lend),
            ["aside", name] => self.with_permit(name, Permit::set_aside),
            ["connections", count] => {
                self.gate.set_connections(number(count), self.now);
                String::new()
            }
            ["resume", name] => self.with_permit(name, Permit::resume),
            ["refused", count] => {
                self.gate.refused_by_server(number(count), self.now);
                String::new()
            }
            ["drop", name] => {
                drop(self.take(name));
                String::new()
            }
            ["panic", name] => self.panic(name),
            ["limit", limit] => {
                let limit = Mpl::at_least_one(number(limit));
                self.gate.set_limit(limit, self.now);
                String::new()
            }
            ["expire"] => {
                self.gate.expire(self.now);
                String::new()
            }
            ["discount"] => self.gate.discount(self.now).iter().fold(String::new(), |said, it| {
                said + &format!("discounts a permit of {:?}\n", it.age)
            }),
            ["totals"] => self.totals(),
            ["observe"] => self.observe(),
            _ => panic!("no such move: {words:?}"),
        };
        said + &self.wakes() + &self.state()
    }

    fn time(&self, ms: &str) -> Instant {
        self.start + Duration::from_millis(u64::from(number(ms)))
    }

    fn take(&mut self, name: &str) -> Held {
        let held = self.held.remove(name);
        held.unwrap_or_else(|| panic!("{name} holds nothing"))
    }

    fn permit(&mut self, name: &str) -> Permit {
        match self.take(name) {
            Held::Permit(permit) => permit,
            Held::Ticket(_) => panic!("{name} holds a ticket, no permit"),
        }
    }

    fn with_permit(&mut self, name: &str, act: impl FnOnce(&mut Permit, Instant)) -> String {
        let mut permit = self.permit(name);
        act(&mut permit, self.now);
        self.held.insert(name.into(), Held::Permit(permit));
        String::new()
    }

    fn request(&mut self, name: &str, class: &str, deadline: Option<Instant>) -> String {
        let class = Class::ALL.into_iter().find(|known| known.name() == class);
        let class = class.expect("a class is high or normal");
        let token = self.names.len() as u64;
        let request = Request { wait_until: deadline, ..Request::new(class, token, &self.waker) };
        self.names.push(name.into());
        let (said, held) = match self.gate.request(&request, self.now) {
            Admission::Granted(permit) => (format!("{name} runs\n"), Held::Permit(permit)),
            Admission::Queued(ticket) => (format!("{name} waits\n"), Held::Ticket(ticket)),
            Admission::Refused(full) => {
                return format!("{name} is refused: {} waiting\n", full.waiting);
            }
        };
        self.held.insert(name.into(), held);
        said
    }

    fn claim(&mut self, name: &str) -> String {
        let Held::Ticket(ticket) = self.take(name) else { panic!("{name} holds a permit already") };
        let (said, held) = match ticket.claim() {
            Claim::Granted(permit) => (format!("{name} runs\n"), Held::Permit(permit)),
            Claim::Waiting(ticket) => (format!("{name} waits\n"), Held::Ticket(ticket)),
            Claim::Expired | Claim::Late(_) => return format!("{name} has waited too long\n"),
        };
        self.held.insert(name.into(), held);
        said
    }

    fn panic(&mut self, name: &str) -> String {
        let permit = self.permit(name);
        let panicked = catch_unwind(AssertUnwindSafe(move || {
            let _held = permit;
            // Not `panic!`, whose message would look like a failure in the test's output.
            std::panic::resume_unwind(Box::new("a bug in the holder"));
        }));
        assert!(panicked.is_err());
        format!("{name} panics\n")
    }

    fn wakes(&self) -> String {
        let woken = std::mem::take(&mut *self.woken.lock().expect("no waker panics"));
        let name = |token: u64| &self.names[usize::try_from(token).expect("a position")];
        woken.into_iter().fold(String::new(), |mut said, token| {
            writeln!(said, "wakes {}", name(token)).expect("a string takes everything");
            said
        })
    }

    fn state(&self) -> String {
        let seen = self.gate.snapshot();
        let (out, limit, waiting) = (seen.outstanding, seen.limit, seen.waiting);
        let mut others = String::new();
        for (count, what) in [(seen.idle, "idle"), (seen.discounted, "discounted")] {
            if count > 0 {
                write!(others, " and {count} {what}").expect("a string takes everything");
            }
        }
        let counted = seen.active();
        assert_eq!(counted + seen.idle + seen.discounted, out);
        format!("{counted} of {limit} out{others}, {waiting} waiting\n")
    }

    fn totals(&self) -> String {
        let seen = self.gate.snapshot();
        let classes = seen.classes.iter().zip(Class::ALL);
        classes.fold(
            format!(
                "refused {}, expired {}, withdrawn {}\n",
                seen.refused, seen.expired, seen.withdrawn
            ),
            |mut said, (class, named)| {
                let (name, completions, failures) =
                    (named.name(), class.completions, class.failures);
                writeln!(said, "{name}: completed {completions}, failed {failures}")
                    .expect("a string takes everything");
                said
            },
        )
    }

    fn observe(&self) -> String {
        let seen = self.gate.observe(self.now);
        let timing = |timing: Timing| {
            format!("{} of mean {:.3} s, min {:.3} s", timing.count, timing.mean_s, timing.min_s)
        };
        format!(
            "{:?} at limit {}: {:.1} tps, completed {}, failed {}\n\
             concurrency {}, at most {}, mean {:.3}; running mean {:.3}; waiting share {:.3}\n\
             {}{}\
             in queue {}; in database {}\n",
            seen.interval,
            seen.limit,
            seen.throughput_tps(),
            seen.completions,
            seen.failures,
            seen.concurrency,
            seen.concurrency_peak,
            seen.concurrency_mean,
            seen.running_mean,
            seen.waiting_share,
            match seen.idle_mean {
                0.0 => String::new(),
                mean => format!("idle {}, mean {mean:.3}\n", seen.idle),
            },
            match seen.discounted_mean {
                0.0 => String::new(),
                mean => format!("discounted {}, mean {mean:.3}\n", seen.discounted),
            },
            timing(seen.in_queue),
            timing(seen.in_database),
        )
    }
}

fn number(word: &str) -> u32 {
    let number = word.parse();
    number.unwrap_or_else(|_| panic!("`{word}` is not a number"))
}

fn outcome_named(word: &str) -> Outcome {
    match word {
        "completed" => Outcome::Completed,
        "failed" => Outcome::Failed,
        _ => panic!("an outcome is completed or failed, not `{word}`"),
    }
}

/// The script as it should read: its own commentary and moves, with what came of each.
fn play(text: &str) -> String {
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
        let said = if let ["gate", limit, waiting_max, ref mpl_max @ ..] = words[..] {
            let mpl_max = mpl_max.first().unwrap_or(&limit);
            let new = Script::new(number(limit), number(waiting_max) as usize, number(mpl_max));
            script.insert(new).state()
        } else {
            let script = script.as_mut().expect("a script begins with `> gate`");
            script.make(&words)
        };
        played.extend([line, "\n", &said]);
    }
    played
}

#[test]
fn every_script_plays_as_written() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let files = std::fs::read_dir(directory).expect("the scripts are beside this file");
    let mut differing = Vec::new();
    let mut count = 0;
    for file in files {
        let path = file.expect("the directory can be read").path();
        let written = std::fs::read_to_string(&path).expect("a script can be read");
        let played = play(&written);
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
