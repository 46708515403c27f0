"""A headless chromium, driven over its DevTools pipe (fds 3 and 4, JSON ended by a zero byte): nothing to install."""

import base64
import fcntl
import json
import os
import select
import shutil
import time
from pathlib import Path

PROGRAM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)  # fmt: skip
SECONDS = 60


class Browser:
    """One page of one browser. `events` are what the page told: errors, console, requests."""

    def __init__(self, profile: Path) -> None:
        ours_in, theirs_out = (_high(fd) for fd in os.pipe())
        theirs_in, ours_out = (_high(fd) for fd in os.pipe())
        self.reader, self.writer = ours_in, ours_out
        actions = [(os.POSIX_SPAWN_DUP2, theirs_in, 3), (os.POSIX_SPAWN_DUP2, theirs_out, 4)]
        actions += [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        command = [PROGRAM, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = os.posix_spawn(PROGRAM, command, os.environ, file_actions=actions)
        os.close(theirs_in)
        os.close(theirs_out)
        self.buffer, self.number, self.events, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_) -> None:
        self.session = None
        try:
            self.call("Browser.close")
        finally:
            os.close(self.writer)
            os.close(self.reader)
            os.waitpid(self.process, 0)

    def call(self, method: str, **parameters):
        """Send a command and wait for its answer; events that come before it are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self.number:
            self.events.append(answer)
        assert "error" not in answer, f"{method}: {answer['error']}"
        return answer["result"]

    def open(self, page: Path | str, *, width: int, height: int = 900, dark: bool = False) -> None:
        """Open a file, or an address, and wait until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events = []
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def run(self, expression: str):
        """The value of a JavaScript expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def go(self, fragment: str) -> None:
        """Open the same page at another #fragment, and wait until it is read."""
        self.run(f"location.hash = {json.dumps(fragment)}")
        self.call("Runtime.evaluate", expression="new Promise(done => setTimeout(done, 50))", awaitPromise=True)

    def press(self, key: str) -> None:
        """A key, as the keyboard sends it."""
        codes = {"Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39, "Tab": 9}
        told = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        more = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **told, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", **told)

    def choose(self, name: str, value: str) -> None:
        """Choose an option of the <select> with that id, as a reader would."""
        self.run(
            f"(() => {{ const box = document.getElementById({json.dumps(name)}); box.value = {json.dumps(value)};"
            " box.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, exceptions, and requests that are neither the file nor inside it."""
        self.run("0")  # whatever the page has said by now comes before this answer
        found = []
        for event in self.events:
            what, told = event.get("method"), event.get("params", {})
            if what == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            if what == "Log.entryAdded" or (
                what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning")
            ):
                found.append(str(told))
            if what == "Network.requestWillBeSent" and not told["request"]["url"].startswith(("file:", "data:")):
                found.append(told["request"]["url"])
        return found

    def screenshot(self, path: Path, *, selector: str = "html", most: int = 6000) -> None:
        """A picture of an element, however far down it is."""
        box = self.run(
            f"(() => {{ const r = document.querySelector({json.dumps(selector)}).getBoundingClientRect();"
            " return [r.x + scrollX, r.y + scrollY, r.width, r.height]; })()"
        )
        clip = {"x": box[0], "y": box[1], "width": box[2], "height": min(box[3], most), "scale": 1}
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))

    def _receive(self) -> dict:
        end = time.monotonic() + SECONDS
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], max(0, end - time.monotonic()))
            assert ready, f"chromium said nothing for {SECONDS} seconds"
            part = os.read(self.reader, 1 << 20)
            assert part, "chromium ended"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)


def _high(fd: int) -> int:
    """The same pipe at a number that is not 3 or 4, and closed in the child but for its copy there."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
