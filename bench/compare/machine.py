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
    """The commit the tree is at, and whether files differ from it; empty without git."""
    try:
        found = subprocess.run(["git", "describe", "--always", "--dirty", "--exclude=*"], cwd=ROOT,
                               text=True, capture_output=True, timeout=10)
    except FileNotFoundError:
        return ""
    return f", commit {found.stdout.strip()}" if found.returncode == 0 else ""


def processor():
    """The processor's name."""
    names = re.findall(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return names[0] if names else platform.machine()
