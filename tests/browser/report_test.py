#!/usr/bin/env python3
"""Drives headless Chromium over its pipe through the pages that report_test.sh made.

    python3 tests/browser/report_test.py chromium FOLDER

Fails on messages of the console, pages that are not ready within two seconds, controls that do nothing, and sums
that differ from the data of the page. Leaves screenshots at 1,440 and 390 pixels in FOLDER.
"""

import base64
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MOST_SECONDS = 2.0


class Browser:
    """The DevTools protocol over file descriptors 3 and 4: JSON, each message ended by a zero byte."""

    def __init__(self, program):
        to_child, self.out = os.pipe()
        self.into, from_child = os.pipe()

        def connect():
            os.dup2(to_child, 3 + 100)
            os.dup2(from_child, 4 + 100)
            os.dup2(3 + 100, 3)
            os.dup2(4 + 100, 4)

        self.profile = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
             "--hide-scrollbars", f"--user-data-dir={self.profile.name}"],
            preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        os.close(to_child)
        os.close(from_child)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self.ask("Performance.enable", timeDomain="threadTicks")  # only the page's thread, whatever else runs
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(domain + ".enable")

    def ask(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def read(self):
        while b"\0" not in self.rest:
            piece = os.read(self.into, 1 << 16)
            if not piece:
                raise RuntimeError("the browser ended")
            self.rest += piece
        text, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message

    def run(self, script):
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def open(self, page, width, dark=False):
        """Seconds that the page's thread had worked when it had drawn itself."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia",
                 features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        begin = time.monotonic()
        self.ask("Page.navigate", url=page.resolve().as_uri())
        while self.run("document.body && document.body.dataset.ready") != "yes":
            if time.monotonic() - begin > 30 or self.problems():
                break
            time.sleep(0.02)
        return self.worked()

    def worked(self):
        """CPU seconds of the page's process, which is a new one for each page."""
        metrics = self.ask("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    def problems(self):
        made = []
        for event in self.events:
            if event["method"] == "Runtime.exceptionThrown":
                details = event["params"]["exceptionDetails"]
                made.append(details.get("exception", {}).get("description", details["text"]))
            elif event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] in ("error", "warning"):
                made.append(str(event["params"]["args"]))
            elif event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] in ("error", "warning"):
                made.append(event["params"]["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent":
                url = event["params"]["request"]["url"]
                if not url.startswith(("file:", "data:")):
                    made.append("asks the network for " + url)
        return made

    def picture(self, file):
        size = self.ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], 9000), "scale": 1}
        data = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        file.write_bytes(base64.b64decode(data))

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.profile.cleanup()


failures = []


def expect(what, good, found=""):
    print(("ok    " if good else "FAIL  ") + what + (f": {found}" if found != "" else ""))
    if not good:
        failures.append(what)


def check_timeline(browser, page, words):
    before = browser.run("[...document.querySelectorAll('canvas')][0].toDataURL().length")
    browser.run("[...document.querySelectorAll('#timeline button')].find((b) => b.title === 'Zoom in').click()")
    browser.run("document.querySelector('canvas').dispatchEvent(new KeyboardEvent('keydown', {key: '+'}))")
    after = browser.run("[...document.querySelectorAll('canvas')][0].toDataURL().length")
    expect(f"{page}: the timeline zooms", before != after)
    browser.run(f"{{ const box = document.getElementById('timeline-search'); box.value = {json.dumps(words)};"
                "box.dispatchEvent(new Event('input')); }")
    said = browser.run("document.getElementById('timeline-count').textContent")
    expect(f"{page}: search finds {words}", said != "" and not said.startswith("0 "), said)
    browser.run("document.getElementById('timeline-search').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter'}))")
    browser.run("{ const box = document.getElementById('timeline-search'); box.value = '';"
                "box.dispatchEvent(new Event('input')); }")
    browser.run("[...document.querySelectorAll('#timeline button')].find((b) => b.textContent === 'All').click()")


def check_table(browser, page, table):
    column = f"[...document.querySelectorAll('#{table} tbody tr')].map((row) => row.cells[0].textContent)"
    click = f"document.querySelector('#{table} th button').click()"
    browser.run(click)
    first = browser.run(column)
    browser.run(click)
    second = browser.run(column)
    expect(f"{page}: {table} sorts", len(first) < 2 or first != second, f"{len(first)} rows")


