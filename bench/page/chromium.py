"""Headless Chromium, driven by the DevTools protocol over a pair of pipes."""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import time

from compare.processes import Failed, started

NAMES = ("chromium", "chromium-browser", "google-chrome")
ANSWER_LIMIT_S = 60


def find():
    """The browser's program, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Tab:
    """A page in the browser: commands, and what its console said."""

    def __init__(self, commands, answers):
        self.commands, self.answers = commands, answers
        self.number, self.session, self.buffer = 0, None, b""
        self.said = []

    def _message(self, until):
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                return None
            chunk = os.read(self.answers, 1 << 20)
            if not chunk:
                raise Failed("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        parameters = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            detail = parameters["exceptionDetails"]
            words = detail.get("exception", {}).get("description", "")
            self.said.append(f"exception: {detail['text']} {words}")
        elif event.get("method") == "Log.entryAdded":
            entry = parameters["entry"]
            self.said.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Runtime.consoleAPICalled":
            values = [str(it.get("value", it.get("description"))) for it in parameters["args"]]
            self.said.append(f"console.{parameters['type']}: {' '.join(values)}")

    def call(self, method, **parameters):
        """Give a command and return its result."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + ANSWER_LIMIT_S
        while (answer := self._message(until)) is not None:
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)
        raise Failed(f"{method}: no answer")

    def rest(self, seconds):
        """Let time pass and note what the page says."""
        until = time.monotonic() + seconds
        while (event := self._message(until)) is not None:
            self._note(event)

    def open(self):
        """Make a page and attach to it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def show(self, url, width, height, dark=False, still=False):
        """Load a page in a window of this size."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=2 if phone else 1, mobile=phone)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                    {"name": "prefers-reduced-motion", "value": "reduce" if still else ""}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=url)

    def value(self, expression):
        """The value of an expression; a promise's, if it is one."""
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        if "exceptionDetails" in result:
            raise Failed(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, expression, limit_s=30):
        """Wait until an expression is true."""
        until = time.monotonic() + limit_s
        while not self.value(expression):
            if time.monotonic() > until:
                raise Failed(f"never: {expression}")
            self.rest(0.2)

    def key(self, key, **more):
        """Press a key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    def picture(self, path, whole=True):
        """Write what is shown, or the whole page, as PNG."""
        options = {"captureBeyondViewport": whole, "format": "png"}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            options["clip"] = {"x": 0, "y": 0, "width": size["width"],
                               "height": size["height"], "scale": 1}
        data = self.call("Page.captureScreenshot", **options)["data"]
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser(program, directory):
    """A tab of a browser of its own, which ends with the block."""
    from_us, commands = os.pipe()
    answers, from_it = os.pipe()
    # A shell puts the pipes where the browser expects them: 3 and 4.
    script = f'exec "$0" "$@" 3<&{from_us} 4>&{from_it}'
    options = ["--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--no-first-run",
               "--disable-dev-shm-usage", f"--user-data-dir={directory}", "--hide-scrollbars"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    command = ["bash", "-c", script, program, *options]
    with started(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                 pass_fds=(from_us, from_it)):
        os.close(from_us)
        os.close(from_it)
        tab = Tab(commands, answers)
        tab.open()
        try:
            yield tab
        finally:
            os.close(commands)
            os.close(answers)
