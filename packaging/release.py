#!/usr/bin/env python3
"""Set the version everywhere, and give the changelog's unreleased changes its number and today."""

import argparse
import re
import subprocess
import sys
import time

from build import ROOT, version

# Each file that has the version, and what stands before and behind it there.
PLACES = {
    "Cargo.toml": ('[workspace.package]\nversion = "', '"'),
    "analysis/src/tidegate_analysis/__init__.py": ('__version__ = "', '"'),
    "packaging/kubernetes/tidegate.yaml": ("/tidegate:", "\n"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("version", help="the version, as in 0.2.0")
    new, old = parser.parse_args().version, version()
    if not re.fullmatch(r"\d+\.\d+\.\d+", new):
        sys.exit(f"error: {new} is no version: three numbers, as in 0.2.0")
    changed = {}
    for name, (before, behind) in PLACES.items():
        text = (ROOT / name).read_text()
        if text.count(f"{before}{old}{behind}") != 1:
            sys.exit(f"error: {name} does not have {old} once, as {before!r} says it")
        changed[name] = text.replace(f"{before}{old}{behind}", f"{before}{new}{behind}")
    changes = (ROOT / "CHANGELOG.md").read_text()
    if "\n## Unreleased\n" not in changes:
        sys.exit("error: CHANGELOG.md has no section Unreleased")
    heading = f"\n## {new} - {time.strftime('%Y-%m-%d', time.gmtime())}\n"
    changed["CHANGELOG.md"] = changes.replace("\n## Unreleased\n", heading)
    for name, text in changed.items():
        (ROOT / name).write_text(text)
    # The lock files name the version of each crate.
    manifests = ["Cargo.toml", *sorted(path.relative_to(ROOT) for pattern in
                                       ("fuzz", "crates/*/fuzz", "bench/*")
                                       for path in ROOT.glob(f"{pattern}/Cargo.toml"))]
    for manifest in manifests:
        subprocess.run(["cargo", "update", "--workspace", "--offline", "--quiet",
                        "--manifest-path", manifest], cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
