"""What an experiment file says of all its executions, with its preset and the defaults.

The laboratory keeps the file word for word. From schema version 3 on a store has the times beside
it; in one of before they are read again, with the defaults of ``docs/experiments.md``.
"""

import re
import tomllib
from typing import Any, Final

from tidegate_analysis.errors import StoreError

#: Columns of an export, the file's keys, and what holds where the key is not there.
_TIMES: Final = {
    "ctl_s": ("ctl", None),
    "warmup_s": ("warmup", "1s"),
    "pause_s": ("pause", "0s"),
    "connect_limit_s": ("connect", "60s"),
    "interval_s": ("interval", "1s"),
}

#: The columns that are times.
TIMES: Final = tuple(_TIMES)

_PART: Final = re.compile(r"\s*(\d+)\s*([a-zA-Zµ]+)")

_SECONDS: Final = {
    **dict.fromkeys(["ns", "nsec", "nanos"], 1e-9),
    **dict.fromkeys(["us", "usec", "µs", "micros"], 1e-6),
    **dict.fromkeys(["ms", "msec", "millis"], 1e-3),
    **dict.fromkeys(["s", "sec", "secs", "second", "seconds"], 1.0),
    **dict.fromkeys(["m", "min", "mins", "minute", "minutes"], 60.0),
    **dict.fromkeys(["h", "hr", "hrs", "hour", "hours"], 3600.0),
    **dict.fromkeys(["d", "day", "days"], 86400.0),
}


def seconds(period: str) -> float:
    """Return a length of time in words, such as ``500ms`` or ``1h 30min``, in seconds.

    Raises `ValueError`: the words are no length of time.
    """
    total, end = 0.0, 0
    for part in _PART.finditer(period):
        if part.start() != end or part[2] not in _SECONDS:
            break
        # Divided where that is exact: 500 ms are 0.5 s and not 500 times what 0.001 is rounded to.
        unit = _SECONDS[part[2]]
        total += int(part[1]) * unit if unit >= 1 else int(part[1]) / round(1 / unit)
        end = part.end()
    if end == 0 or end != len(period.rstrip()):
        raise ValueError(f"`{period}` is no length of time")
    return total


def settings(file: str, preset: str) -> dict[str, float]:
    """Return the columns `ctl_s` to `repetitions` of an experiment.

    - file: The experiment file, word for word.
    - preset: The preset that was chosen, or nothing.

    Raises `StoreError`: the file is not one, or has no such preset.
    """
    try:
        keys: dict[str, Any] = tomllib.loads(file)
        if preset:
            keys = keys | keys["preset"][preset]
        found = {
            column: seconds(keys[key] if default is None else keys.get(key, default))
            for column, (key, default) in _TIMES.items()
        }
        return found | {"repetitions": int(keys.get("repetitions", 1))}
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(
            f"the experiment file in the store cannot be read: {error}",
            "the store is damaged, or of a Tidegate that writes other files: use an export",
        ) from error
