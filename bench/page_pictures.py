#!/usr/bin/env python3
"""Make the pictures of the page and of `tidegate top` in docs/pictures, from a real run.

A private PostgreSQL with pgbench's tables at scale 1, where more transactions at once mean more
waiting for the same rows, a proxy with default settings, and 200 clients of pgbench, of which a few
are of the class `high`. After a minute and a half the page is photographed in headless Chromium,
and the screen of `top` is written as SVG.

    bench/page_pictures.py --tidegate target/release/tidegate
"""

import argparse
import fcntl
import html
import os
import pathlib
import pty
import re
import struct
import sys
import tempfile
import termios
import time

from compare import script, servers
from compare.machine import ROOT
from compare.processes import catch_signals, started
from compare.script import say
from page import chromium, rig

COLUMNS, LINES = 104, 30
# The colours of `top`, by the codes that it writes.
LOOKS = {"0": "#d7e0de", "0;2": "#8a9996", "0;1": "#ffffff", "0;36": "#5cc7c4",
         "0;33": "#f0a35e", "0;1;31": "#ff8a8a"}
WIDTH, HEIGHT, MARGIN = 8.4, 18, 14


def screen(program, admin, seconds):
    """The lines on the terminal after some seconds of `tidegate top`, with their colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    command = [program, "top", f"127.0.0.1:{admin}"]
    seen = b""
    with started(command, stdin=theirs, stdout=theirs, stderr=theirs):
        until = time.monotonic() + seconds
        os.set_blocking(ours, False)
        while time.monotonic() < until:
            try:
                seen += os.read(ours, 1 << 16)
            except BlockingIOError:
                time.sleep(0.1)
        os.write(ours, b"q")
    os.close(ours)
    os.close(theirs)
    frames = seen.decode().split("\x1b[H")
    whole = [frame for frame in frames if frame.endswith("\x1b[J")]
    return whole[-1].removesuffix("\x1b[J").replace("\x1b[K", "").split("\r\n")


def svg(lines):
    """The lines as a picture."""
    width, height = COLUMNS * WIDTH + 2 * MARGIN, LINES * HEIGHT + 2 * MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" '
        f'font-family="ui-monospace, Menlo, Consolas, DejaVu Sans Mono, monospace" font-size="14">',
        f'<title>tidegate top</title><rect width="100%" height="100%" rx="8" fill="#0e1415"/>',
    ]
    for row, line in enumerate(lines):
        column, colour = 0, LOOKS["0"]
        for piece in re.split(r"(\x1b\[[\d;]*m)", line):
            code = re.fullmatch(r"\x1b\[([\d;]*)m", piece)
            if code:
                colour = LOOKS.get(code[1], LOOKS["0"])
                continue
            if piece.strip():
                left = len(piece) - len(piece.lstrip())
                text = piece.strip()
                x, y = MARGIN + (column + left) * WIDTH, MARGIN + (row + 0.75) * HEIGHT
                parts.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" xml:space="preserve" '
                             f'textLength="{len(text) * WIDTH:.1f}">{html.escape(text)}</text>')
            column += len(piece)
    return "\n".join([*parts, "</svg>", ""])


def main(options):
    """Start everything, wait, and take the pictures."""
    program = chromium.find()
    if program is None:
        sys.exit("there is no Chromium: apt-get install chromium")
    options.pictures.mkdir(parents=True, exist_ok=True)
    with script.directory("tidegate-page-") as directory, \
            tempfile.TemporaryDirectory() as profile, \
            servers.postgres(directory, 1, {"max_connections": 500}) as server, \
            rig.proxy(directory, server, options.tidegate) as proxy, \
            rig.load(server, proxy.port, 190), rig.load(server, proxy.port, 10, "till"):
        say(f"under load for {options.seconds} s")
        time.sleep(options.seconds)
        with chromium.browser(program, profile) as tab:
            for name, dark in (("page", False), ("page-dark", True)):
                tab.show(proxy.url, 1280, 1000, dark)
                tab.until('document.body && document.body.dataset.ready === "yes"')
                tab.rest(2)
                tab.picture(options.pictures / f"{name}.png", whole=False)
        (options.pictures / "top.svg").write_text(svg(screen(options.tidegate, proxy.admin, 4)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--seconds", type=int, default=90, help="how long the load lasts before")
    parser.add_argument("--pictures", type=pathlib.Path, default=ROOT / "docs" / "pictures")
    catch_signals()
    main(parser.parse_args())
