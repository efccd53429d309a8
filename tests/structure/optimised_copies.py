#!/usr/bin/env python3
"""Checks that programs run the optimised copies of a library's inline functions.

    optimised_copies.py LIBRARY.a PROGRAM...

Some sources of the command line are compiled without optimisation, and the linker keeps the first copy of an inline
function. Such a copy begins with a frame of its own (x86-64: push %rbp, mov %rsp,%rbp). Optimised functions that align
their stack have one, too, but go on to save the last register (push %r15), which code without optimisation does not use.
Exit code 1 if a program has such a copy, or none of the library's functions.
"""
import re
import subprocess
import sys

FRAME = re.compile(rb'(\xf3\x0f\x1e\xfa)?\x55\x48\x89\xe5(?!\x41\x57)')  # with or without endbr64


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def functions(file, kinds):
    """Address by name of the functions of an object, library or program."""
    return {name: int(address, 16) for address, name in re.findall(f'(?m)^(\\w+) [{kinds}] (.*)$', output('nm', file))}


def framed(program, names):
    """The names that the program holds, and which of them begin with a frame."""
    held = {name: address for name, address in functions(program, 'Wt').items() if name in names}
    begin, offset = (int(x, 16) for x in re.search(r' \.text +\w+ +(\w+) (\w+)', output('readelf', '-SW', program)).groups())
    code = open(program, 'rb').read()
    return held, sorted(name for name, address in held.items() if FRAME.match(code, address - begin + offset))


def main():
    library, *programs = sys.argv[1:]
    names = functions(library, 'W').keys()
    bad = 0
    for program in programs:
        held, slow = framed(program, names)
        print(f'{program}: {len(held)} inline functions of the library, {len(slow)} not optimised', *slow[:5], sep='\n  ')
        bad += not held or bool(slow)
    return bool(bad)


if __name__ == '__main__':
    sys.exit(main())