def check_sums(browser, page):
    """The drawn slices add up to the figures of the tables and the headline."""
    sums = browser.run("""data.runs.map((run) => {
      let kernels = 0;
      for (const us of run.kernels.time) kernels += us;
      const table = run.totals.kernels.reduce((sum, row) => sum + row[3], 0);
      const ops = run.totals.ops.reduce((sum, row) => sum + row[4], 0);
      const path = run.path.rows.reduce((sum, row) => sum + row[2], 0);
      return {drawn: kernels / run.steps, table, ops, told: run.kernel_sum_us, left: run.left_out, path: path / run.steps, step: run.step_us};
    })""")
    for at in sums:
        close = lambda a, b: abs(a - b) <= 2e-3 * max(abs(b), 1)
        good = close(at["table"], at["told"]) and close(at["ops"], at["told"]) and (at["left"] > 0 or close(at["drawn"], at["told"]))
        expect(f"{page}: kernels add up", good, f"{at['told']:.1f} us")
        good = abs(at["path"] - at["step"]) <= 0.01 * at["step"]
        expect(f"{page}: the critical path adds up to the step", good, f"{at['path']:.1f} of {at['step']:.1f} us")


def check_comparison(browser, page):
    """The rows of every table add up to the difference of the steps, and the page says so."""
    for by in browser.run("data.comparison.tables.map((table) => table.by)"):
        browser.run(f"[...document.querySelectorAll('#changes button')].find((b) => b.textContent === {json.dumps(by)}).click()")
        said = browser.run("document.getElementById('changes-sum').textContent")
        rows, steps = (part.rstrip(".").rsplit(" ", 2)[-2:] for part in said.split(";"))
        expect(f"{page}: rows by {by} add up", rows[0].lstrip("−+") == steps[0].lstrip("−+"), said)


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    browser = Browser(program)
    words = {"dlrm": "aten::linear", "resnet18": "aten::conv2d", "four_ranks": "aten::linear", "whatif": "aten::addmm"}
    tables = {"dlrm": "ops-table", "resnet18": "kernels-table", "four_ranks": "runs-table", "whatif": "ops-table",
              "shard": "document-0-0", "layout": "document-0-0",
              "large": "ops-table", "python": "kernels-table", "compare": "changes-table", "compiled": "changes-table"}
    for name, table in tables.items():
        page = folder / f"{name}.html"
        seconds = browser.open(page, 1440)
        expect(f"{name}: ready", browser.run("document.body.dataset.ready") == "yes")
        expect(f"{name}: at most 3 MB", page.stat().st_size <= 3e6)
        expect(f"{name}: within {MOST_SECONDS:.0f} s", seconds <= MOST_SECONDS, f"{seconds:.2f} s, {page.stat().st_size / 1e6:.2f} MB")
        if name in words:
            check_timeline(browser, name, words[name])
            check_sums(browser, name)
        check_table(browser, name, table)
        if name in ("compare", "compiled"):
            check_comparison(browser, name)
        if name == "compare":
            browser.run("""{ const choice = document.getElementById('timeline-step');
              choice.value = '2'; choice.dispatchEvent(new Event('change')); }""")
            check_timeline(browser, name, "ProfilerStep#3")
        if name == "four_ranks":
            browser.run("document.getElementById('flame-difference').click()")
            said = browser.run("document.getElementById('flame-text').textContent")
            expect(f"{name}: difference mode", "Red takes more" in said, said)
        if name == "python":
            path = "[...document.querySelectorAll('#flame rect')].map((box) => box.getAttribute('aria-label')).join()"
            with_calls = browser.run(path)
            browser.run("document.getElementById('flame-python').click()")
            expect(f"{name}: calls of Python come and go", ".py(" in with_calls and ".py(" not in browser.run(path))
            browser.run("document.getElementById('flame-python').click()")
        if name == "dlrm":
            taken = browser.run("""{ const choice = document.querySelector('#flame select');
              choice.value = 'memory'; choice.dispatchEvent(new Event('change')); document.getElementById('flame-text').textContent }""")
            expect(f"{name}: call paths by memory", taken.startswith("device memory taken per step: ") and "iB" in taken, taken)
        browser.picture(folder / f"{name}_1440.png")
        expect(f"{name}: console is silent", not browser.problems(), browser.problems() or "")
        browser.open(page, 390, dark=True)
        wide = browser.run("document.documentElement.scrollWidth")
        expect(f"{name}: 390 pixels are enough", wide <= 390, f"{wide} wide")
        browser.picture(folder / f"{name}_390.png")
        expect(f"{name}: console is silent at 390", not browser.problems(), browser.problems() or "")
    browser.close()
    print(f"{len(failures)} failed; pages and screenshots: {folder}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
