#!/usr/bin/env python3
"""Every file of this repository that a page names is there, and each page begins with its question of docs/README.md.

    paths_test.py

Looked at are the paths in backticks that begin with a folder of the top level, and links to files.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOP = ("cmake", "data", "docs", "examples", "findings", "graph", "kernels_bench", "perfmodel", "predictors", "tests")
NAMED = re.compile(r"`((?:%s)/[\w./*-]*)`" % "|".join(TOP))
LINK = re.compile(r"\]\(([\w./-]+)(?:#[\w-]*)?\)")
# Files that a page tells its reader to make, or that a build or a run makes.
MADE = re.compile(r"^data/(overheads|models|gpus|architectures|topologies|measurements)/")


def is_there(pattern):
    return any(ROOT.glob(pattern.rstrip("/"))) or any((ROOT / folder / "include").glob(pattern) for folder in TOP)


def pages_without_question():
    docs = ROOT / "docs"
    rows = re.findall(r"^\| \[([a-z_]+\.md)\]\([a-z_]+\.md\) \| (.*?) \|$", (docs / "README.md").read_text(), re.M)
    return [f"docs/{page}: expected its question below the title: {question}" for page, question in rows
            if not re.match(r"# .*\n\n" + re.escape(f"*{question}*\n"), (docs / page).read_text())] or (
            [] if len(rows) > 30 else ["docs/README.md: expected pages with questions"])


def main():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "findings/README.md", *sorted((ROOT / "docs").glob("*.md"))]
    missing, looked = [], 0
    for page in pages:
        for number, line in enumerate(page.read_text().split("\n"), 1):
            for name in NAMED.findall(line):
                looked += 1
                if not is_there(name) and not MADE.match(name):
                    missing.append(f"{page.relative_to(ROOT)}:{number}: {name}")
            for name in LINK.findall(line):
                looked += 1
                if not (page.parent / name).exists():
                    missing.append(f"{page.relative_to(ROOT)}:{number}: link to {name}")
    missing += pages_without_question()
    for line in missing:
        print(line)
    print(f"{len(pages)} pages, {looked} paths, {len(missing)} missing")
    return 1 if missing or looked < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
