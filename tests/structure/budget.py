#!/usr/bin/env python3
"""Counts what the code must not have more of, per folder, and fails where a count is above its limit.

    python3 tests/structure/budget.py [--lower]

The limits are in budget.tsv: folder, measure, limit; a pair that is not there has the limit 0. Counts may
only fall: a change that passes the budget says why in its commit and raises the limit there. --lower writes
today's figure wherever it is below its limit, and never raises one; without a file it writes all figures.

  lines        of C++ without blanks and comments
  classes>300  classes and structs of more than 300 lines
  back         arrows back: includes, counted once per file and folder, of a folder that includes the file's
               own folder, directly or through others (subfolders count as folders of their own)
  sees CLI11   sources that include CLI11, directly or through headers
  size_t casts static_cast<std::size_t>
  micro_batch  files that name this field of a question of `layout`
  English      turns of phrase that the style forbids, by english.py
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

import cpp_text
import english
import include_graph

MEASURES = ("lines", "classes>300", "back", "sees CLI11", "size_t casts", "micro_batch")
OVERRUN = "a change that passes the budget says why in its commit and raises the limit here"
LINES_SLACK = 0.03  # below their limit by so much, lines ask for a lower one


def inside(path):
    return path.relative_to(include_graph.ROOT).parts


def folder(path):
    """The row of the table that a file counts for."""
    parts = inside(path)
    if parts[0] == "kernels_bench":
        return parts[0]
    return "/".join(parts[:3] if parts[1] == "src" and len(parts) > 3 else parts[:2])


def subfolder(path):
    """The folder of a file; all public headers of a module are in one."""
    parts = inside(path)[:-1]
    return "/".join(parts[:parts.index("include") + 1] if "include" in parts else parts)


def reachable(edges, start):
    seen, work = set(), [start]
    while work:
        for target in edges[work.pop()] - seen:
            seen.add(target)
            work.append(target)
    return seen


def arrows_back(graph):
    """{(file, subfolder that it includes and that leads back)}, between folders of one floor."""
    arrows, edges = set(), defaultdict(set)
    for path, targets in graph.items():
        for target in targets:
            if subfolder(target) != subfolder(path) and include_graph.room(target) == include_graph.room(path):
                arrows.add((path, subfolder(target)))
                edges[subfolder(path)].add(subfolder(target))
    leads_to = {name: reachable(edges, name) for name in list(edges)}
    return {(path, target) for path, target in arrows if subfolder(path) in leads_to.get(target, ())}


def sees(graph, marked):
    """Sources from which a marked file is reached."""
    included_by = defaultdict(set)
    for path, targets in graph.items():
        for target in targets:
            included_by[target].add(path)
    found = set(marked)
    for start in marked:
        found |= reachable(included_by, start)
    return {path for path in found if path.suffix in (".cpp", ".cu")}


def structure_figures():
    """{(folder, measure): count}, with a row for each module and one for all."""
    counted, cli11 = Counter(), set()
    graph = include_graph.includes()

    def count(path, measure, number=1):
        module = inside(path)[0]
        for row in {folder(path), module, "total"}:
            counted[row, measure] += number

    for path in graph:
        code, _, _ = cpp_text.split(path.read_text())
        count(path, "lines", cpp_text.code_lines(code))
        count(path, "classes>300", sum(lines > 300 for _, _, lines in cpp_text.classes(code)))
        count(path, "size_t casts", len(re.findall(r"\bstatic_cast<\s*(?:std::)?size_t\s*>", code)))
        count(path, "micro_batch", bool(re.search(r"\bmicro_batch\b", code)))
        if re.search(r"^\s*#\s*include\s*<CLI/", code, re.MULTILINE):
            cli11.add(path)
    for path, _ in arrows_back(graph):
        count(path, "back")
    for path in sees(graph, cli11):
        count(path, "sees CLI11")
    return counted


def english_figures():
    counted = Counter()
    for (top, pattern), number in english.figures(include_graph.ROOT).items():
        counted[top, f"English: {pattern}"] += number
        counted["total", f"English: {pattern}"] += number
    return counted


def read_limits(path):
    limits = {}
    for line in path.read_text().split("\n") if path.exists() else ():
        if line and not line.startswith("#"):
            name, measure, limit = line.split("\t")
            limits[name, measure] = int(limit)
    return limits


def write_limits(path, limits):
    head = "# folder\tmeasure\tlimit; counts may only fall (budget.py says what they are)\n"
    path.write_text(head + "".join(f"{name}\t{measure}\t{limit}\n" for (name, measure), limit in sorted(limits.items()) if limit))


def check(figures, limits):
    """(lines on counts above their limit, lines on counts so far below that the limit should fall)"""
    above, below = [], []
    for name, measure in sorted(figures.keys() | limits.keys()):
        figure, limit = figures.get((name, measure), 0), limits.get((name, measure), 0)
        if figure > limit:
            above.append(f"{name}: {measure}: {figure:,}, limit {limit:,}: {OVERRUN}")
        elif figure < limit * (1 - LINES_SLACK if measure == "lines" else 1):
            below.append(f"{name}: {measure}: {figure:,}, limit {limit:,}")
    return above, below


def print_table(title, measures, figures):
    """One row per folder, then the modules and the total; {title of a column: measure}."""
    rows = {name for name, measure in figures if measure in measures.values()}
    print(f"{title:24s}" + "".join(f"  {column:>7s}" for column in measures))
    for row in sorted(rows, key=lambda name: (name == "total", title == "C++" and "/" not in name, name)):
        cells = ((column, figures.get((row, measure), 0)) for column, measure in measures.items())
        print(f"{row:24s}" + "".join(f"  {number:{max(7, len(column))},}" for column, number in cells))
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lower", action="store_true", help="lower the limits to today's figures")
    parser.add_argument("--limits", type=Path, default=Path(__file__).with_name("budget.tsv"), help="default: budget.tsv")
    options = parser.parse_args()
    figures = structure_figures() + english_figures()
    print_table("C++", {measure: measure for measure in MEASURES}, figures)
    print_table("English", {pattern: f"English: {pattern}" for pattern in english.PATTERNS}, figures)
    if options.lower:
        old = read_limits(options.limits)
        write_limits(options.limits, {row: min(figures[row], limit) for row, limit in old.items()} if old else figures)
    above, below = check(figures, read_limits(options.limits))
    if below:
        print("below their limits, which should fall (budget.py --lower):\n  " + "\n  ".join(below))
    for line in above:
        print(line)
    print(f"{len(above)} figures above their limits, {len(below)} to lower")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
