#!/usr/bin/env python3
"""Install, start, upgrade and remove what packaging/build.py has built, each in a place of its own.

The Debian package in a machine of its own with systemd, the container by Podman from the
Containerfile, the wheel in a virtual environment, the manifest against Kubernetes' schemas, and
the program by `cargo install` from a clone. A part whose tools are missing here is skipped, and
says which they are. Everything started here is stopped here.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv

import machine
from build import OUT, ROOT, output, version

SQL = "SELECT 41 + 1"
PSQL = "PGPASSWORD=secret psql -X -At -h 127.0.0.1 -p 6432 -U app -d shop"
SHOP = """
[databases.shop]
upstream = "postgres://127.0.0.1:5432/shop"
"""
WAIT_S = 30


class Skipped(Exception):
    """A part cannot be tried on this machine."""


def expect(holds, what):
    """Say what was checked, or end because it does not hold."""
    if not holds:
        raise AssertionError(what)
    print(f"  {what}", flush=True)


def wait_until(ready, what):
    """Wait until `ready()` is true."""
    until = time.monotonic() + WAIT_S
    while not ready():
        if time.monotonic() > until:
            raise AssertionError(f"still not so: {what}")
        time.sleep(0.1)


def need(*programs):
    """Skip a part without these programs."""
    absent = [name for name in programs if not shutil.which(name)]
    if absent:
        raise Skipped(f"not found: {', '.join(absent)}")


def package():
    """The Debian package of this version."""
    found = sorted(OUT.glob(f"tidegate_{version()}_*.deb"))
    if not found:
        sys.exit("error: no package in out/packages: make package")
    return found[0]


def next_package(directory):
    """A package of a later version, whose configuration file is another one."""
    root = directory / "later"
    output("dpkg-deb", "--raw-extract", package(), root)
    control = root / "DEBIAN/control"
    control.write_text(re.sub(r"(?m)^Version: .*", r"\g<0>+later", control.read_text()))
    settings = root / "etc/tidegate/tidegate.toml"
    settings.write_text(settings.read_text() + "# A later version says more.\n")
    later = directory / "later.deb"
    output("dpkg-deb", "--root-owner-group", "-Znone", "--build", root, later)
    return later


def files_of(host):
    """The files of a machine, but for those that any installation changes."""
    found = host.run("find / -xdev \\( -path /proc -o -path /sys -o -path /run -o -path /tmp"
                     " -o -path /var/lib/dpkg -o -path /var/log -o -path /var/cache"
                     " -o -path /var/lib/postgresql -o -path /var/tmp \\) -prune -o -print")
    ignored = ("/etc/passwd-", "/etc/group-", "/etc/shadow-", "/etc/gshadow-", "/etc/subuid-",
               "/etc/subgid-", "/etc/.pwd.lock", "/var/lib/systemd")
    return {line for line in found.splitlines() if not line.startswith(ignored)}


def try_lint():
    """Check the package by Lintian: no errors, and warnings are printed."""
    need("lintian")
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", package()],
                          text=True, stdout=subprocess.PIPE, check=False)
    print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="")
    expect(done.returncode == 0, "lintian finds no error")


def install(host):
    """Install the package where it has never been."""
    host.run("dpkg --install /var/tmp/tidegate.deb")
    found = host.run("stat -c '%A %U:%G %n' /etc/tidegate /etc/tidegate/tidegate.toml")
    expect(found.split("\n")[:2] == ["drwxr-x--- root:tidegate /etc/tidegate",
                                     "-rw-r----- root:tidegate /etc/tidegate/tidegate.toml"],
           "the configuration is root's, and its group may read it")
    expect(host.run("systemctl is-active tidegate", check=False).strip() == "inactive",
           "nothing is started before a database is named")
    host.fails("systemctl start tidegate && sleep 1 && systemctl is-active tidegate")
    wait_until(lambda: "failed" in host.run("systemctl is-failed tidegate", check=False), "failed")
    expect("no database" in host.run("journalctl -u tidegate --no-pager"),
           "a start without a database fails, once, and says why")
    host.run("systemctl reset-failed tidegate")
    verified = host.run("systemd-analyze verify --man=no tidegate.service 2>&1")
    expect(verified.strip() == "", "systemd-analyze verify has nothing to say")
    exposure = host.run("systemd-analyze security --no-pager tidegate.service | tail -1")
    print(f"  {exposure.strip()}")


def configure_and_start(host):
    """Name a database, and start."""
    host.run("runuser -u postgres -- psql -c \"CREATE ROLE app LOGIN PASSWORD 'secret'\" "
             "-c 'CREATE DATABASE shop OWNER app'")
    settings = host.path("/etc/tidegate/tidegate.toml")
    text = settings.read_text().replace('# users_file = "users.txt"', 'users_file = "users.txt"')
    settings.write_text(text + SHOP)
    users = host.path("/etc/tidegate/users.txt")
    users.write_text('"app" "secret"\n')
    host.run("chown root:tidegate /etc/tidegate/users.txt; chmod 640 /etc/tidegate/users.txt")
    host.run("runuser -u tidegate -- tidegate check-config /etc/tidegate/tidegate.toml")
    host.run("systemctl enable --now tidegate")
    wait_until(lambda: "ok" in host.run("tidegate probe", check=False), "it is healthy")
    expect(host.run(f"{PSQL} -c '{SQL}'").strip() == "42", "a query goes through it")
    status = host.run(f"cat /proc/{pid(host)}/status")
    expect(re.search(r"(?m)^CapEff:\s+0+$", status) and re.search(r"(?m)^Seccomp:\s+2$", status)
           and not re.search(r"(?m)^Uid:\s+0", status),
           "it runs without root, without capabilities, and with filtered system calls")


def pid(host):
    """The process of the proxy, as the machine counts."""
    return host.run("systemctl show --property MainPID --value tidegate").strip()


def reload(host):
    """A wrong file is refused and named; a right one is read."""
    settings, before = host.path("/etc/tidegate/tidegate.toml"), pid(host)
    right = settings.read_text()
    settings.write_text(right + "nonsense = 1\n")
    host.fails("systemctl reload tidegate")
    settings.write_text(right)
    expect("nonsense" in host.run("journalctl -u tidegate --no-pager"),
           "a wrong file is refused by `systemctl reload`, and its mistake is named")
    host.run("systemctl reload tidegate")
    expect(host.run(f"{PSQL} -c '{SQL}'").strip() == "42" and pid(host) == before,
           "a right one is read by the same process")


def upgrade(host):
    """A later version keeps the configuration, and takes over from the one that runs."""
    settings = host.path("/etc/tidegate/tidegate.toml").read_text()
    before = pid(host)
    host.run("dpkg --force-confold --install /var/tmp/later.deb")
    expect(host.path("/etc/tidegate/tidegate.toml").read_text() == settings,
           "an upgrade keeps the configuration")
    wait_until(lambda: "ok" in host.run("tidegate probe", check=False), "it is healthy")
    expect(pid(host) != before and host.run(f"{PSQL} -c '{SQL}'").strip() == "42",
           "an upgrade restarts the proxy, which answers")


def remove(host, files):
    """Nothing is left."""
    host.run("dpkg --remove tidegate")
    expect(host.run("systemctl is-active tidegate", check=False).strip() == "inactive"
           and host.path("/etc/tidegate/tidegate.toml").exists(),
           "a removal stops it and keeps the configuration")
    host.run("rm /etc/tidegate/users.txt")
    host.run("dpkg --purge tidegate")
    left = files_of(host) - files
    expect(not left, f"a purge leaves nothing{': ' if left else ''}{' '.join(sorted(left))}")
    host.fails("getent passwd tidegate")


def try_debian():
    """The Debian package, from its installation to its purge."""
    need(*machine.NEEDED)
    archive = machine.image("ca-certificates", "postgresql")
    with tempfile.TemporaryDirectory() as directory, \
            machine.booted(archive, "--private-network") as host:
        shutil.copy(package(), host.path("/var/tmp/tidegate.deb"))
        shutil.copy(next_package(pathlib.Path(directory)), host.path("/var/tmp/later.deb"))
        files = files_of(host)
        install(host)
        configure_and_start(host)
        reload(host)
        upgrade(host)
        remove(host, files)


def try_wheel():
    """The wheel in a virtual environment, with the program that finds it."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        venv.create(place / "venv", with_pip=True)
        python = place / "venv/bin/python"
        wheel = OUT / f"tidegate_analysis-{version()}-py3-none-any.whl"
        pip = [python, "-m", "pip", "install", "--quiet"]
        output(*pip, "--require-hashes", "-r", ROOT / "analysis/requirements.lock")
        output(*pip, "--no-deps", wheel)
        said = output(python, "-c", "import tidegate_analysis as ta; print(ta.__version__)")
        expect(said.strip() == version(), f"the wheel is installed, version {version()}")
        store = place / "results.db"
        tidegate = OUT / "tidegate"
        output(tidegate, "lab", "--store", store, "run", "quick", cwd=place)
        environment = {**os.environ, "TIDEGATE_PYTHON": str(python)}
        output(tidegate, "report", "--store", store, "--out", place / "report", "1", cwd=place,
               env=environment)
        expect(any((place / "report").glob("*.html")),
               "an experiment within the program is run, and `tidegate report` finds the wheel")


