#!/usr/bin/env python3
"""Build what is released into out/packages: the program, the Debian package, and the wheel.

The program is the release build, whose debug information goes into a file of its own, so that what
is shipped is what was measured. The version is that of Cargo.toml. The same commit gives the same
package, byte for byte: all times are those of the commit.
"""

import argparse
import gzip
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEBIAN = ROOT / "packaging/debian"
OUT = ROOT / "out/packages"
PROGRAM_MAX_BYTES = 15_000_000
# Where each file of the package comes from, and where it goes.
FILES = {
    "packaging/debian/tidegate.service": "usr/lib/systemd/system/tidegate.service",
    "packaging/debian/tidegate.toml": "etc/tidegate/tidegate.toml",
    "packaging/debian/copyright": "usr/share/doc/tidegate/copyright",
    "docs/tidegate.toml": "usr/share/doc/tidegate/examples/tidegate.toml",
}
SCRIPTS = ("postinst", "prerm", "postrm")


def version():
    """The version of the workspace."""
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]


def output(*words, **others):
    """What a command prints."""
    words = [str(word) for word in words]
    return subprocess.run(words, check=True, text=True, stdout=subprocess.PIPE, **others).stdout


def commit_time():
    """When the commit was made, in seconds; now where there is no repository."""
    try:
        return int(output("git", "-C", ROOT, "log", "-1", "--format=%ct"))
    except (OSError, subprocess.CalledProcessError):
        return int(time.time())


def build_program(wanted):
    """Return the stripped program, of a release build that is made unless one is given."""
    if wanted is None:
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", "target"))
        locked = ["--locked"] if os.environ.get("CI") else []
        output("cargo", "build", "--release", *locked, "-p", "tidegate-cli", cwd=ROOT)
        wanted = ROOT / target / "release/tidegate"
    program, symbols = OUT / "tidegate", OUT / "tidegate.debug"
    output("objcopy", "--only-keep-debug", "--compress-debug-sections", wanted, symbols)
    output("objcopy", "--strip-all", f"--add-gnu-debuglink={symbols}", wanted, program)
    size = program.stat().st_size
    print(f"{program.relative_to(ROOT)}: {size / 1e6:.1f} MB")
    if size > PROGRAM_MAX_BYTES:
        sys.exit(f"error: the program has more than {PROGRAM_MAX_BYTES:,} bytes")
    return program


def filled(text, **values):
    """A text with values in place of their names."""
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def commands(program):
    """The commands of the program, as its help has them, for the manual."""
    lines = output(program, "--help", env={**os.environ, "COLUMNS": "200"}).splitlines()
    listed = lines[lines.index("Commands:") + 1:]
    listed = listed[:listed.index("")]
    pairs = (line.split(maxsplit=1) for line in listed if not line.startswith("  help "))
    entry = ".TP\n.B {}\n{}.".format
    return "\n".join(entry(name.replace("-", "\\-"), about) for name, about in pairs)


def libraries(program):
    """The packages of the libraries that the program needs, with their versions."""
    with tempfile.TemporaryDirectory() as directory:
        control = pathlib.Path(directory, "debian/control")
        control.parent.mkdir()
        control.write_text("Source: tidegate\n\nPackage: tidegate\nArchitecture: any\n")
        found = output("dpkg-shlibdeps", "-O", program, cwd=directory, stderr=subprocess.DEVNULL)
    return found.split("=", 1)[1].strip()


def put(path, content, mode=0o644):
    """Write a file, and its directories, with modes that no umask changes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)


def compressed(text):
    """A text as Debian wants documentation: compressed, without a time."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def fill_tree(root, program, epoch):
    """Put all files of the package below a directory."""
    for source, place in FILES.items():
        put(root / place, (ROOT / source).read_bytes())
    for path in sorted((ROOT / "packaging/monitoring").glob("*")):
        put(root / "usr/share/tidegate/monitoring" / path.name, path.read_bytes())
    put(root / "usr/bin/tidegate", program.read_bytes(), 0o755)
    (root / "etc/tidegate/tidegate.toml").chmod(0o640)
    day = time.strftime("%Y-%m-%d", time.gmtime(epoch))
    manual = (DEBIAN / "tidegate.1").read_text()
    manual = filled(manual, VERSION=version(), DATE=day, COMMANDS=commands(program))
    put(root / "usr/share/man/man1/tidegate.1.gz", compressed(manual))
    documents = root / "usr/share/doc/tidegate"
    put(documents / "NEWS.md.gz", compressed((ROOT / "CHANGELOG.md").read_text()))
    when = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(epoch))
    maintainer = re.search(r"Maintainer: (.*)", (DEBIAN / "control").read_text())[1]
    put(documents / "changelog.gz", compressed(
        f"tidegate ({version()}) unstable; urgency=medium\n\n  * See NEWS.md.gz.\n\n"
        f" -- {maintainer}  {when}\n"))


def build_debian(program):
    """Build the Debian package."""
    epoch = commit_time()
    architecture = output("dpkg", "--print-architecture").strip()
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory, "tidegate")
        root.mkdir()
        fill_tree(root, program, epoch)
        files = [path for path in sorted(root.rglob("*")) if path.is_file()]
        size = sum(-(-path.stat().st_size // 1024) for path in files)
        sums = ((hashlib.md5(path.read_bytes()).hexdigest(), path.relative_to(root))
                for path in files if "etc" not in path.relative_to(root).parts)
        control = filled((DEBIAN / "control").read_text(), VERSION=version(), SIZE_KIB=size,
                         ARCHITECTURE=architecture, LIBRARIES=libraries(program))
        put(root / "DEBIAN/control", control)
        put(root / "DEBIAN/conffiles", "/etc/tidegate/tidegate.toml\n")
        put(root / "DEBIAN/md5sums", "".join(f"{digest}  {path}\n" for digest, path in sums))
        for script in SCRIPTS:
            put(root / "DEBIAN" / script, (DEBIAN / script).read_bytes(), 0o755)
        for path in [root, *root.rglob("*")]:
            if path.is_dir():
                path.chmod(0o755)
        package = OUT / f"tidegate_{version()}_{architecture}.deb"
        output("dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, package,
               env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    print(f"{package.relative_to(ROOT)}: {package.stat().st_size / 1e6:.1f} MB")
    return package


def build_wheel():
    """Build the wheel of the analysis."""
    with tempfile.TemporaryDirectory() as directory:
        # A copy, because the build leaves files beside the sources.
        source = pathlib.Path(directory, "analysis")
        shutil.copytree(ROOT / "analysis", source, ignore=shutil.ignore_patterns(
            ".venv", "build", "*.egg-info", ".*_cache", "__pycache__"))
        output(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps",
               "--wheel-dir", OUT, source,
               env={**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())})
    wheel = OUT / f"tidegate_analysis-{version()}-py3-none-any.whl"
    if not wheel.exists():
        sys.exit(f"error: the wheel is not called {wheel.name}: is its version another one?")
    print(f"{wheel.relative_to(ROOT)}: {wheel.stat().st_size / 1e3:.0f} kB")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, help="a program that is built already")
    parser.add_argument("--only", choices=["debian", "wheel"], help="build only this")
    options = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    if options.only != "wheel":
        build_debian(build_program(options.program))
    if options.only != "debian":
        build_wheel()


if __name__ == "__main__":
    main()
