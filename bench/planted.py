"""Plants concurrency bugs in the source, and says by which drawn schedule the tests find each.

Each bug is one replacement of text in a copy of the tree. The copy is built with it, and the tests
that run the part under drawn schedules (docs/results/schedules.md) are run with up to 10,000
schedules of each program. A bug is found when one of them fails; the failure is run again from the
seed that it names. Memory orders that are too weak are planted last, and looked for with loom.

    python3 bench/planted.py [--only NAME] [--schedules 10000] [--markdown FILE]
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
COPY = TARGET / "planted" / "tree"


@dataclass(frozen=True)
class Plant:
    """A bug: a text of a file and what stands there instead."""

    name: str
    what: str
    file: str
    old: str
    new: str
    test: tuple[str, ...]


LOCKS = ("-p", "tidegate-engine", "--test", "locks", "lockers_keep_the_rules_in_every")
LOG = ("-p", "tidegate-engine", "--test", "log", "what_is_confirmed_is_durable_in_every")
POOL = ("-p", "tidegate-engine", "--lib", "pages_are_as_they_were_left_in_every")
STORE = ("-p", "tidegate-engine", "--test", "store", "what_is_committed_is_recovered_in_every")
LEVELS = ("-p", "tidegate-engine", "--test", "history", "drawn_schedules_show_nothing")
GATE = ("-p", "tidegate-gate", "--test", "schedules", "no_permit_is_lost_in_any")
SERVER = ("-p", "tidegate-engine-server", "--test", "schedules", "answered_once_in_every")
LOOM = ("--release", "--manifest-path", "bench/loom/Cargo.toml")

PLANTS = [
    Plant(
        "lock-timeout-wakes-nobody",
        "who gives up waiting does not wake those whom that lets through",
        "crates/engine/src/lock/locker.rs",
        "        drop(bucket);\n        self.woken.wake();\n        self.state.outcome()\n",
        "        drop(bucket);\n        self.state.outcome()\n",
        LOCKS,
    ),
    Plant(
        "lock-timeout-looks-before-latch",
        "who gives up waiting looks whether it was granted before it has the latch",
        "crates/engine/src/lock/locker.rs",
        "        let mut bucket = self.manager.latch(place.bucket.in_table());\n"
        "        if self.state.outcome() == Outcome::Waiting {\n",
        "        let is_waiting = self.state.outcome() == Outcome::Waiting;\n"
        "        let mut bucket = self.manager.latch(place.bucket.in_table());\n"
        "        if is_waiting {\n",
        LOCKS,
    ),
    Plant(
        "strong-request-counted-late",
        "a strong request is counted after it has gone through the stripes",
        "crates/engine/src/lock/intents.rs",
        "        self.counter(hash).fetch_add(1, Ordering::Relaxed);\n"
        "        for number in 0..STRIPES {\n"
        "            self.latch(number).held.retain(|intent| {\n"
        "                let stays = intent.resource != *resource;\n"
        "                if !stays {\n"
        "                    adopt(intent);\n"
        "                }\n"
        "                stays\n"
        "            });\n"
        "        }\n",
        "        for number in 0..STRIPES {\n"
        "            self.latch(number).held.retain(|intent| {\n"
        "                let stays = intent.resource != *resource;\n"
        "                if !stays {\n"
        "                    adopt(intent);\n"
        "                }\n"
        "                stays\n"
        "            });\n"
        "        }\n"
        "        self.counter(hash).fetch_add(1, Ordering::Relaxed);\n",
        LOCKS,
    ),
    Plant(
        "log-durable-before-sync",
        "the leader says what is durable when it takes the batch, before it writes and syncs it",
        "crates/engine/src/wal/commit.rs",
        "        let began_sync = syncs.then(clock::now);\n",
        "        if syncs {\n"
        "            self.published.durable.store(batch.end().0, Ordering::Release);\n"
        "        }\n"
        "        let began_sync = syncs.then(clock::now);\n",
        LOG,
    ),
    Plant(
        "log-waiter-listed-late",
        "who waits for a sync enters the list after it has let go of the state",
        "crates/engine/src/wal/commit.rs",
        "            let signal = if state.has_leader() {\n"
        "                LogInner::wait(state, goal)\n",
        "            let signal = if state.has_leader() {\n"
        "                drop(state);\n"
        "                LogInner::wait(self.state.lock(), goal)\n",
        LOG,
    ),
    Plant(
        "page-clean-after-change",
        "a page that was changed while its copy was written is taken for clean",
        "crates/engine/src/buffer/write.rs",
        "                frame.was_written(lsn, page::lsn(frame.bytes(self.page_size.bytes())));\n",
        "                frame.was_written(lsn, lsn);\n",
        POOL,
    ),
    Plant(
        "page-checked-before-latch",
        "a reader looks which page a frame has before it has the latch",
        "crates/engine/src/buffer/mod.rs",
        "                frame.lock_shared();\n                if frame.page() == id {\n",
        "                let is_it = frame.page() == id;\n"
        "                frame.lock_shared();\n"
        "                if is_it {\n",
        POOL,
    ),
    Plant(
        "resize-drops-change",
        "a pool that shrinks gives up a frame that was changed after it was written",
        "crates/engine/src/buffer/mod.rs",
        "                if self.vacate_if_clean(frame) {\n                    break;\n",
        "                if !frame.is_being_written() {\n"
        "                    let page = frame.page();\n"
        "                    if !page.is_none() {\n"
        "                        self.table.clear(page);\n"
        "                        self.replacement.lock().forget(page);\n"
        "                        frame.set_page(PageId::NONE);\n"
        "                    }\n"
        "                    break;\n"
        "                }\n"
        "                if self.vacate_if_clean(frame) {\n                    break;\n",
        POOL,
    ),
    Plant(
        "checkpoint-misses-record",
        "a checkpoint does not wait for a transaction that is logging a record",
        "crates/engine/src/core/transactions.rs",
        "            while state.is_logging.load(Ordering::SeqCst) {\n"
        "                thread::yield_now();\n"
        "            }\n",
        "            let _ = thread::yield_now;\n",
        STORE,
    ),
    Plant(
        "rollback-releases-first",
        "a rollback releases its locks before it has taken its changes back",
        "crates/engine/src/txn/mod.rs",
        "        let Some(state) = self.state.take() else { return Ok(()) };\n"
        "        let rolled_back =\n",
        "        let Some(state) = self.state.take() else { return Ok(()) };\n"
        "        self.locker.release_all();\n"
        "        let rolled_back =\n",
        LEVELS,
    ),
    Plant(
        "gate-ticket-keeps-permit",
        "a ticket that is dropped after it was granted does not give the permit back",
        "crates/gate/src/gate.rs",
        "            TicketState::Granted { permit } => {\n"
        "                let permit = self.gate.permit(&state, permit);\n"
        "                drop(state);\n"
        "                drop(permit);\n"
        "            }\n"
        "            TicketState::Expired => {}\n",
        "            TicketState::Granted { .. } | TicketState::Expired => {}\n",
        GATE,
    ),
    Plant(
        "server-forgets-wake",
        "a job that the gate has woken before its ticket was noted is not claimed",
        "crates/engine-server/src/pool.rs",
        "        let expired = if is_woken { self.claim(shared, &mut state, token) } else "
        "{ None };\n",
        "        let expired = if is_woken { None } else { None };\n",
        SERVER,
    ),
    # This one was in the source: the schedules found it.
    Plant(
        "server-worker-counted-out-late",
        "a worker decides to end under the pool's lock, and is counted out under it later",
        "crates/engine-server/src/pool.rs",
        "            if is_over && state.ready.is_empty() {\n                state.workers -= 1;\n",
        "            if is_over && state.ready.is_empty() {\n"
        "                drop(state);\n"
        "                self.state.lock().workers -= 1;\n",
        SERVER,
    ),
    Plant(
        "loom-log-seat",
        "the signal to who waits for a sync is stored with no order",
        "crates/engine/src/wal/waiters.rs",
        "self.signal.swap(signal.code(), Ordering::Release)",
        "self.signal.swap(signal.code(), Ordering::Relaxed)",
        LOOM,
    ),
    Plant(
        "loom-locker-outcome",
        "the end of a wait for a lock is stored with no order",
        "crates/engine/src/lock/locker_state.rs",
        "self.outcome.store(outcome as u8, Ordering::Release)",
        "self.outcome.store(outcome as u8, Ordering::Relaxed)",
        LOOM,
    ),
    Plant(
        "loom-strong-ends",
        "a strong request is taken back with no order",
        "crates/engine/src/lock/intents.rs",
        "fetch_sub(1, Ordering::Release)",
        "fetch_sub(1, Ordering::Relaxed)",
        LOOM,
    ),
    Plant(
        "loom-page-clean",
        "a page is called clean with no order",
        "crates/engine/src/buffer/frame.rs",
        "{ lsn.0 };\n        self.since.store(since, Ordering::Release);\n",
        "{ lsn.0 };\n        self.since.store(since, Ordering::Relaxed);\n",
        LOOM,
    ),
    Plant(
        "loom-write-ends",
        "the end of a page's write is stored with no order",
        "crates/engine/src/buffer/frame.rs",
        "self.is_being_written.swap(false, Ordering::Release)",
        "self.is_being_written.swap(false, Ordering::Relaxed)",
        LOOM,
    ),
]


def copy_tree() -> None:
    """Copies the files of the tree, with changes that are not committed."""
    shutil.rmtree(COPY, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, COPY / name)


def run_test(plant: Plant, variables: dict[str, str]) -> str:
    """Runs the tests of a plant. Returns what they print."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(COPY.parent / "build"), **variables}
    command = ["cargo", "test", *plant.test, "--", "--nocapture"]
    ended = subprocess.run(
        command, cwd=COPY, env=environment, capture_output=True, text=True, errors="replace"
    )
    text = ended.stdout + ended.stderr
    if not re.search(r"running [1-9]\d* test", text):
        sys.exit(f"{plant.name}: the tests were not built or not found:\n{text}")
    return text


