#!/usr/bin/env python3
"""Each page of docs/ begins with the question that it answers; a first block of `console` shows what the program prints.

    python3 tests/docs/first_screen_test.py [--update] PROGRAM

`$ cat FILE` shows an input that the next commands read. A shown output may end in "...": more follows.
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"```console\n(\$ .*?)```\n", re.S)
HEAD_LINES = 40
LEAST_PAGES, LEAST_PICTURES = 12, 4


def parts_of(block):
    """(command, shown lines) of each command."""
    found = []
    for line in block.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def printed(program, command, folder):
    """The output without its empty first lines and the program's version."""
    done = subprocess.run([program, *shlex.split(command)[1:]], cwd=folder, capture_output=True, text=True, timeout=120)
    lines = (done.stdout or done.stderr).split("\n\n  perfpredict ")[0].rstrip("\n").split("\n")
    while len(lines) > 1 and not lines[0]:
        lines.pop(0)
    return lines


def without_seconds(text):
    """How long a search took is another figure each time."""
    return re.sub(r"(  searched .*?)[0-9.]+ s\b", r"\1# s", text)


def checked(program, block, folder):
    """The block as it should be."""
    made = ""
    for command, shown in parts_of(block):
        made += f"$ {command}\n"
        if command.startswith("cat "):
            Path(folder, command.split()[1]).write_text("\n".join(shown) + "\n")
            made += "\n".join(shown) + "\n"
            continue
        lines = printed(program, command, folder)
        begins_empty = bool(shown) and not shown[0]
        ends = bool(shown) and shown[-1].strip() == "..."
        count = len(shown) - begins_empty - ends
        if ends:
            lines = lines[:count] + [shown[-1]]
        if shown:
            made += "\n".join([""] * begins_empty + lines) + "\n"
    return made


def wrong_pictures(program, folder):
    """Pictures of the gallery that are not what its commands draw, with the right ones. Its first block drew already."""
    text = (DOCS / "gallery.md").read_text()
    for command in re.findall(r"^\$ (perfpredict .*)$", text[BLOCK.search(text).end():], re.M):
        printed(program, command, folder)
    drawn = {file.name: file.read_text() for file in Path(folder, "pictures").glob("*.svg")}
    kept = {name: (DOCS / "pictures" / name).read_text() if (DOCS / "pictures" / name).exists() else "" for name in drawn}
    return {name: text for name, text in drawn.items() if kept[name] != text}, len(drawn)


def main():
    with tempfile.TemporaryDirectory() as root:
        return check_pages(Path(root))


def check_pages(root):
    program = str(Path([a for a in sys.argv[1:] if a != "--update"][0]).resolve())
    wrong, pages = 0, 0
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text()
        if page.name != "README.md" and not re.match(r"# [^\n]+\n\n\*[^*]+\?\*\n", text):
            print(f"{page.name}: expected a question below the title, as *Which ...?*")
            wrong += 1
        block = BLOCK.search(text)
        if not block or text[:block.start()].count("\n") > HEAD_LINES:
            continue
        pages += 1
        folder = root / page.stem
        (folder / "pictures").mkdir(parents=True)
        right = checked(program, block[1], folder)
        if without_seconds(right) == without_seconds(block[1]):
            continue
        if "--update" in sys.argv:
            page.write_text(text[:block.start(1)] + right + text[block.end(1):])
            continue
        wrong += 1
        for shown, line in zip(block[1].split("\n"), right.split("\n")):
            if without_seconds(shown) != without_seconds(line):
                print(f"{page.name} shows: {shown}\nprinted:  {line}")
                break
        else:
            print(f"{page.name}: its output has another number of lines")
    pictures, drawn = wrong_pictures(program, root / "gallery")
    for name, text in pictures.items():
        if "--update" in sys.argv:
            (DOCS / "pictures" / name).write_text(text)
        else:
            print(f"{name} is not what the command in gallery.md draws")
            wrong += 1
    wrong += drawn < LEAST_PICTURES
    print(f"{pages} pages begin with a command and its output")
    if wrong:
        print("If the program is right: python3 tests/docs/first_screen_test.py --update build/release/bin/perfpredict")
    return 1 if wrong or pages < LEAST_PAGES else 0


if __name__ == "__main__":
    sys.exit(main())
