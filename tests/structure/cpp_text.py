"""Splits C++ into code, comments and strings, for the scripts of this folder."""

import re

# Identifiers and numbers are tokens so that R"( and 1'000 are read as the compiler reads them.
TOKEN = re.compile(
    r"""(?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)")|(?P<word>[A-Za-z_]\w*|\d(?:'?[\w.])*)"""
    r"""|(?P<string>"(?:\\.|[^"\\\n])*")|(?P<char>'(?:\\.|[^'\\\n])+')"""
    r"""|(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))""", re.DOTALL)


def split(text):
    """(code without comments, comments, strings); the last two as (offset, text). Offsets and lines stay what they are."""
    code, comments, strings, end = [], [], [], 0
    for token in TOKEN.finditer(text):
        if token.lastgroup == "word" or token.lastgroup == "char":
            continue
        if token["comment"]:
            comments.append((token.start(), token[0]))
            code += [text[end:token.start()], re.sub(r"[^\n]", " ", token[0])]
            end = token.end()
        else:
            strings.append((token.start(), token[0]))
    return "".join(code) + text[end:], comments, strings


def without_strings(code):
    """Code whose strings and characters are blank: its braces are braces."""
    return TOKEN.sub(lambda t: t[0] if t["word"] else re.sub(r"[^\n]", " ", t[0]), code)


def code_lines(code):
    return sum(1 for line in code.split("\n") if line.strip())


CLASS = re.compile(r"(?<![<,\w])(?<!enum )(?:class|struct)\s+(?:\[\[.*?\]\]\s*)?(?:alignas\(\w+\)\s*)?([\w:]+)[^;{}()=]*\{")
BRACE = re.compile(r"[{}]")


def classes(code):
    """(name, line, lines) of every class and struct that is defined here."""
    code = without_strings(code)
    for head in CLASS.finditer(code):
        depth, end = 1, head.end()
        for brace in BRACE.finditer(code, head.end()):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                end = brace.start()
                break
        begin = code.count("\n", 0, head.start()) + 1
        yield head[1], begin, code.count("\n", 0, end) + 2 - begin
