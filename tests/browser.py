"""A headless Chromium, told what to do over DevTools through two pipes. No package is needed for it.

`python tests/browser.py out/warehouse/report.html out/look.txt docs` takes the pictures of the docs.
"""

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_PATIENCE_S = 60
_LINES = 5
"""Of the console, that a picture shows."""


class Browser:
    """One page; `events` holds all that it told of itself, in order."""

    def __init__(self, home: Path, width: int = 1280, height: int = 900) -> None:
        to_browser, commands = os.pipe()
        answers, from_browser = os.pipe()
        arguments = (
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *(f"--user-data-dir={home}", f"--window-size={width},{height}", "about:blank"),
        )
        # Chromium reads commands from descriptor 3 and answers on 4.
        shell = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, str(CHROMIUM), *arguments],
            pass_fds=(to_browser, from_browser),
            env=os.environ | {"TZ": "UTC"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._commands = os.fdopen(commands, "wb", buffering=0)
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session = ""
        self.events: list[dict[str, Any]] = []
        targets = self.ask("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._commands.close()
        self._answers.close()

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a DevTools command; returns its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = self._answers.read(1 << 20)
            if not data:
                raise RuntimeError("Chromium ended.")
            self._rest += data
        answer, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(answer))

    def open(self, file: Path, *, drawn: bool = True) -> None:
        """Load a local file, wait until it has loaded and, where it may run scripts, until it is `drawn`."""
        self.ask("Page.navigate", url=file.absolute().as_uri())
        give_up = time.monotonic() + _PATIENCE_S
        while self.run("document.readyState") != "complete":
            if time.monotonic() > give_up:
                raise RuntimeError(f"{file} does not load.")
            time.sleep(0.05)
        if drawn:
            self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        answer = self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"]["exception"].get("description", "it threw"))
        return answer["result"].get("value")

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press and release a key, by its DOM name; modifiers as DevTools counts them, 8 is Shift."""
        text = {"text": "\r" if key == "Enter" else key} if len(key) == 1 or key == "Enter" else {}
        codes = {"Tab": 9, "Enter": 13, "ArrowLeft": 37, "ArrowRight": 39}
        common = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, ord(key[0]))}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **common)

    def colours(self, scheme: str) -> None:
        """Prefer light or dark colours."""
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, file: Path) -> None:
        """Write what is seen as a PNG."""
        file.write_bytes(base64.b64decode(self.ask("Page.captureScreenshot", format="png")["data"]))

    def complaints(self) -> list[str]:
        """Exceptions, errors and warnings of the page so far."""
        self.ask("Runtime.evaluate", expression="0")
        told = []
        for event in self.events:
            name, what = event.get("method"), event.get("params", {})
            if name == "Runtime.exceptionThrown":
                told.append(str(what["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and what["type"] in ("error", "warning", "assert"):
                told.append(str(what["args"]))
            elif name == "Log.entryAdded" and what["entry"]["level"] in ("error", "warning"):
                told.append(what["entry"]["text"])
        return told

    def requests(self) -> list[str]:
        """Addresses that the page asked for so far."""
        self.ask("Runtime.evaluate", expression="0")
        asked = (event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent")
        return [what["request"]["url"] for what in asked]


_PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
_CONSOLE = """<!doctype html><title>Console</title><style>
body {{ margin: 0; padding: 1rem; width: 62rem; color: #e4e8ec; background: #14181d; }}
pre {{ margin: 0; font: .85rem/1.4 monospace; white-space: pre-wrap; overflow-wrap: anywhere; }}
</style><pre>$ msmq-replay look *.pcap
{}</pre>"""


def main(page: Path, console: Path, folder: Path) -> None:
    """Writes pictures of a report, without the path to this checkout, and of what the console shows."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as home, Browser(Path(home)) as browser:
        for name, scheme, phone in (("", "light", False), ("-dark", "dark", False), ("-phone", "light", True)):
            browser.colours(scheme)
            if phone:
                browser.ask("Emulation.setDeviceMetricsOverride", **_PHONE)
            browser.open(page)
            browser.run(f"document.querySelector('header code').textContent = {json.dumps(str(page.parent))}")
            browser.picture(folder / f"report{name}.png")
        lines = console.read_text(encoding="utf-8").splitlines()[:_LINES]
        shown = Path(home) / "console.html"
        shown.write_text(_CONSOLE.format(escape("\n".join(lines))), encoding="utf-8")
        browser.ask("Emulation.setDeviceMetricsOverride", **_PHONE | {"width": 1024, "height": 336, "mobile": False})
        browser.open(shown)
        browser.picture(folder / "console.png")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
