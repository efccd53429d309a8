#!/usr/bin/env python3
"""Manual pages and completions of programs other than perfpredict agree with their --help (perfpredict's own:
pages_test.cpp).

    other_pages_test.py PERFPREDICT [PERFPREDICT-TRAIN | KERNELS_BENCH]...

kernels_bench writes pages of its own. perfpredict-train is started by perfpredict, whose page and completion hold its
commands.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

PERFPREDICT, OTHERS = sys.argv[1], sys.argv[2:]


def output(*words):
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def help_of(*words):
    """Commands and flags that --help shows."""
    commands, flags, section = [], set(), ""
    for line in output(*words, "--help").splitlines():
        if line and not line.startswith(" "):
            section = line
        entry = re.match(r"  (\S+)", line)
        if not entry:
            continue
        if section == "Subcommands:":
            commands.append(entry[1])
        elif entry[1].startswith("-"):
            flags |= {flag.split("{")[0] for flag in entry[1].split(",")}
    return commands, flags


def page_of(program):
    """Command ("" for the program) → flags of its section."""
    page = re.sub(r"\\f[BIR]|\\&", "", output(program, "man")).replace("\\-", "-")
    sections = {}
    for kind, name, body in re.findall(r"^\.(S[SH]) (.*)\n((?:(?!\.S[SH]).*\n)*)", page, flags=re.M):
        if kind == "SS" or name == "OPTIONS":
            heads = re.findall(r"^\.TP\n(-.*)$", body, flags=re.M)
            sections[name if kind == "SS" else ""] = {
                flag for head in heads for flag in re.findall(r"(?:^|, )(--?[a-zA-Z][\w-]*)", head)}
    return sections


def completions(script, name, *words):
    """Completions of bash after these words."""
    line = (f'. "$0"; COMP_WORDS=({name} "$@"); COMP_CWORD=$#; _{name}; printf "%s\\n" "${{COMPREPLY[@]}}"')
    return set(output("bash", "--norc", "-c", line, script, *words).split())


def main():
    checked, folder = 0, tempfile.TemporaryDirectory()
    script = pathlib.Path(folder.name) / "completion.bash"
    for program in OTHERS:
        writer = PERFPREDICT if program.endswith("-train") else program
        name = pathlib.Path(writer).name
        script.write_text(output(writer, "completion", "bash"))
        page = page_of(writer)
        commands, _ = help_of(program)
        assert commands, program
        # Commands that perfpredict-train shares with perfpredict are tested there.
        for command in [[], *([name] for name in commands)]:
            if not command and writer != program:
                continue
            below, flags = help_of(program, *command)
            missing = flags - page.get(" ".join(command), set())
            assert not missing, f"{program} {command}: not in the manual page: {missing}"
            offered = completions(script, name, *command, "-")
            assert offered >= flags, f"{program} {command}: not completed: {flags - offered}"
            offered = completions(script, name, *command, "")
            assert offered >= set(below), f"{program} {command}: not completed: {set(below) - offered}"
            checked += len(flags) + len(below)
    assert checked > 20, checked
    print(f"{checked} commands and flags are in manual pages and completions")


main()
