#!/usr/bin/env python3
"""Finds turns of phrase that the style forbids: in comments, help, messages and pages.

    python3 tests/structure/english.py [--list PATTERN] [FOLDER...]   counts, or one line for each place
    python3 tests/structure/english.py --staged                       what the staged change adds; 1 if anything

budget.py asserts the counts. Comments are joined over their lines; code blocks of pages are left out.
Strings are read in the sources of programs and libraries if they have three words.
"""

import argparse
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter
from pathlib import Path

import cpp_text

ROOT = Path(__file__).resolve().parents[2]
CPP = (".cpp", ".hpp", ".h", ".cu", ".def", ".in")
OTHER = (".py", ".md", ".sh", ".cmake")
SCRIPTS = ("CMakeLists.txt", "run", "pre-commit")
TOP = (".ci", "cmake", "data", "docs", "examples", "graph", "kernels_bench", "perfmodel", "predictors", "tests")
PRODUCT = ("graph", "predictors", "perfmodel", "kernels_bench", "examples")
START = r"(?:^|(?<=[.!?] ))"

# name: where it is forbidden. A sentence that is a question may begin as it likes.
EVERYWHERE = {
    "that of": r"\bthat of\b(?! course)",
    "those of": r"\bthose of\b",
    "what ... is": START + r"What (?!is\b|are\b)[^.;:?!]{1,90}? (?:is|are) \w(?![^.!]*\?)",
    "stands": r"\bstands\b(?! (?:in )?for\b)",
    "lies": r"\blies\b",
    "is told": r"\b(?:is|are|was|were|be|been) told\b(?! apart| from)",
    "behind": r"\bbehind\b",
    "beside": r"\bbeside\b",
    "but for": r"\bbut for\b",
    "nobody": r"\bnobody\b",
    "many a": r"(?<!how )\bmany an? (?!second|minute|batch|step|time)",
    "where = if": START + r"(?-i:Where) [^.;:?!,]+, (?!and\b|or\b)",
}
COMMENTS = {"of ...": r"^of ", "what ...": r"^what "}
PATTERNS = {name: re.compile(pattern, re.IGNORECASE) for name, pattern in {**EVERYWHERE, **COMMENTS}.items()}


def comments_of_cpp(text, with_strings):
    """(offset, text, is a comment) of paragraphs; lines keep their ends, marks become blanks."""
    _, comments, strings = cpp_text.split(text)
    blocks = []
    for offset, comment in comments:
        alone = text[text.rfind("\n", 0, offset) + 1:offset].strip() == ""
        if blocks and alone and comment.startswith("//") and re.fullmatch(r"\n[ \t]*", text[blocks[-1][1]:offset]):
            blocks[-1][1] = offset + len(comment)
        else:
            blocks.append([offset, offset + len(comment)])
    for begin, end in blocks:
        yield begin, re.sub(r"^[ \t]*(?:///?<?|/\*+<?|\*+/|\*)|\*/$", lambda m: " " * len(m[0]), text[begin:end],
                            flags=re.MULTILINE), True
    if not with_strings:
        return
    joined = []
    for offset, string in strings:
        if joined and not text[joined[-1][1]:offset].strip():
            joined[-1][1] = offset + len(string)
        else:
            joined.append([offset, offset + len(string)])
    for begin, end in joined:
        words = re.sub(r'"\s*"', lambda m: re.sub(r'"', "", m[0]).ljust(len(m[0])), text[begin:end])
        if len(words.split()) > 2:
            yield begin + 1, words[1:-1], False


def comments_of_python(text):
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    before, run = None, None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            if token.type == tokenize.COMMENT:
                if run and before in (tokenize.NL, tokenize.COMMENT) and text[run[1]:begin].strip() == "":
                    run[1] = end
                else:
                    if run:
                        yield run[0], text[run[0]:run[1]].replace("#", " "), True
                    run = [begin, end]
            elif token.type == tokenize.STRING and before in (None, tokenize.NEWLINE, tokenize.INDENT, tokenize.NL):
                yield begin + 3, token.string[3:-3], True
            if token.type not in (tokenize.NL, tokenize.ENCODING):
                before = token.type
            elif before == tokenize.COMMENT:
                before = tokenize.NL
    except (tokenize.TokenError, IndentationError):
        pass
    if run:
        yield run[0], text[run[0]:run[1]].replace("#", " "), True


