#!/usr/bin/env python3
"""docs/cli.md and docs/layout.md name every flag that layout_fields.def makes.

    layout_flags_test.py
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIELD = re.compile(r"^LAYOUT_(?:FIELD|LIST)\(\w+, (\w+),", re.MULTILINE)


def section(text, title):
    """The part of a page under one heading of the second level."""
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def main():
    fields = FIELD.findall((ROOT / "perfmodel/src/layout/layout_fields.def").read_text())
    pages = {"docs/cli.md": section((ROOT / "docs/cli.md").read_text(), "layout"),
             "docs/layout.md": (ROOT / "docs/layout.md").read_text()}
    missing = [f"{page}: --{name.replace('_', '-')}" for page, text in pages.items() for name in fields
               if not re.search(rf"--(?:no-)?{name.replace('_', '-')}(?![\w-])", text)]
    for line in missing:
        print(line)
    print(f"{len(fields)} flags, {len(missing)} missing")
    return 1 if missing or len(fields) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
