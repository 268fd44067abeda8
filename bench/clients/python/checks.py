"""What the checks of all Python clients share: their list, their sizes, and how they report."""

import os
import sys

MEGABYTES = int(os.environ.get("CHECK_MEGABYTES", "50"))
# More than clients and proxies keep by default.
STATEMENTS = 1200
TEXT = "naïve café – Ἀθήνα – 日本語 – العربية – 🐘"
CHECKS = {}


class Differs(Exception):
    """What came is not what was expected."""


def check(function):
    """Add a function to the checks, under its name."""
    CHECKS[function.__name__.removesuffix("_")] = function
    return function


def equal(found, wanted):
    """Raise Differs unless both are equal."""
    if found != wanted:
        raise Differs(f"{found!r:.150} instead of {wanted!r:.150}")


def raises(kind, function, *arguments):
    """Return the error of this kind that a call raises."""
    try:
        function(*arguments)
    except kind as error:
        return error
    raise Differs(f"no {kind.__name__}")


def wanted():
    """Return the names and functions that the command line asks for, by default all."""
    return {name: function for name, function in CHECKS.items() if name in (sys.argv[1:] or CHECKS)}


def report(name, error=None):
    """Print the outcome of a check on one line."""
    if error is None:
        outcome = "ok"
    else:
        kind = "differs" if isinstance(error, Differs) else "error"
        said = " ".join(f"{type(error).__name__}: {error}".split())
        outcome = f"{kind}: {said.removeprefix('Differs: ')}"
    print(name, outcome, flush=True)


def run(version):
    """Run the checks one after the other."""
    print("version", version, flush=True)
    for name, function in wanted().items():
        try:
            function()
            report(name)
        except Exception as error:  # Any error is what a check is to report.
            report(name, error)
