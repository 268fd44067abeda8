"""Numbers and curves in words: what captions, alternative texts and advice are made of."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike

#: What else differs with the processors of a DBMS, on a machine of which it gets all.
SHARED_PROCESSORS: Final = (
    "Clients and DBMS share the machine. A DBMS that has all its processors takes turns on them "
    "with the load generator, which has the others to itself where the DBMS has fewer: what "
    "numProcs does cannot be told from that here."
)


def number(value: Any, digits: int = 3) -> str:
    """Return a number as it is read: 3,450 and 12.3 and 0.0123, – for none, ∞ for infinity."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == round(value) or abs(value) >= 10 ** (digits - 1):
        text = f"{value:,.0f}"
    elif value == 0:
        text = "0"
    else:
        places = digits - 1 - math.floor(math.log10(abs(value)))
        text = f"{value:,.{max(0, min(places, 8))}f}"
    return text.replace("-", "−")


def value(x: float) -> str:
    """Return a number as it was chosen, without zeros at its end: 0.1, 1,000."""
    return f"{x:,.6g}"


def sentence(text: str) -> str:
    """Return a text with a capital at its beginning."""
    return text[:1].upper() + text[1:]


def shares_all(processors: ArrayLike, machine: float | None) -> bool:
    """Return whether processors vary up to all that the machine has; missing ones do not count."""
    seen = np.asarray(processors, dtype=float)
    seen = np.unique(seen[seen > 0])
    return machine is not None and len(seen) > 1 and bool(seen[-1] >= machine)


def percent(share: float) -> str:
    """Return a share as a percentage: 0.956 is 96 %, 0.0123 is 1.2 %, – for none."""
    return "–" if math.isnan(share) else f"{number(100 * share, 2)} %"


def p_value(p: float) -> str:
    """Return a p-value as it is read."""
    return "below 0.001" if p < 0.001 else number(p, 2)


def slower(ratio: float) -> str:
    """Return a ratio of latencies as one says it: 15 % slower, 3 times slower, 5 % faster."""
    if ratio >= 2:
        return f"{number(ratio)} times slower"
    return f"{percent(ratio - 1)} slower" if ratio > 1 else f"{percent(1 - ratio)} faster"


def between(low: float, high: float, unit: str = "") -> str:
    """Return an interval: 3,402 to 3,498 tps."""
    return f"{number(low)} to {number(high)}{' ' + unit if unit else ''}"


def count(n: int, one: str, many: str = "") -> str:
    """Return how many there are of something: 1 batchset, 28 batchsets."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def enumeration(items: Sequence[str], limit: int = 8) -> str:
    """Return items as a list in a sentence, shortened when it is long."""
    items = list(items)
    if len(items) > limit:
        items = [*items[:limit], f"{len(items) - limit:,} more"]
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def moment(us: float) -> str:
    """Return microseconds since 1970 as a date and time of day in UTC."""
    if us is None or math.isnan(us):
        return "–"
    return datetime.fromtimestamp(us / 1e6, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """Return a time in the units one would say it in."""
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{number(seconds / size, 2)} {unit}"
    return "1 second" if seconds == 1 else f"{value(seconds)} seconds"


def curve(x: ArrayLike, y: ArrayLike, what: str, unit: str, where: str) -> str:
    """Say how a curve goes: "throughput rises to 3,450 tps at MPL 16 and falls to 1,683 at 256"."""
    xs, ys = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    seen = np.isfinite(ys)
    xs, ys = xs[seen], ys[seen]
    if not len(xs):
        return f"{what} was not measured"
    top = int(np.argmax(ys))
    peak = f"{number(ys[top])} {unit} at {where} {number(xs[top])}"
    if len(xs) == 1:
        return f"{what} is {peak}"
    last = f"{number(ys[-1])} at {number(xs[-1])}"
    if top == len(xs) - 1:
        return f"{what} rises from {number(ys[0])} at {number(xs[0])} to {peak}, the last level"
    if top == 0:
        return f"{what} is highest at the first level, {peak}, and is {last}"
    return f"{what} rises to {peak} and falls to {last}"
