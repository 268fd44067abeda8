"""Where a benchmark was run, and what was run."""

import pathlib
import platform
import re
import subprocess

from .processes import find_program

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def version(program):
    """First line of what a program says about itself."""
    path = find_program(str(program))
    if not path:
        return f"no {program}"
    return subprocess.run([path, "--version"], text=True, capture_output=True,
                          timeout=10).stdout.splitlines()[0]


def commit():
    """The commit the tree is at, in the form that the tidy test looks up, and whether files differ
    from it; empty without git."""
    try:
        found = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT,
                               text=True, capture_output=True, timeout=10)
    except FileNotFoundError:
        return ""
    if found.returncode != 0:
        return ""
    hash_of_it = found.stdout.strip()
    changed = " with changes" if hash_of_it.endswith("-dirty") else ""
    return f", commit `{hash_of_it.removesuffix('-dirty')}`{changed}"


def processor():
    """The processor's name."""
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.machine()