PANIC = re.compile(r"panicked at [^\n]*\n([^\n]*)")
LOOM_FAILURE = re.compile(r"thread '([^']*)' [^\n]*panicked at [^\n]*\n([^\n]*)")
FAILURE = re.compile(r"\n([^\n]*): schedule (\d+) of \d+ fails by ([\w:]+): ([^\n]*)")


def find(plant: Plant, schedules: int) -> str:
    """Builds the tree with one bug, and returns a row of the table."""
    path = COPY / plant.file
    sound = path.read_text()
    if sound.count(plant.old) != 1:
        sys.exit(f"{plant.name}: its text is not in {plant.file} once; bring it up to date")
    path.write_text(sound.replace(plant.old, plant.new))
    os.utime(path)
    try:
        text = run_test(plant, {"TIDEGATE_SCHEDULES": str(schedules)})
        if plant.test == LOOM:
            found = LOOM_FAILURE.search(text)
            if not found:
                return f"| {plant.name} | {plant.what} | – | **not found** | | |"
            name, message = found.groups()
            return f"| {plant.name} | {plant.what} | loom, {name} | – | – | {message[:90]} |"
        found = FAILURE.search(text)
        if not found:
            return f"| {plant.name} | {plant.what} | – | **not found** | | |"
        program, number, strategy, message = found.groups()
        again = FAILURE.search(run_test(plant, {"TIDEGATE_SCHEDULE": strategy}))
        same = "yes" if again and again.groups()[2:] == (strategy, message) else "**no**"
        if message.startswith("a task has panicked"):
            message = PANIC.search(text).group(1)
        message = message.replace("|", "/")[:90]
        return f"| {plant.name} | {plant.what} | {program} | {number} | {same} | {message} |"
    finally:
        path.write_text(sound)
        os.utime(path)


def main() -> None:
    """Plants each bug in turn and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="plants whose name contains this")
    parser.add_argument("--schedules", type=int, default=10_000, help="of each program, at most")
    parser.add_argument("--markdown", type=Path, help="a file for the table")
    arguments = parser.parse_args()
    copy_tree()
    rows = [
        "| planted | what is wrong | found by | at schedule | again from its seed | message |",
        "| --- | --- | --- | ---: | --- | --- |",
    ]
    print("\n".join(rows), flush=True)
    for plant in (plant for plant in PLANTS if arguments.only in plant.name):
        began = time.monotonic()
        rows.append(find(plant, arguments.schedules))
        print(rows[-1], flush=True)
        print(f"{plant.name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    if arguments.markdown:
        arguments.markdown.write_text("\n".join(rows) + "\n")
    if any("**" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
