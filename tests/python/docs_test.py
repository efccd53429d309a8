#!/usr/bin/env python3
"""Runs the Python of a page and compares its output with the block after it.

docs_test.py PAGE... [--update]

A block of ```python that is followed by one of ```text prints that. Blocks of a page share their names, in a
folder of their own. --update writes the output anew.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

PAIR = re.compile(r"```python\n(.*?)```(\n+)(?:(```text\n)(.*?)```)?", re.DOTALL)


def run(page):
    """The page with the output that its blocks have now, and how many blocks ran."""
    names = {"__name__": "page"}
    count = 0

    def renewed(match):
        nonlocal count
        code, gap, fence, _ = match.groups()
        count += 1
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{page.name}, block {count}", "exec"), names)
        if not fence:
            assert not printed.getvalue(), f"{page.name}, block {count} prints, and no output stands behind it"
            return match.group(0)
        return f"```python\n{code}```{gap}{fence}{printed.getvalue()}```"

    return PAIR.sub(renewed, page.read_text()), count


def main():
    pages = [Path(name).resolve() for name in sys.argv[1:] if name != "--update"]
    failed = False
    for page in pages:
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            new, count = run(page)
            os.chdir(here)
        assert count > 0, f"{page}: no Python"
        if "--update" in sys.argv:
            page.write_text(new)
        elif new != page.read_text():
            failed = True
            for line, (old, now) in enumerate(zip(page.read_text().split("\n"), new.split("\n")), 1):
                if old != now:
                    print(f"{page}:{line}: expected {old}\n  found {now}")
                    break
            else:
                print(f"{page}: another number of lines")
        else:
            print(f"{page.name}: {count} blocks print what the page says")
    sys.exit(failed)


main()
