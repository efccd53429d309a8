#!/usr/bin/env python3
"""Counts the instructions of commands, which a loaded machine does not change, and compares them with the stored counts.

    instructions.py PERFPREDICT [--update]

A question in process is the difference between two `serve` processes that answer few and many of them. Exit code 1 if a
row takes more than 3 % above its stored count; --update stores the counts of today. Valgrind counts; other compilers,
libraries and models have other counts, so a machine with another distribution or compiler compares nothing (exit code 77).
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

STORED = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'instructions.json')
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 1.03
FEW, MANY = 16, 80


def instructions(program, words, lines=()):
    done = subprocess.run(['valgrind', '--tool=cachegrind', '--cache-sim=no', '--cachegrind-out-file=/dev/null', program,
                           *words], input='\n'.join(lines), capture_output=True, text=True, check=True)
    return int(re.search(r'I +refs: +([\d,]+)', done.stderr).group(1).replace(',', ''))


def questions(count):
    """A model, and questions about other batches of it."""
    yield json.dumps({'op': 'build', 'id': 0, 'name': 'job', 'family': 'dlrm', 'preset': 'mlperf'})
    for i in range(count):
        yield json.dumps({'op': 'predict', 'id': i, 'graph': 'job', 'gpu': 'h100-sxm-80gb', 'batch': 64 * (1 + i % FEW)})


def platform(program):
    """Distribution and compiler."""
    release = dict(line.rstrip().split('=', 1) for line in open('/etc/os-release') if '=' in line)
    version = subprocess.run([program, '--version'], capture_output=True, text=True, check=True).stdout
    return f"{release['ID']} {release.get('VERSION_ID', '')}, {version.split(', ')[1]}"


def counts_of_file(program):
    """A whole command with a graph that it has to read."""
    with tempfile.TemporaryDirectory() as folder:
        graph = os.path.join(folder, 'graph.json')
        subprocess.run([program, 'build', 'dlrm', '--preset', 'mlperf', '-o', graph], check=True, capture_output=True)
        return instructions(program, ['predict', graph, '--gpu', 'v100-sxm2-32gb'])


def counts(program):
    gpus = ['serve', '--gpus', 'h100-sxm-80gb']
    few, many = (instructions(program, gpus, questions(count)) for count in (FEW, MANY))
    return {
        '--version': instructions(program, ['--version']),
        'predict dlrm:mlperf': instructions(program, ['predict', 'dlrm:mlperf', '--gpu', 'a100-sxm-40gb']),
        'predict FILE of dlrm:mlperf': counts_of_file(program),
        'predict gpt2': instructions(program, ['predict', 'gpt2', '--gpu', 'a100-sxm-40gb']),
        'serve: a question, another batch': (many - few) // (MANY - FEW)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('program')
    parser.add_argument('--update', action='store_true')
    arguments = parser.parse_args()
    here = platform(arguments.program)
    stored = json.load(open(STORED))
    if not arguments.update and stored['platform'] != here:
        print(f"counted on {stored['platform']}, this is {here}")
        return 77
    now = counts(arguments.program)
    if arguments.update:
        stored = {'platform': here, **now}
        with open(STORED, 'w') as file:
            json.dump(stored, file, indent=1)
            file.write('\n')
    for name, count in now.items():
        print(f'{name:36} {count / 1e6:9.2f} M  {count / stored[name]:6.3f} of the stored')
    return any(count > LIMIT * stored[name] for name, count in now.items())


if __name__ == '__main__':
    sys.exit(main())
