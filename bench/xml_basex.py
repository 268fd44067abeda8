#!/usr/bin/env python3
"""Compare the XML store with BaseX: queries, navigation, serialising, updates and size.

Both work on the same XMark document, each in a process of its own that evaluates requests and
times them inside (`crates/xml/examples/beside_basex.rs`, `bench/basex/Peer.java`): no client, no
protocol. Both processes live through the whole run, so both are warm, and take turns in each
round. Before anything is timed the answers are compared. Prints Markdown. Everything started here
is stopped here, by its process id, also on Ctrl-C. Needs Java and Debian's package basex.
"""

import argparse
import contextlib
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import platform
import random
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

from compare import script
from compare.machine import ROOT, commit, processor
from compare.processes import Failed, run_quietly, started
from compare.script import head, row, say

OURS, BASEX = "ours", "BaseX"
# What ours locks.
DOCUMENT, NODES = "document", "nodes"
# Who is measured in a round, in this order or the other way round. Both of ours are beside BaseX.
SIDES = ((OURS, DOCUMENT), (BASEX, ""), (OURS, NODES))
JAR = pathlib.Path("/usr/share/java/basex.jar")
# Indexes of ours that answer what the text and attribute index of BaseX answer, and elements by
# name, which it finds by its path summary and a walk.
INDEXES = ("name", "content text")
# Longest wait for one answer, in seconds.
ANSWER_LIMIT_S = 900
SYNCED, LAZY = "synced", "lazy"


@dataclasses.dataclass(frozen=True)
class Task:
    """Something that both do, and at least how many times as fast ours has to be."""

    name: str
    kind: str
    consumer: str = ""
    query: str = ""
    # The query whose strings, drawn by the seed, take the place of {} or $v; the way of a walk.
    values: str = ""
    target: float = 1.0
    # The same with locks on nodes.
    target_of_nodes: float = 0.5


