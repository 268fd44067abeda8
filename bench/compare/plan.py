"""What is run: parts, their cells of subjects that take turns, and how long it takes."""

import dataclasses

PARTS = {
    "tpcb": "TPC-B-like transaction, our own client",
    "pgbench": "TPC-B-like transaction, pgbench as the client",
    "small": "Point select at 4 clients, pgbench as the client",
    "cpu": "Point select, our own client: the pooler's CPU time",
    "idle": "Idle clients: the pooler's memory",
}
START_LIMITS = (1, 8, 64, 500)
FIXED_LIMITS = (1, 2, 4, 8, 16, 32)
POOLS = (2, 4, 8, 20)
IDLE_CLIENTS = 10_000

# Starting and stopping a subject, levelling the database: seconds beside warm-up and measured
# time, and for each client. For the time left only; it is corrected by what runs have taken.
OVERHEAD_S = 3
OVERHEAD_PER_CLIENT_S = 0.004


@dataclasses.dataclass(frozen=True)
class Subject:
    """A way to the database: its name in the tables, and how to start it."""

    name: str
    kind: str
    arguments: tuple = ()


@dataclasses.dataclass(frozen=True)
class Run:
    """One load through one subject. Times in seconds."""

    part: str
    subject: Subject
    clients: int
    workload: str
    seconds: float
    warmup_s: float
    # For pgbench as the client: its -M.
    protocol: str = ""

    def planned_s(self):
        """About how long it takes."""
        fixed = OVERHEAD_S + self.clients * OVERHEAD_PER_CLIENT_S
        return self.seconds + self.warmup_s + fixed


@dataclasses.dataclass(frozen=True)
class Scope:
    """How much of the whole comparison is run."""

    crowds: tuple
    small_crowds: tuple
    cpu_clients: tuple
    starts: tuple
    fixed: tuple
    pools: tuple
    idle_clients: int


FULL = Scope((512, 1000), (4, 64), (64, 512, 2000), START_LIMITS, FIXED_LIMITS, POOLS,
             IDLE_CLIENTS)
QUICK = Scope((512,), (), (512,), (8, 500), (2, 8), (4, 20), 2000)

DIRECT = Subject("direct", "direct")
AUTOMATIC = Subject("Tidegate", "tidegate")


def pool(size):
    """PgBouncer with a pool of that size."""
    return Subject(f"PgBouncer {size}", "pgbouncer", (size,))


def fixed(limit):
    """Tidegate with a limit set by hand."""
    return Subject(f"Tidegate fixed:{limit}", "tidegate", ("--control", f"fixed:{limit}"))


def automatic(start):
    """Tidegate with its default control, from a given first limit."""
    return Subject(f"Tidegate from {start}", "tidegate", ("--start-mpl", str(start)))


def is_automatic(subject):
    """Whether the subject finds its limit by itself, so that it needs time to settle."""
    return subject.kind == "tidegate" and "--control" not in subject.arguments


def cells(options, has_pgbouncer):
    """The runs that take turns, cell by cell: one run per subject, same part and load."""
    scope = QUICK if options.quick else FULL
    found = []
    for part in options.parts:
        for crowd, workload, protocol, subjects in SHAPES[part](scope):
            known = [s for s in subjects if s.kind != "pgbouncer" or has_pgbouncer]
            if options.subjects:
                known = [s for s in known if s.name in options.subjects]
                if len(known) < 2:
                    continue
            found.append([
                Run(part, subject, crowd, workload, options.seconds,
                    options.settle if is_automatic(subject) else options.warmup, protocol)
                for subject in known
            ])
    return found


def _tpcb(scope):
    sweep = [
        DIRECT, *map(pool, scope.pools), *map(fixed, scope.fixed), *map(automatic, scope.starts),
    ]
    yield from ((crowd, "tpcb", "", [DIRECT, pool(20), AUTOMATIC]) for crowd in scope.small_crowds)
    yield from ((crowd, "tpcb", "", sweep) for crowd in scope.crowds)


def _pgbench(scope):
    return ((crowd, "tpcb", "simple", [DIRECT, AUTOMATIC]) for crowd in scope.crowds)


def _small(_scope):
    return ((4, "select-only", mode, [pool(20), AUTOMATIC]) for mode in ("simple", "extended"))


def _cpu(scope):
    subjects = [pool(20), fixed(20), pool(4), fixed(4)]
    return ((crowd, "point-select", "", subjects) for crowd in scope.cpu_clients)


def _idle(scope):
    return [(scope.idle_clients, "idle", "", [AUTOMATIC])]


SHAPES = {"tpcb": _tpcb, "pgbench": _pgbench, "small": _small, "cpu": _cpu, "idle": _idle}