def comments_of_script(text):
    for block in re.finditer(r"(?:^|(?<=[ \t]))#(?!!)[^\n]*(?:\n[ \t]*#[^\n]*)*", text, re.MULTILINE):
        yield block.start(), block[0].replace("#", " "), True


def paragraphs_of_page(text):
    text = re.sub(r"^```.*?^```", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"`[^`\n]*`", lambda m: "`" + "x" * (len(m[0]) - 2) + "`", text)
    for block in re.finditer(r"[^\n]+(?:\n(?![ \t]*(?:[-*|#]|\d+\.))[^\n]+)*", text):  # a paragraph, an item or a row
        yield block.start(), re.sub(r"^[ \t]*(?:[-*|#]+|\d+\.)", lambda m: " " * len(m[0]), block[0]), False


def texts(name, text):
    """(offset, text, is a comment) of all that a file says in English."""
    path, top = Path(name), Path(name).parts[0]
    if path.suffix in CPP:
        return comments_of_cpp(text, top in PRODUCT)
    if path.suffix == ".py":
        return comments_of_python(text)
    if path.suffix == ".md":
        return paragraphs_of_page(text)
    if path.suffix in (".sh", ".cmake") or path.name in SCRIPTS:
        return comments_of_script(text)
    return ()


def places(name, text):
    """(first line, last line, pattern, words around it) of each forbidden turn in one file."""
    for offset, block, is_comment in texts(name, text):
        flat = re.sub(r"\s", " ", block)
        # One blank for several, with the offset of each character.
        kept = [i for i, c in enumerate(flat) if c != " " or (i and flat[i - 1] != " ")]
        while kept and flat[kept[0]] == " ":
            kept.pop(0)
        line = "".join(flat[i] for i in kept)
        for pattern, regex in PATTERNS.items():
            if pattern in COMMENTS and not is_comment:
                continue
            for found in regex.finditer(line):
                first = text.count("\n", 0, offset + kept[found.start()]) + 1
                last = text.count("\n", 0, offset + kept[found.end() - 1]) + 1
                yield first, last, pattern, line[max(0, found.start() - 30):found.end() + 30].strip()


def top_folder(name):
    return Path(name).parts[0] if "/" in name else "."


def files(root):
    """Names of the files that are read, with forward slashes."""
    for path in sorted([*root.glob("*"), *(path for top in TOP for path in (root / top).rglob("*"))]):
        name = path.relative_to(root).as_posix()
        if (path.suffix in (*CPP, *OTHER) or path.name in SCRIPTS) and not name.startswith("tests/compat/") and path.is_file():
            yield name


def figures(root):
    """{(top folder, pattern): count}"""
    counted = Counter()
    for name in files(root):
        for _, _, pattern, _ in places(name, (root / name).read_text(errors="replace")):
            counted[top_folder(name), pattern] += 1
    return counted


def git(*words):
    return subprocess.run(["git", *words], capture_output=True, check=True).stdout.decode(errors="replace")


def staged():
    """Prints what the staged lines add."""
    added, name, inside, bad = {}, None, 0, 0
    for line in git("-c", "core.quotePath=false", "diff", "--cached", "-U0", "--no-color", "--no-ext-diff",
                    "--diff-filter=ACMR", "--src-prefix=a/", "--dst-prefix=b/").split("\n"):
        if inside and line[:1] in "+-":
            inside -= 1
        elif line.startswith("+++ "):
            name = line[6:].rstrip("\t")
        elif hunk := re.match(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[2]), int(hunk[3] or 1)
            inside = int(hunk[1] or 1) + count
            added.setdefault(name, set()).update(range(first, first + count))
    for name, lines in added.items():
        for first, last, pattern, words in places(name, git("show", f":{name}")):
            if not lines.isdisjoint(range(first, last + 1)):
                print(f"{name}:{first}: '{pattern}': {words}")
                bad += 1
    return 1 if bad else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="top folders; default: all")
    parser.add_argument("--list", metavar="PATTERN", help="shows the places of one pattern, or of all")
    parser.add_argument("--staged", action="store_true", help="only what the staged change adds")
    options = parser.parse_args()
    if options.staged:
        return staged()
    counted = Counter()
    for name in files(ROOT):
        if options.folders and top_folder(name) not in options.folders:
            continue
        for first, _, pattern, words in places(name, (ROOT / name).read_text(errors="replace")):
            counted[pattern] += 1
            if options.list in (pattern, "all"):
                print(f"{name}:{first}: '{pattern}': {words}")
    for pattern, count in counted.most_common():
        print(f"{count:6d} {pattern}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