NAMES = "/site/people/person/name"
IDS = "//item/@id"
TASKS = (
    Task("element by name and value, `//person[name = V]`, a query each", "each", "strings",
         "//person[name = '{}']", NAMES),
    Task("element by name and value, `//name[text() = V]`, a query each", "each", "strings",
         "//name[text() = '{}']", NAMES),
    Task("the same, `//name[text() = $v]`, parsed once", "bound", "strings",
         "//name[text() = $v]", NAMES),
    Task("`//item[@id = V]`, a query each", "each", "names", "//item[@id = '{}']", IDS),
    Task("the same, `//item[@id = $v]`, parsed once", "bound", "names", "//item[@id = $v]", IDS),
    Task("`//item[@id = V]`, serialised, a query each", "each", "xml", "//item[@id = '{}']", IDS),
    Task("elements by name, `//keyword`", "nodes", "names", "//keyword"),
    Task("elements by name, `//keyword`, string-values", "nodes", "strings", "//keyword"),
    Task("scan of all elements, `//*`", "nodes", "names", "//*"),
    Task("scan of all nodes, `//node()`", "nodes", "names", "//node()"),
    Task("scan of all texts, `//text()[contains(., 'gold')]`", "nodes", "strings",
         "//text()[contains(., 'gold')]"),
    Task("scan with a predicate, `//*[@id and not(*)]`", "nodes", "names", "//*[@id and not(*)]"),
    Task("nested steps, `//listitem//keyword`", "nodes", "names", "//listitem//keyword"),
    Task("child steps, `/site/*/*/*/*`", "nodes", "names", "/site/*/*/*/*"),
    Task("child steps, `/site/open_auctions/open_auction/bidder/increase`", "nodes", "strings",
         "/site/open_auctions/open_auction/bidder/increase"),
    Task("child navigation of a million nodes, by streams of children", "walk", values="children"),
    Task("the same from first child to next sibling", "walk", values="sibling"),
    Task("serialise `/site/people`", "nodes", "xml", "/site/people"),
    Task("serialise `/site/regions/europe`", "nodes", "xml", "/site/regions/europe"),
)
INSERTS = Task("small inserts, a transaction each", "insert", target=5.0, target_of_nodes=5.0)
DELETES = Task("small deletes, a transaction each", "delete", target=5.0, target_of_nodes=5.0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--factor", type=float, default=1.0, help="of the XMark document")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9, help="at least 6, for the intervals")
    parser.add_argument("--seconds", type=float, default=1.0, help="of one measurement, at least")
    parser.add_argument("--warm", type=float, default=4.0, help="seconds of warming up each task")
    parser.add_argument("--updates", type=int, default=10_000,
                        help="inserts, and deletes, a round; 0 for none")
    parser.add_argument("--walk", type=int, default=1_000_000, help="nodes of the navigation")
    parser.add_argument("--buffer-mib", type=int, default=512, help="memory for pages of ours")
    parser.add_argument("--heap-mib", type=int, default=2048, help="the Java heap's limit")
    parser.add_argument("--only", help="tasks whose name has this in it")
    parser.add_argument("--quick", action="store_true", help="a small document, short rounds")
    parser.add_argument("--explain", action="store_true", help="print the plans to standard error")
    parser.add_argument("--json", type=pathlib.Path, help="write every figure to this file")
    parser.add_argument("--markdown", type=pathlib.Path, help="write the report to this file")
    options = parser.parse_args()
    if options.quick:
        options.factor, options.rounds, options.seconds = min(options.factor, 0.1), 6, 0.2
        options.warm, options.updates = 1.5, min(options.updates, 500)
    if options.rounds < 6:
        parser.error("fewer than 6 rounds give no interval of 95 %")
    missing = [name for name in ("java", "javac") if not shutil.which(name)]
    if missing or not JAR.exists():
        parser.error("not found: " + ", ".join([*missing, str(JAR)]) + "; install basex and a JDK")
    return options


class Peer:
    """A process that answers requests: fields between tabs, a line each."""

    def __init__(self, name, process):
        self.name, self.process = name, process

    def ask(self, *fields):
        """Return the fields of the answer; Failed if it is an error or does not come."""
        self.process.stdin.write("\t".join(map(str, fields)) + "\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], ANSWER_LIMIT_S)[0]:
            raise Failed(f"{self.name} does not answer {fields[0]}")
        verdict, _, rest = self.process.stdout.readline().rstrip("\n").partition("\t")
        if verdict != "ok":
            raise Failed(f"{self.name}, {fields[0]}: {rest or 'it has ended'}")
        return rest.split("\t")


@contextlib.contextmanager
def peers(directory, options):
    """Both processes, ours first."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release" / "examples" / "beside_basex"
    if not os.access(program, os.X_OK):
        raise Failed(f"no program {program}: cargo build --release -p tidegate-xml --examples")
    classes = directory / "classes"
    run_quietly("javac", "-cp", JAR, "-d", classes, ROOT / "bench/basex/Peer.java", limit_s=120)
    java = ["java", f"-Xmx{options.heap_mib}m", f"-Dorg.basex.path={directory / 'basex'}",
            "-cp", f"{JAR}:{classes}", "Peer"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    (directory / "basex").mkdir()
    with (started([program, directory / "ours", options.buffer_mib], **pipes) as ours,
          started(java, **pipes) as basex):
        yield Peer(OURS, ours), Peer(BASEX, basex)


def document(directory, options):
    """The path of the document, generated by our generator of XMark documents."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = directory / "site.xml"
    with path.open("wb") as output:
        subprocess.run([target / "release/examples/xmark", "--factor", str(options.factor),
                        "--seed", str(options.seed)], stdout=output, check=True, timeout=600)
    return path


def stored_bytes(directory):
    """Bytes of the files below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def load_all(ours, basex, directory, path):
    """Load the document into both, and return what that took and takes."""
    size = path.stat().st_size
    say(f"the document has {size / 1e6:.1f} MB; loading it")
    sizes, times = {"text": size}, {}
    times[OURS] = [float(ours.ask("load", path)[0]), 0.0]
    for index in INDEXES:
        times[OURS][1] += float(ours.ask("index", index)[0])
    sizes["ours, the document"], indexes = map(int, ours.ask("size"))
    sizes[f"ours, indexes {' and '.join(INDEXES)}"] = indexes
    times[BASEX] = [float(basex.ask("load", path, "plain", "plain")[0])]
    sizes["BaseX, text and attribute index"] = stored_bytes(directory / "basex/data/plain")
    basex.ask("load", path, "updated", "updated")
    sizes["BaseX, its indexes kept by updates"] = stored_bytes(directory / "basex/data/updated")
    basex.ask("open", "plain")
    return sizes, times


def requests(ours, directory, options):
    """Task -> the fields of its request, without its seconds."""
    drawn = random.Random(options.seed)
    strings = {}
    for query in (NAMES, IDS):
        ours.ask("dump", "strings", directory / "values", query)
        values = (directory / "values").read_text().splitlines()
        strings[query] = sorted({value for value in values if "'" not in value})
    found = {}
    for task in TASKS:
        if options.only and options.only not in task.name:
            continue
        if task.kind == "walk":
            found[task] = ("walk", (task.values,), (options.walk,))
        elif task.kind == "bound":
            values = drawn.sample(strings[task.values], min(1000, len(strings[task.values])))
            found[task] = ("bound", (task.consumer,), (task.query, *values))
        elif task.kind == "each":
            values = drawn.sample(strings[task.values], min(200, len(strings[task.values])))
            found[task] = ("nodes", (task.consumer,), [task.query.format(v) for v in values])
        else:
            found[task] = ("nodes", (task.consumer,), (task.query,))
    return found


def digest(path, is_xml):
    """A hash of a dump; of XML, of its canonical form, since the programs write it differently."""
    text = path.read_bytes()
    if is_xml:
        text = ElementTree.canonicalize(b"<all>" + text + b"</all>").encode()
    return hashlib.sha256(text).hexdigest()


def compare(both, consumer, query, directory):
    """Failed unless both find the same, to the byte; returns how many nodes that are."""
    found = []
    for peer in both:
        count = peer.ask("dump", consumer, directory / "dump", query)[0]
        found.append((count, digest(directory / "dump", consumer == "xml")))
    if found[0] != found[1]:
        raise Failed(f"the answers to {query} differ: {found[0][0]} and {found[1][0]} nodes")
    return int(found[0][0])


def compare_all(both, todo, directory):
    """Compare the whole answers to every query, and to three of those that are drawn."""
    for task, (_, _, rest) in todo.items():
        if task.kind == "walk":
            continue
        queries = rest[:3] if task.kind == "each" else rest[:1]
        if task.kind == "bound":
            queries = [task.query.replace("$v", f"'{value}'") for value in rest[1:4]]
        counts = [compare(both, task.consumer, query, directory) for query in queries]
        say(f"same answers: {task.name}: {', '.join(map(str, counts))} nodes")


def asked(ours, basex, side):
    """The peer of a side, set to its locks."""
    if side[0] == BASEX:
        return basex
    ours.ask("locks", side[1])
    return ours


def in_turn(number):
    """The sides in the order of a round."""
    return SIDES if number % 2 == 0 else SIDES[::-1]


def timed(peer, request, seconds):
    """Seconds of a pass, nodes, and the digest of a pass."""
    kind, before, rest = request
    taken, passes, nodes, mark = peer.ask(kind, *before, seconds, *rest)
    return float(taken) / int(passes), (int(nodes), mark)


def measure(ours, basex, todo, options):
    """Task -> rounds of side -> seconds, and the nodes of a pass."""
    figures, nodes = {task: [] for task in todo}, {}
    for task, request in todo.items():
        answers = {timed(asked(ours, basex, side), request, options.warm)[1] for side in SIDES}
        if len(answers) > 1:
            raise Failed(f"{task.name}: the answers differ: {answers}")
        nodes[task] = answers.pop()
    began = time.monotonic()
    for number in range(options.rounds):
        for task, request in todo.items():
            taken = {}
            for side in in_turn(number):
                taken[side], answer = timed(asked(ours, basex, side), request, options.seconds)
                if answer != nodes[task]:
                    raise Failed(f"{task.name}: {side} has another answer than before")
            figures[task].append(taken)
        left = (options.rounds - number - 1) * (time.monotonic() - began) / (number + 1) / 60
        say(f"round {number + 1} of {options.rounds}; about {left:.1f} min left of the queries")
    ours.ask("locks", DOCUMENT)
    return figures, {task: count for task, (count, _) in nodes.items()}


def measure_updates(ours, basex, directory, options):
    """Task -> rounds of side -> seconds, with the side SYNCED; updates a round."""
    auctions = int(ours.ask("dump", "names", directory / "dump", "//open_auction")[0])
    count = min(options.updates, auctions)
    basex.ask("open", "updated")
    figures = {INSERTS: [], DELETES: []}
    began = time.monotonic()
    # Round 0 warms up, and the documents are compared behind its inserts and behind its deletes.
    for number in range(options.rounds + 1):
        taken = {task: {} for task in figures}
        # Each side inserts and deletes in turn: ours has one document for both of its sides.
        for side in in_turn(number):
            for task, rounds in taken.items():
                seconds = asked(ours, basex, side).ask(task.kind, LAZY, 0, count)[0]
                rounds[side] = float(seconds) / count
                if number == 0 and side == SIDES[0]:
                    basex.ask(task.kind, LAZY, 0, count)
                    compare((ours, basex), "xml", "/site/open_auctions", directory)
        for task, rounds in taken.items():
            seconds = asked(ours, basex, SIDES[0]).ask(task.kind, SYNCED, 0, count)[0]
            rounds[SYNCED] = float(seconds) / count
            if number:
                figures[task].append(rounds)
        left = (options.rounds - number) * (time.monotonic() - began) / (number + 1) / 60
        say(f"updates: round {number} of {options.rounds}; about {left:.1f} min left")
    return figures, count


def interval(values):
    """The interval between two order statistics that holds the median in 95 % of samples."""
    ordered, skipped = sorted(values), 0
    outside = 2 / 2 ** len(ordered)
    while outside + 2 * math.comb(len(ordered), skipped + 1) / 2 ** len(ordered) <= 0.05:
        skipped += 1
        outside += 2 * math.comb(len(ordered), skipped) / 2 ** len(ordered)
    return ordered[skipped], ordered[-1 - skipped]


def duration(seconds):
    """Three digits and a unit."""
    for unit, scale in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def verdict(low, high, target):
    """What the interval of a ratio says of its target."""
    return "met" if low >= target else "**missed**" if high < target else "undecided"


def ratio_cells(own, theirs, target):
    """Our median, the ratio with its interval, and the verdict."""
    ratios = [b / a for a, b in zip(own, theirs, strict=True)]
    low, high = interval(ratios)
    judged = "" if target is None else verdict(low, high, target)
    return (duration(statistics.median(own)),
            f"{statistics.median(ratios):.2f} [{low:.2f}–{high:.2f}]", judged)


def task_row(task, rounds, count):
    """A row of the table of a task."""
    seconds = {side: [each[side] for each in rounds] for side in SIDES}
    theirs = seconds[SIDES[1]]
    return row(task.name, f"{count:,}", duration(statistics.median(theirs)),
               *ratio_cells(seconds[SIDES[0]], theirs, task.target),
               *ratio_cells(seconds[SIDES[2]], theirs, task.target_of_nodes))


def task_head(count, unit):
    return head("lrrrrlrrl", "measurement", count, f"BaseX, {unit}", "document locked",
                "ratio", "verdict", "nodes locked", "ratio", "verdict")


def report(options, facts, sizes, times, figures, nodes, updates, count):
    """The page, as Markdown."""
    lines = ["# The XML store beside BaseX", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += ["", RULES, "", task_head("nodes a pass", "a pass")]
    lines += [task_row(task, rounds, nodes[task]) for task, rounds in figures.items()]
    if updates:
        lines += ["", UPDATE_RULES, "", task_head("a round", "each")]
        lines += [task_row(task, rounds, count) for task, rounds in updates.items()]
        lines += ["", "Every commit of ours synced, the document locked:", "",
                  head("lrrr", "measurement", "BaseX, each, not synced", "ours, synced", "ratio")]
        for task, rounds in updates.items():
            own, theirs = ([each[side] for each in rounds] for side in (SYNCED, SIDES[1]))
            lines.append(row(task.name, duration(statistics.median(theirs)),
                             *ratio_cells(own, theirs, None)[:2]))
    lines += ["", "## Size", "", head("lrr", "what is stored", "bytes", "to the text")]
    lines += [row(name, f"{size:,}", f"{size / sizes['text']:.2f}") for name, size in sizes.items()]
    lines += ["", f"Loading took {times[OURS][0]:.1f} s and building the indexes of ours "
              f"{times[OURS][1]:.1f} s; BaseX took {times[BASEX][0]:.1f} s with its two indexes."]
    return "\n".join(lines) + "\n"


RULES = """\
Both programs evaluate queries in their own process and take the time there; they take turns in each
round, in changing order. Ours is measured with the document locked as a whole and with locks on
nodes. A ratio is the time of BaseX over ours in the same round: above 1, ours is faster. The table
has its median over the rounds with an interval that holds the true median with at least 95 %
(order statistics). The target is a ratio of 1 with the document locked and of 0.5 with nodes
locked. It is **met** if the whole interval reaches it, **missed** if none of the interval does, and
else undecided. This rule was written before the run.

Both have to find the same. Before the clock starts, whole answers are compared to the byte (text of
subtrees in its canonical form), and in every pass a digest of the names or string-values of all
nodes. A query of its own is parsed and compiled in each pass by both; with `$v`, once for all of
the values. Nodes are taken one by one, as their names, their string-values, or as the text of
their subtree in memory. BaseX walks through iterators of children in both walks."""

UPDATE_RULES = """\
## Updates

Each update is a transaction: an element with an attribute, two children and their texts is inserted
behind the others of an auction that is found by its ID, and deleted when found by that attribute.
BaseX keeps its indexes up to date (`UPDINDEX`) and writes its files in each update (`AUTOFLUSH`),
but syncs none, so a crash of the system loses updates. Ours is measured with the log written behind
the commit (`Durability::Lazy`), and with every commit synced. The target is a ratio of 5 at BaseX's
durability."""


def run_all(options):
    facts = {
        "command": f"`bench/xml_basex.py {shlex.join(sys.argv[1:])}`".replace(" `", "`"),
        "seed": f"{options.seed}, XMark factor {options.factor:g}, {options.rounds} rounds of "
                f"{options.seconds:g} s a measurement",
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} processors, "
                   f"{platform.system()} {platform.release()}",
        "load average before": f"{os.getloadavg()[0]:.1f}",
        "versions": f"Tidegate{commit()}, {basex_version()}",
        "memory": f"{options.buffer_mib} MiB for pages of ours; at most {options.heap_mib} MiB of "
                  "Java heap, and the system's cache of files for BaseX",
        "indexes": f"ours: {', '.join(f'`{index}`' for index in INDEXES)}; BaseX: text, attribute",
    }
    with script.directory("tidegate-basex-") as directory:
        path = document(directory, options)
        with peers(directory, options) as (ours, basex):
            sizes, times = load_all(ours, basex, directory, path)
            path.unlink()
            todo = requests(ours, directory, options)
            if options.explain:
                for task, (kind, _, rest) in todo.items():
                    for peer in (ours, basex) if kind == "nodes" else ():
                        plan = "\n  ".join(peer.ask("explain", rest[0]))
                        say(f"{peer.name}: {rest[0]}\n  {plan}")
            compare_all((ours, basex), todo, directory)
            figures, nodes = measure(ours, basex, todo, options)
            updates, count = {}, 0
            if options.updates:
                updates, count = measure_updates(ours, basex, directory, options)
    if options.json:
        options.json.write_text(json.dumps({
            "facts": facts, "sizes": sizes, "times": times,
            "queries": named(figures), "updates": named(updates),
        }, indent=1) + "\n")
    return report(options, facts, sizes, times, figures, nodes, updates, count)


def named(figures):
    """Figures with names as keys."""
    return {task.name: [{" ".join(filter(None, side)) if isinstance(side, tuple) else side: seconds
                         for side, seconds in each.items()} for each in rounds]
            for task, rounds in figures.items()}


def basex_version():
    """Name and version of the package."""
    found = subprocess.run(["dpkg-query", "-W", "-f", "BaseX ${Version}", "basex"], text=True,
                           capture_output=True, timeout=30)
    java = subprocess.run(["java", "-version"], text=True, capture_output=True, timeout=30)
    return f"{found.stdout or 'BaseX'}, {java.stderr.splitlines()[0]}"


def main():
    options = arguments()
    try:
        text = run_all(options)
    except (OSError, subprocess.SubprocessError) as error:
        raise Failed(str(error)) from error
    print(text, end="")
    if options.markdown:
        options.markdown.write_text(text)


if __name__ == "__main__":
    script.run(main)
