#!/usr/bin/env python3
"""Reads which file includes which, and fails on arrows that point up, circles and public headers that
include private ones.

    python3 tests/structure/include_graph.py [--most-up N] [--most-circles N] [--counts]

Arrows point down: graph <- predictors <- perfmodel <- cli, with schedule and plot below the library;
the program of kernels_bench uses perfmodel/terminal, as the CLI does. Sources and their headers count as one file, so that a
circle of headers cannot hide in their sources. A scheduler's headers (SCHEDULER) need at most MOST_HEADERS. --counts prints the parts of the tree. The limits
(default 0) are for a tree in transition: existing cases may go, no new ones may come.
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODULES = ("graph", "predictors", "perfmodel", "kernels_bench")
# The includes of docs/predictor.md, and the public headers that they may need in all.
SCHEDULER = ("perfmodel/include/perfmodel/predictor.hpp", "graph/include/perfmodel/graph/read_execution_graph.hpp")
MOST_HEADERS = 25
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)

# Folders that a room may include, besides itself; rooms are found by the longest prefix.
BELOW = {
    "graph": set(),
    "perfmodel/plot": {"graph"},
    "perfmodel/schedule": {"graph"},
    "predictors": {"graph"},
    "perfmodel": {"graph", "predictors", "perfmodel/schedule", "perfmodel/plot"},
    "perfmodel/mpi": {"graph", "predictors", "perfmodel"},
    "perfmodel/terminal": {"graph", "predictors", "perfmodel"},
    "perfmodel/cli": {"graph", "predictors", "perfmodel", "perfmodel/schedule", "perfmodel/plot",
                      "perfmodel/mpi", "perfmodel/terminal"},
    "kernels_bench": {"graph", "predictors"},
    "kernels_bench/program": {"graph", "predictors", "perfmodel", "perfmodel/terminal", "kernels_bench"},
}
# Folders where a quoted path may begin, in addition to the file's own.
SEARCH = ["", "graph/include", "predictors/include", "perfmodel/include", "perfmodel/schedule/include",
          "graph/src", "predictors/src", "perfmodel/src", "perfmodel/cli", "perfmodel"]


def sources():
    for module in MODULES:
        for path in sorted((ROOT / module).rglob("*")):
            if path.suffix in (".cpp", ".hpp", ".h", ".cu", ".def"):
                yield path


def room(path):
    name = path.relative_to(ROOT).as_posix()
    return max((r for r in BELOW if name.startswith(r + "/")), key=len)


def resolve(path, quoted):
    for folder in [path.parent] + [ROOT / s for s in SEARCH]:
        candidate = (folder / quoted).resolve()
        if candidate.is_file() and ROOT in candidate.parents:
            return candidate
    return None


def includes():
    """{file: files that it includes}"""
    return {path: {found for quoted in INCLUDE.findall(path.read_text())
                   if (found := resolve(path, quoted))} for path in sources()}


def back_arrows(graph):
    return sorted((path, target) for path, targets in graph.items() for target in targets
                  if room(target) != room(path) and room(target) not in BELOW[room(path)])


def pairs(graph):
    """The same with each source joined to the header that it begins with."""
    header_of = {}
    for path, targets in graph.items():
        if path.suffix != ".cpp":
            continue
        own = [t for t in targets if t.stem == path.stem and t.suffix == ".hpp"]
        if own:
            header_of[path] = own[0]
    joined = defaultdict(set)
    for path, targets in graph.items():
        name = header_of.get(path, path)
        joined[name] |= {t for t in targets if t != name}
    return joined


def circles(graph):
    """Strongly connected groups of more than one file (Tarjan, without recursion)."""
    order, low, stack, on_stack, found = {}, {}, [], set(), []
    for start in graph:
        if start in order:
            continue
        work = [(start, iter(sorted(graph[start])))]
        order[start] = low[start] = len(order)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in graph:
                    continue
                if target not in order:
                    order[target] = low[target] = len(order)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(sorted(graph[target]))))
                    break
                if target in on_stack:
                    low[node] = min(low[node], order[target])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    group = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        group.append(member)
                        if member == node:
                            break
                    if len(group) > 1:
                        found.append(sorted(group))
    return sorted(found, key=len)


def long_functions(files):
    """(lines, name, file) of functions above 60 lines, by the layout that clang-format gives them."""
    for path in files:
        begin = None
        for number, line in enumerate(path.read_text().split("\n"), 1):
            opened = re.match(r"( {0,4})(?!namespace|class|struct|enum|union|if|for|while|switch|else|\}|//)[^ #].*\{$", line)
            if begin and line.rstrip(";,") == begin[1] + "}":
                if number - begin[0] + 1 > 60:
                    yield number - begin[0] + 1, begin[2], shown(path)
                begin = None
            elif opened and "(" in line and not begin:
                name = re.search(r"([~\w]+)\(", line)
                indent = opened.group(1)
                if line.lstrip().startswith(":"):  # initialisers of a constructor stand further in
                    indent = indent[4:]
                begin = (number, indent, name.group(1) if name else line.strip())


def counts():
    files = list(sources())
    names = defaultdict(set)
    for path in files:
        code = re.sub(r"//.*", "", path.read_text())
        for name in re.findall(r'"(aten::[A-Za-z0-9_.]+)', code):
            names[name].add(path)
    mentions = sorted(((len(where), name) for name, where in names.items()), reverse=True)
    print(f"op names {len(mentions)}, files per name: mean "
          f"{sum(n for n, _ in mentions) / max(1, len(mentions)):.2f}, most:")
    for number, name in mentions[:10]:
        print(f"  {number:5d} {name} ({' '.join(sorted(p.stem for p in names[name]))})")
    longest = []
    for path in files:
        begin = None
        for number, line in enumerate(path.read_text().split("\n"), 1):
            opened = re.match(r"(class|struct) (\w+)[^;]*\{$", line)
            if opened:
                begin = (number, opened.group(2))
            elif line == "};" and begin:
                longest.append((number - begin[0] + 1, begin[1], path.relative_to(ROOT).as_posix()))
                begin = None
    above = sorted((c for c in longest if c[0] > 250), reverse=True)
    print(f"classes above 250 lines: {len(above)}")
    for lines, name, where in above[:10]:
        print(f"  {lines:5d} {name} ({where})")
    long = sorted(long_functions(files), reverse=True)
    print(f"functions above 60 lines: {len(long)}")
    for lines, name, where in long[:5]:
        print(f"  {lines:5d} {name} ({where})")
    headers = [p.as_posix() for p in files if "/include/" in p.as_posix()]
    details = sum("/detail/" in h for h in headers)
    print(f"public headers: {len(headers) - details}, and {details} that these need (detail/)")
    lines = defaultdict(int)
    for path in files:
        lines[path.parent.relative_to(ROOT).as_posix()] += path.read_text().count("\n")
    for folder, number in sorted(lines.items()):
        print(f"  {number:6d} {folder}")
    print(f"  {sum(lines.values()):6d} in all")


def leaks(graph):
    """Public headers that need one which is not installed."""
    return sorted((path, target) for path, targets in graph.items() if "/include/" in path.as_posix()
                  for target in targets if "/include/" not in target.as_posix())


def needed_headers(graph):
    """SCHEDULER and what these include."""
    needed, open_ends = set(), [ROOT / name for name in SCHEDULER]
    while open_ends:
        path = open_ends.pop()
        if path not in needed:
            needed.add(path)
            open_ends.extend(graph[path])
    return needed


def shown(path):
    return path.relative_to(ROOT).as_posix()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", action="store_true")
    parser.add_argument("--most-up", type=int, default=0)
    parser.add_argument("--most-circles", type=int, default=0)
    options = parser.parse_args()
    if options.counts:
        counts()
    graph = includes()
    arrows, found = back_arrows(graph), circles(pairs(graph))
    for path, target in arrows:
        print(f"points up: {shown(path)} -> {shown(target)}")
    leaking = leaks(graph)
    for path, target in leaking:
        print(f"public header includes a private one: {shown(path)} -> {shown(target)}")
    needed = len(needed_headers(graph))
    if needed > MOST_HEADERS:
        print(f"expected at most {MOST_HEADERS} headers of {' and '.join(SCHEDULER)}, found {needed}")
    for group in found:
        print(f"circle of {len(group)}: " + ", ".join(shown(p) for p in group))
    print(f"{len(graph)} files, {sum(map(len, graph.values()))} arrows, {len(arrows)} up, {len(found)} circles, "
          f"{needed} headers of a scheduler")
    return 1 if leaking or needed > MOST_HEADERS or len(arrows) > options.most_up or len(found) > options.most_circles else 0


if __name__ == "__main__":
    sys.exit(main())
