#!/usr/bin/env python3
"""Fails if a private name, one in an unnamed namespace, is in two sources of a library (functions: with equal
parameters).

    python3 tests/structure/private_names.py

PERFMODEL_UNITY compiles several sources of a library as one, and which ones shifts with every new file: a name that
is there twice compiles today and breaks the build of somebody who adds a source elsewhere.
"""

import re
import sys
from collections import defaultdict
from pathlib import Path

from cpp_text import split, without_strings

ROOT = Path(__file__).resolve().parents[2]
LISTS = ("graph", "predictors", "perfmodel", "perfmodel/cli")
TARGET = re.compile(r"(?:add_library|add_executable|target_sources)\((\w+)([^)]*)\)")
OPENING = re.compile(r"\bnamespace\s*(?P<name>[\w:]*)\s*\{$")
MARK = re.compile(r"[{}();]")
GOES_ON = re.compile(r"\s*[;,.)(]")  # after the brace of a value or a type, not after a function
TYPE = re.compile(r"(?:class|struct|enum\s+class)\s+(?:\[\[.*?\]\]\s*)?(\w+)\s*(?:final\s*)?(?::[^:].*)?$", re.DOTALL)
# The last name before the parameters of a function, or before the value of a constant.
FUNCTION = re.compile(r"([\w:~]+)\s*\(")
CONSTANT = re.compile(r"([A-Za-z_]\w*)\s*(?:\[[^\]]*\]\s*)*(?:=|\{|$)")
NEXT_CONSTANT = re.compile(r",\s*(k[A-Z]\w*)\s*=")


def sources():
    """{library: its sources}"""
    found = defaultdict(list)
    for path in LISTS:
        text = re.sub(r"#.*", "", (ROOT / path / "CMakeLists.txt").read_text())
        for target, words in TARGET.findall(text):
            for word in words.split():
                source = ROOT / path / word
                if source.suffix == ".cpp" and source.is_file():
                    found[target].append(source)
    return found


def without_parentheses(text):
    return re.sub(r"\([^()]*\)|operator\S+", "", text)


def statements(code):
    """(namespaces around it, text before its body or end, whether a body follows) of what is in unnamed namespaces."""
    around, start, head, depth, parentheses = [], 0, None, 0, 0
    for mark in MARK.finditer(code):
        match mark[0]:
            case "(":
                parentheses += 1
            case ")":
                parentheses -= 1
            case "{" if depth == 0 and parentheses == 0 and (opening := OPENING.search(code, start, mark.end())):
                around.append(opening["name"])
                start = mark.end()
            case "{":
                if depth == 0 and parentheses == 0 and head is None and "=" not in without_parentheses(code[start:mark.start()]):
                    head = code[start:mark.start()]
                depth += 1
            case "}" if depth == 0 and parentheses == 0:
                around.pop()
                start = mark.end()
            case "}":
                depth -= 1
                if depth == 0 and parentheses == 0 and head is not None and not GOES_ON.match(code, mark.end()):
                    if "" in around:
                        yield around, head, True
                    start, head = mark.end(), None
            case ";" if depth == 0 and parentheses == 0:
                if "" in around:
                    yield (around, code[start:mark.start()], False) if head is None else (around, head, True)
                start, head = mark.end(), None


def parameters(text):
    """Types of the parameters that stand in parentheses; a parameter's name is the last word after a type."""
    depth, parts = 0, [""]
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    types = []
    for part in parts:
        words = re.sub(r"\bconst\b|=.*", " ", part).strip()
        named = re.sub(r"(?<=[\w>&*\]])\s+\w+$|(?<=[>&*])\w+$", "", words)
        types.append(re.sub(r"\s+|\w+::", "", named))
    return ",".join(types)


def names(text, has_body):
    """Names that a statement defines, and of a function the types of its parameters."""
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE).strip()
    text = re.sub(r"^template\s*<.*?>\s*(?=[a-z\[A-Z])", "", text, flags=re.DOTALL)
    if kind := TYPE.match(text):
        return [kind[1]] if has_body else []
    if re.match(r"(?:static_assert|using|friend|namespace|extern|enum)\b(?!\s+class)", text):
        return []
    before = text.split("=")[0]
    if function := FUNCTION.search(before):
        end = text.rfind(")")
        return [f"{function[1]}({parameters(text[function.end():end])})"] if has_body and "::" not in function[1] else []
    first = CONSTANT.search(before + "=" if "=" in text else before)
    return ([first[1]] if first else []) + NEXT_CONSTANT.findall(text)


def private_names(path):
    code = without_strings(split(path.read_text())[0])
    for around, text, has_body in statements(re.sub(r"^\s*#.*$", "", code, flags=re.MULTILINE)):
        for found in names(text, has_body):
            yield "::".join([word for word in around if word] + [found])


def main():
    bad, count = 0, 0
    for library, paths in sources().items():
        where = defaultdict(set)
        for path in paths:
            for found in private_names(path):
                where[found].add(path.relative_to(ROOT).as_posix())
        count += len(where)
        for found, files in sorted(where.items()):
            if len(files) > 1:
                bad += 1
                print(f"{library}: {found} is in {', '.join(sorted(files))}")
    print(f"{count} private names, {bad} in two sources of a library")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