def try_manifest():
    """The manifest of Kubernetes, against the schemas of its versions."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        venv.create(place / "venv", with_pip=True)
        output(place / "venv/bin/python", "-m", "pip", "install", "--quiet", "kubernetes-validate")
        validate = place / "venv/bin/kubernetes-validate"
        manifest = ROOT / "packaging/kubernetes/tidegate.yaml"
        output(validate, "--strict", manifest)
        broken = place / "broken.yaml"
        broken.write_text(manifest.read_text().replace("replicas: 2", "replica: 2"))
        done = subprocess.run([validate, "--strict", broken], capture_output=True, check=False)
        expect(done.returncode != 0, "the manifest is valid, and a mistake in it would be found")


def podman(place, *words):
    """Run Podman with storage of its own."""
    return output("podman", "--root", place / "storage", "--runroot", place / "run",
                  "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs",
                  "--runtime", "runc", *words, stderr=subprocess.PIPE)


def try_container():
    """The container: built from its file, run without root on a read-only root file system."""
    need("podman", "buildah", "runc", "ldd")
    with tempfile.TemporaryDirectory(prefix="tidegate-container-") as directory:
        place = pathlib.Path(directory)
        place.chmod(0o755)
        build_image(place)
        run_image(place)


def build_image(place):
    """Build the image on the C library alone, with the program that is built already."""
    context = place / "context"
    program = context / "tidegate"
    context.mkdir()
    shutil.copy(OUT / "tidegate", program)
    for library in re.findall(r"(/\S+) \(0x", output("ldd", program)):
        copy = context / "base" / library.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, copy)
    authorities = context / "base/etc/ssl/certs/ca-certificates.crt"
    authorities.parent.mkdir(parents=True)
    shutil.copy("/etc/ssl/certs/ca-certificates.crt", authorities)
    text = (ROOT / "packaging/container/Containerfile").read_text()
    head, first, last = re.split(r"(?m)^(?=FROM )", text)
    expect("AS build" in first and "cargo build" in first, "the first stage builds the program")
    build = ["build", "--format", "docker", "--isolation", "chroot"]
    for name, lines in (
            ("base", "FROM scratch\nCOPY base /\n"),
            ("build", "FROM localhost/base\nCOPY tidegate /tidegate\n")):
        file = context / f"{name}.file"
        file.write_text(lines)
        podman(place, *build, "--file", file, "--tag", f"localhost/{name}", context)
    file = context / "tidegate.file"
    file.write_text(f"{head}FROM localhost/build AS build\n\n{last}")
    podman(place, *build, "--build-arg", "BASE=localhost/base", "--file", file,
           "--tag", "localhost/tidegate", context)
    config = json.loads(podman(place, "image", "inspect", "localhost/tidegate"))[0]["Config"]
    expect(config["User"] == "65532:65532", "the image runs as a user without rights")


def run_image(place):
    """Run the image, without anything to write to, and ask it for its health."""
    settings = place / "tidegate.toml"
    settings.write_text('listen = ["127.0.0.1:6432"]\nadmin_listen = "127.0.0.1:9432"\n'
                        '[databases."*"]\nupstream = "postgres://127.0.0.1:5432"\n')
    podman(place, "run", "--detach", "--name", "tidegate", "--read-only",
           "--network=none", "--cap-drop=all", "--security-opt=no-new-privileges",
           # Bounds that need no privilege to set.
           "--ulimit=nofile=1024:1024",
           "--ulimit=nproc=1024:1024",
           "--volume", f"{settings}:/etc/tidegate/tidegate.toml:ro", "localhost/tidegate")
    try:
        def probe():
            try:
                return "ok" in podman(place, "exec", "tidegate", "/usr/bin/tidegate", "probe")
            except subprocess.CalledProcessError:
                return False
        wait_until(probe, "the container is healthy")
        podman(place, "healthcheck", "run", "tidegate")
        expect(True, "it is healthy on a read-only root file system")
        podman(place, "stop", "--time", "20", "tidegate")
        state = json.loads(podman(place, "inspect", "tidegate"))[0]["State"]
        expect(state["ExitCode"] == 0, "SIGTERM ends it, and its exit code is 0")
    finally:
        podman(place, "rm", "--force", "tidegate")


def try_cargo():
    """`cargo install` from a clone."""
    with tempfile.TemporaryDirectory() as directory:
        place = pathlib.Path(directory)
        output("git", "clone", "--quiet", ROOT, place / "tidegate")
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target"))
        output("cargo", "install", "--quiet", "--locked", "--path", place / "tidegate/crates/cli",
               "--root", place / "installed", env={**os.environ, "CARGO_TARGET_DIR": target})
        said = output(place / "installed/bin/tidegate", "--version")
        expect(said.split()[1] == version(), f"cargo install gives {said.strip()}")


PARTS = {"lint": try_lint, "debian": try_debian, "container": try_container,
         "manifest": try_manifest, "wheel": try_wheel, "cargo": try_cargo}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=PARTS, action="append", help="try only this")
    options = parser.parse_args()
    passed, failed, skipped = 0, 0, 0
    for name in options.only or PARTS:
        print(f"{name}:", flush=True)
        try:
            PARTS[name]()
            passed += 1
        except Skipped as reason:
            print(f"  skipped: {reason}")
            skipped += 1
        except (AssertionError, machine.MachineError, OSError,
                subprocess.CalledProcessError) as error:
            said = [getattr(error, name, None) or "" for name in ("stdout", "stderr")]
            print(f"  FAILED: {error} {' '.join(said)}")
            failed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
