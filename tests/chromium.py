"""A headless Chromium for tests marked `browser`, driven over a pipe by the DevTools protocol."""

import base64
import contextlib
import fcntl
import functools
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile

import pytest

PATIENCE_S = 120.0
#: Moves the pipe to the numbers where Chromium expects it.
CONNECT = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"
)
HOW = "no Chromium here: install it (Debian: apt install chromium) and run pytest -m browser"


@functools.cache
def browser():
    """Return the path of Chromium, "" without it."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), ""
    )


def needs_browser(test):
    """Mark a test that needs a browser; it is one of the slow tests."""
    return pytest.mark.browser(pytest.mark.slow(pytest.mark.skipif(not browser(), reason=HOW)(test)))


class Tab:
    """A page in the browser; `errors` are what its console said."""

    def __init__(self, pipe, session, target):
        self._pipe, self._session, self._target, self.errors = pipe, session, target, []

    def call(self, method, **params):
        """Call a method of the protocol; return its result."""
        return self._pipe.call(method, params, self._session)

    def run(self, script):
        """Return the value of an expression, also of a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, condition):
        """Wait until an expression is true."""
        look = f"""new Promise((go) => {{
          const look = () => {{ if ({condition}) go(true); else setTimeout(look, 10); }}; look();
        }})"""
        assert self.run(look)

    def size(self, width, height, dark=False, calm=False, media=""):
        """Set the size of the window, colors, motion and the medium."""
        phone = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        features = {
            "color-scheme": "dark" if dark else "light",
            "reduced-motion": "reduce" if calm else "no-preference",
        }
        values = [{"name": f"prefers-{name}", "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=values)

    def open(self, url):
        """Open a page and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def press(self, key, text=""):
        """Press and release a key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def click(self, x, y):
        """Click a point of the window."""
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drag(self, x, y, to_x, to_y):
        """Press the button at a point of the window, and release it at another one."""
        points = [("mousePressed", x, y), ("mouseMoved", (x + to_x) / 2, (y + to_y) / 2)]
        for kind, at_x, at_y in [*points, ("mouseMoved", to_x, to_y), ("mouseReleased", to_x, to_y)]:
            self.call("Input.dispatchMouseEvent", type=kind, x=at_x, y=at_y, button="left", buttons=1, clickCount=1)

    def picture(self, whole=True):
        """Return a picture of the page as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])


class _Pipe:
    def __init__(self, process, send, receive):
        self._process, self._send, self._receive = process, send, receive
        self._numbers, self._rest, self.tabs = itertools.count(1), b"", {}

    def call(self, method, params, session=None):
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self._note(answer)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _next(self):
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._receive], [], [], PATIENCE_S)
            assert ready, f"the browser did not answer in {PATIENCE_S:g} s"
            more = os.read(self._receive, 2**20)
            assert more, "the browser ended"
            self._rest += more
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def _note(self, event):
        tab, about = self.tabs.get(event.get("sessionId")), event.get("params", {})
        if tab is None:
            return
        if event["method"] == "Runtime.exceptionThrown":
            tab.errors.append(about["exceptionDetails"])
        elif event["method"] == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
            tab.errors.append(about["entry"])
        elif event["method"] == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
            tab.errors.append(about)


@contextlib.contextmanager
def a_tab(width=1280, height=900, **look):
    """Start a browser for the block, with one tab."""
    ends = [*os.pipe(), *os.pipe()]
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    theirs_in, ours_out, ours_in, theirs_out = high

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        begin = [sys.executable, "-SEc", CONNECT, str(theirs_in), str(theirs_out)]
        process = subprocess.Popen(
            [*begin, browser(), *flags, "--remote-debugging-pipe", "about:blank"],
            pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            pipe = _Pipe(process, ours_out, ours_in)
            target = pipe.call("Target.createTarget", {"url": "about:blank"})["targetId"]
            session = pipe.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
            tab = pipe.tabs[session] = Tab(pipe, session, target)
            for domain in ("Page", "Runtime", "Log"):
                tab.call(f"{domain}.enable")
            tab.size(width, height, **look)
            yield tab
            pipe.call("Browser.close", {})
            process.wait(timeout=PATIENCE_S)
        finally:
            process.kill()
            process.wait()
            os.close(ours_out)
            os.close(ours_in)
