"""A Debian in a directory, made from the archive that this machine uses, to install packages in.

It is booted by systemd-nspawn, as a machine of its own: processes, users, services. Commands run
within it. It needs root, mmdebstrap and systemd-container, and is removed at the end.
"""

import contextlib
import pathlib
import shutil
import subprocess
import tempfile
import time

from build import ROOT, output

SUITE = "bookworm"
CACHE = ROOT / "out/package-test"
BOOT_LIMIT_S = 120
# Nothing is started while packages are installed into a directory.
NEEDED = ("mmdebstrap", "systemd-nspawn", "nsenter")


class MachineError(Exception):
    """A command within the machine failed, or the machine did not start."""


def missing():
    """The programs that this module needs and that are not here."""
    return [name for name in NEEDED if not shutil.which(name)]


def image(*packages):
    """Return an archive of a Debian that has these packages; it is made once and kept."""
    archive = CACHE / f"{SUITE}-{'-'.join(sorted(packages))}.tar"
    if not archive.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        part = archive.with_suffix(".part.tar")
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=minbase", SUITE, part,
             f"--include={','.join(['systemd-sysv', *packages])}"], check=True)
        part.rename(archive)
    return archive


class Machine:
    """A machine that runs; its files are below `root`."""

    def __init__(self, root, process):
        self.root, self.process = root, process
        self.leader = None

    def wait(self):
        """Wait until the machine has started its services."""
        until = time.monotonic() + BOOT_LIMIT_S
        while time.monotonic() < until and self.process.poll() is None:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
            for child in children.read_text().split():
                comm = pathlib.Path(f"/proc/{child}/comm").read_text().strip()
                if comm in ("systemd", "init"):
                    self.leader = child
            if self.leader and self.run("systemctl is-system-running", check=False).strip() in (
                    "running", "degraded"):
                return
            time.sleep(0.2)
        raise MachineError(f"no machine has started in {self.root}")

    def run(self, command, check=True):
        """Run a command of the shell within the machine; return what it prints."""
        enter = ["nsenter", "--target", self.leader, "--mount", "--uts", "--ipc", "--net", "--pid"]
        done = subprocess.run(
            [*enter, "--", "/usr/bin/env", "-i", "DEBIAN_FRONTEND=noninteractive", "LANG=C.UTF-8",
             "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp",
             "/bin/sh", "-c", command],
            check=False, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        if check and done.returncode != 0:
            raise MachineError(f"{command}: exit code {done.returncode}: {done.stdout[-2000:]}")
        return done.stdout

    def fails(self, command):
        """Run a command that must fail; return what it prints."""
        text = self.run(f"if {command}; then echo SUCCEEDED; fi")
        if "SUCCEEDED" in text:
            raise MachineError(f"{command} did not fail: {text}")
        return text

    def path(self, path):
        """Where a file of the machine is."""
        return self.root / path.lstrip("/")


@contextlib.contextmanager
def booted(archive, *options):
    """A machine made from an archive, booted, with more options for systemd-nspawn."""
    with tempfile.TemporaryDirectory(prefix="tidegate-machine-") as directory:
        root = pathlib.Path(directory, "root")
        root.mkdir()
        output("tar", "--extract", "--file", archive, "--directory", root)
        for service in ("systemd-resolved", "systemd-timesyncd", "console-getty"):
            link = root / f"etc/systemd/system/{service}.service"
            link.unlink(missing_ok=True)
            link.symlink_to("/dev/null")
        command = ["systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot",
                   "--console=pipe", f"--directory={root}", *options]
        with (pathlib.Path(directory) / "console").open("w") as console:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=console,
                                       stderr=subprocess.STDOUT)
        try:
            machine = Machine(root, process)
            machine.wait()
            yield machine
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
