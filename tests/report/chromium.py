"""A headless Chromium, spoken to by the DevTools protocol through a pipe: no driver, no network, no port."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

#: Seconds; a machine that is busy needs some, one that hangs must not hold the run.
TIMEOUT = 120
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def find() -> str | None:
    """The browser of this machine; ``$CUDALINK_CHROMIUM`` names another."""
    return os.environ.get("CUDALINK_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def _high(descriptor: int) -> int:
    """The same file under a number from 10 on."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return copy


class Page:
    """One page of a browser of its own."""

    def __init__(self, program: str, folder: Path, width: int = 1400, height: int = 1000) -> None:
        # not below 10: the child's own 3 and 4 come from these, and must not overwrite one of them
        (to_child, ours_out), (ours_in, from_child) = (map(_high, os.pipe()) for _ in range(2))
        words = [
            program,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
            f"--window-size={width},{height}",
            "about:blank",
        ]
        # the protocol wants its pipe on descriptors 3 and 4
        script = f'exec "$@" 3<&{to_child} 4>&{from_child} {to_child}<&- {from_child}>&-'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", *words],
            pass_fds=(to_child, from_child),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self._out, self._in = os.fdopen(ours_out, "wb"), os.fdopen(ours_in, "rb")
        self._buffer, self._number, self._session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        (target,) = [info for info in self.call("Target.getTargets")["targetInfos"] if info["type"] == "page"]
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select.select([self._in], [], [], TIMEOUT)[0]:
                raise RuntimeError(f"the browser said nothing for {TIMEOUT} seconds")
            read = os.read(self._in.fileno(), 65536)
            if not read:
                raise RuntimeError("the browser ended")
            self._buffer += read
        text, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(text)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command; events that come meanwhile are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def open(self, file: Path) -> None:
        """Open a file and wait until it is ready; only its events are kept."""
        self._load("Page.navigate", url=file.as_uri())

    def reload(self) -> None:
        """Load the page again, with the same address."""
        self._load("Page.reload")

    def _load(self, method: str, **parameters: Any) -> None:
        self.events.clear()
        self.call(method, **parameters)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._message())

    def run(self, script: str) -> Any:
        """Evaluate JavaScript; its value."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str, text: str = "") -> None:
        codes = {"Enter": 13, "Escape": 27, "ArrowRight": 39, "ArrowDown": 40, "End": 35, "Tab": 9}
        number = codes.get(key, ord(key[0].upper()))
        extra = {"text": text or ("\r" if key == "Enter" else "")} if text or key == "Enter" else {}
        down = "keyDown" if extra else "rawKeyDown"
        self.call("Input.dispatchKeyEvent", type=down, key=key, windowsVirtualKeyCode=number, **extra)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=number)

    def screenshot(self, file: Path) -> None:
        """Write a PNG of what is seen."""
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def pdf(self) -> bytes:
        """The page as printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, landscape=True)["data"])

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        requests = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [request["request"]["url"] for request in requests]

    def close(self) -> None:
        """End the browser."""
        self._process.kill()
        self._process.wait()
        self._out.close()
        self._in.close()
