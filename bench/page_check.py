#!/usr/bin/env python3
"""Look at the page in headless Chromium, as people with different screens and senses would.

Starts a private PostgreSQL, a proxy, clients, and one client whose user, database and application
have hostile names. Checks that the browser's console is silent, that nothing overflows on a phone,
that names are shown and not obeyed, that everything can be reached and used by keyboard, that an
order works with the token, and what axe-core (from npm, unless --without-axe) says about
accessibility. Writes pictures into a directory. Ends with exit code 1 if a check fails, and says so
and ends with 0 if there is no Chromium.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

from compare import script, servers
from compare.machine import ROOT
from compare.processes import Failed, catch_signals
from compare.script import say
from page import chromium, rig

SHAPES = {
    "desktop": {"width": 1360, "height": 900},
    "dark": {"width": 1360, "height": 900, "dark": True},
    "phone": {"width": 390, "height": 844},
    "phone-dark": {"width": 390, "height": 844, "dark": True, "still": True},
}
READY = 'document.body && document.body.dataset.ready === "yes"'
AXE = "axe-core@4"
NPM_LIMIT_S = 180
# What has the focus, and whether that can be seen.
FOCUS = """(() => {
  const it = document.activeElement, style = getComputedStyle(it);
  if (it === document.body) return {name: "", seen: true};
  return {name: it.id || it.dataset.order || it.getAttribute("aria-label") || it.textContent.trim(),
          seen: style.outlineStyle !== "none" || it.matches(".skip")};
})()"""
# By keyboard these have to be reached.
REACHED = ("Skip to the figures", "still", "whatif", "As a table", "moves", "token", "database",
           "pause", "resume", "pinned", "pin", "observe", "control", "Who waits", "Decisions")


def check(holds, words):
    """Fail unless something holds."""
    if not holds:
        raise Failed(words)


def shapes(tab, url, pictures):
    """Load the page on each screen, and look at it."""
    for name, shape in SHAPES.items():
        tab.show(url, **shape)
        tab.until(READY)
        tab.rest(2)
        width = tab.value("document.documentElement.scrollWidth")
        check(width <= shape["width"], f"{name}: the page is {width} wide")
        check(not tab.said, f"{name}: the console says {tab.said}")
        tab.picture(pictures / f"page-{name}.png", whole=True)
        say(f"{name}: shown, and the console is silent")


def hostile(tab):
    """Names from outside are text."""
    tab.until(f"document.getElementById('holders').textContent.includes({json.dumps(rig.HOSTILE)})")
    check(tab.value("document.querySelectorAll('img').length") == 0, "a name became an element")
    check(tab.value("document.title").endswith("Tidegate"), "a name was obeyed")
    say("hostile names are shown and not obeyed")


def keyboard(tab):
    """Walk through the page by Tab, and use the slider by arrow keys."""
    tab.call("Page.bringToFront")
    tab.value("document.activeElement.blur()")
    seen = []
    for _ in range(60):
        tab.key("Tab", code="Tab", windowsVirtualKeyCode=9)
        focus = tab.value(FOCUS)
        check(focus["seen"], f"the focus on {focus['name']!r} cannot be seen")
        if focus["name"] in seen or (seen and not focus["name"]):
            break
        seen.append(focus["name"])
    missing = [name for name in REACHED if name not in seen]
    check(not missing, f"not reached by keyboard: {missing}; reached: {seen}")
    tab.value("document.getElementById('whatif').focus()")
    tab.until("document.getElementById('whatif').max > 2", limit_s=60)
    said = set()
    for _ in range(3):
        tab.key("ArrowLeft", code="ArrowLeft", windowsVirtualKeyCode=37)
        tab.rest(0.3)
        said.add(tab.value("document.getElementById('whatif').getAttribute('aria-valuetext')"))
    check(len(said) == 3, f"arrow keys do not move the slider: {said}")
    say(f"{len(seen)} places are reached by keyboard, and the slider speaks")


def hold_still(tab):
    """The figures stop when told to, and go on."""
    button = "document.getElementById('still').click()"
    figures = "document.getElementById('facts').textContent"
    tab.value(button)
    before = tab.value(figures)
    tab.rest(3)
    check(tab.value(figures) == before, "the page does not hold still")
    tab.value(button)
    tab.rest(2)
    check(tab.value(figures) != before, "the page does not go on")
    say("it holds still when asked to")


def order(tab, proxy):
    """Pin a limit with the token, and let it go again."""
    tab.value(f"""(() => {{ document.getElementById('token').value = {json.dumps(rig.TOKEN)};
        document.getElementById('pinned').value = 7;
        document.querySelector('[data-order=pin]').click(); }})()""")
    tab.value("document.getElementById('yes').click()")
    tab.until("document.getElementById('answer').textContent.includes('in force')")
    tab.until("document.getElementById('control').textContent.includes('fixed:7')")
    check(proxy.status()["servers"][0]["limit"] == 7, "the limit was not pinned")
    tab.value("document.getElementById('token').value = 'wrong-token-wrong-token'")
    tab.value("document.querySelector('[data-order=control]').click()")
    tab.until("document.getElementById('answer').textContent.includes('wrong')")
    check(any("401" in line for line in tab.said), "the refusal is not seen")
    tab.said.clear()
    tab.value(f"document.getElementById('token').value = {json.dumps(rig.TOKEN)}")
    tab.value("document.querySelector('[data-order=control]').click()")
    tab.until("document.getElementById('control').textContent.includes('As configured')")
    say("an order is obeyed with the token, and refused without it")


def accessibility(tab, directory):
    """Have axe-core look at the page."""
    quiet = {"check": True, "capture_output": True, "timeout": NPM_LIMIT_S}
    subprocess.run(["npm", "install", "--prefix", directory, "--no-audit", AXE], **quiet)
    source = (directory / "node_modules" / "axe-core" / "axe.min.js").read_text()
    for dark in (False, True):
        tab.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        tab.rest(1)
        tab.call("Runtime.evaluate", expression=source)
        found = tab.value("axe.run().then(found => found.violations.map(it => ({id: it.id, "
                          "help: it.help, nodes: it.nodes.map(node => node.html)})))")
        check(not found, f"axe-core ({'dark' if dark else 'light'}): {json.dumps(found, indent=1)}")
        rules = tab.value("axe.run().then(found => found.passes.length)")
        say(f"axe-core, {'dark' if dark else 'light'}: {rules} rules hold, none is violated")


def main(options):
    """Start everything, and look."""
    program = chromium.find()
    if program is None:
        say("skipped: there is no Chromium")
        return
    options.pictures.mkdir(parents=True, exist_ok=True)
    with script.directory("tidegate-page-") as directory, \
            tempfile.TemporaryDirectory() as profile, \
            servers.postgres(directory, 1) as server, \
            rig.proxy(directory, server, options.tidegate) as proxy, \
            rig.load(server, proxy.port, 60), rig.load(server, proxy.port, 4, "till"), \
            rig.hostile_client(server, proxy.port), \
            chromium.browser(program, profile) as tab:
        tab.rest(25)
        shapes(tab, proxy.url, options.pictures)
        tab.show(proxy.url, **SHAPES["desktop"])
        tab.until(READY)
        hostile(tab)
        keyboard(tab)
        hold_still(tab)
        order(tab, proxy)
        if not options.without_axe:
            accessibility(tab, directory)
        check(not tab.said, f"the console says {tab.said}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tidegate", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--pictures", type=pathlib.Path, default=ROOT / "out" / "page",
                        help="where pictures go (default: out/page)")
    parser.add_argument("--without-axe", action="store_true", help="do not use npm")
    catch_signals()
    try:
        main(parser.parse_args())
    except (Failed, subprocess.CalledProcessError, subprocess.TimeoutExpired) as failed:
        sys.exit(f"failed: {failed}")
