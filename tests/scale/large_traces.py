#!/usr/bin/env python3
"""Makes Kineto traces of any size from a small one, and measures what reading them takes.

    large_traces.py make SOURCE MEGABYTES OUT[.gz]
    large_traces.py table PERFPREDICT SOURCE [--sizes 100 400 2000] [--folder DIR] [--json-load]
    large_traces.py check PERFPREDICT SOURCE [--sizes 30]

SOURCE is a trace, plain or gzip. A large trace repeats its events: every copy follows the previous
one, with stamps, correlation ids and step numbers of its own, so that it reads like one long
recording. `table` prints CPU seconds, MB of JSON per CPU second and peak memory of `perfpredict
trace`, with --json-load also of Python's json.load of the same file. `check` fails unless the events
are counted right and the peak stays below half the file and 100 MB.
"""
import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile

MB = 1_000_000
SHIFTED = re.compile(
    r'"(ts|correlation|[Ee]xternal id|Ev Idx|Profiler Event Index|Record function id'
    r'|wait_on_cuda_event_record_corr_id)"\s*:\s*"?(\d+)|ProfilerStep#(\d+)')


def read_text(path):
    opener = gzip.open if path.endswith('.gz') else open
    with opener(path, 'rt', encoding='utf-8', errors='surrogateescape') as file:
        return file.read()


def split_trace(text):
    """Text before the events, the events without their brackets, and the text after them."""
    key = text.find('"traceEvents"')
    begin = text.index('[', max(key, 0)) + 1
    end = json_array_end(text, begin)
    return text[:begin], text[begin:end].strip(), text[end:]


def json_array_end(text, begin):
    """Position of the ']' that closes the array whose elements start at `begin`."""
    depth = 0
    for token in re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]').finditer(text, begin):
        if token[0] in '[{':
            depth += 1
        elif token[0] in ']}':
            if depth == 0:
                return token.start()
            depth -= 1
    raise ValueError('the array of events does not end')


class Copies:
    """The events of a trace, cut at the numbers that differ between copies."""

    def __init__(self, events):
        self.pieces, self.numbers, self.kinds = [], [], []
        last, highest = 0, {}
        lowest_ts = None
        for match in SHIFTED.finditer(events):
            group = 2 if match[2] else 3
            kind = ('ts' if match[1] == 'ts' else 'step' if group == 3 else 'id')
            number = int(match[group])
            self.pieces.append(events[last:match.start(group)])
            self.numbers.append(number)
            self.kinds.append(kind)
            last = match.end(group)
            if kind == 'ts':
                lowest_ts = number if lowest_ts is None else min(lowest_ts, number)
            if kind != 'id' or number < 1 << 31:  # addresses among the ids
                highest[kind] = max(highest.get(kind, 0), number)
        self.tail = events[last:]
        durations = [int(d) for d in re.findall(r'"dur"\s*:\s*"?(\d+)', events)]
        span = highest.get('ts', 0) - (lowest_ts or 0)
        self.shift = {'ts': span + max(durations, default=0) + 1000,
                      'id': highest.get('id', 0) + 1,
                      'step': self.steps(events)}

    @staticmethod
    def steps(events):
        numbers = {int(n) for n in re.findall(r'ProfilerStep#(\d+)', events)}
        return max(numbers) - min(numbers) + 1 if numbers else 1

    def text(self, copy):
        shift = {kind: copy * by for kind, by in self.shift.items()}
        parts = []
        for piece, number, kind in zip(self.pieces, self.numbers, self.kinds):
            parts.append(piece)
            parts.append(str(number + shift[kind]))
        parts.append(self.tail)
        return ''.join(parts)


def make(source, size, out):
    """Writes about `size` bytes of trace to `out`; returns the exact number and the number of copies."""
    head, events, tail = split_trace(read_text(source))
    copies = Copies(events)
    # Byte positions: surrogateescape keeps whatever bytes the source has.
    encode = lambda text: text.encode('utf-8', 'surrogateescape')
    opener = (lambda p: gzip.open(p, 'wb', compresslevel=1)) if out.endswith('.gz') else (
        lambda p: open(p, 'wb'))
    written = count = 0
    with opener(out) as file:
        written += file.write(encode(head))
        while count == 0 or written < size:
            written += file.write(encode((',\n' if count else '\n') + copies.text(count)))
            count += 1
        written += file.write(encode('\n' + tail))
    return written, count


def measured(command):
    """CPU seconds, peak bytes and standard output of a command."""
    with tempfile.TemporaryFile() as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            sys.exit(f'error: exit code {child.returncode} of {" ".join(command)}')
        out.seek(0)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, out.read()


def table(arguments):
    print('| trace | events | command | CPU s | MB/s | peak MB |')
    print('|---|---:|---|---:|---:|---:|')
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            trace = os.path.join(folder, 'large.json')
            bytes_, _ = make(arguments.source, size * MB, trace)
            commands = [('perfpredict trace', [arguments.program, 'trace', trace, '--json'])]
            if arguments.json_load:
                script = 'import json,sys; json.load(open(sys.argv[1], encoding="utf-8", errors="replace"))'
                commands.append(('Python json.load', [sys.executable, '-c', script, trace]))
            events = ''
            for name, command in commands:
                cpu, peak, out = measured(command)
                if out:
                    events = f'{json.loads(out)["events"]:,}'
                print(f'| {bytes_ / MB:,.0f} MB | {events} | {name} | {cpu:.2f} | '
                      f'{bytes_ / MB / cpu:,.0f} | {peak / MB:,.0f} |', flush=True)


def check(arguments):
    _, _, out = measured([arguments.program, 'trace', arguments.source, '--json'])
    once = json.loads(out)
    for size in arguments.sizes:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for name in ('large.json', 'large.json.gz'):
                trace = os.path.join(folder, name)
                bytes_, count = make(arguments.source, size * MB, trace)
                _, peak, out = measured([arguments.program, 'trace', trace, '--json'])
                report = json.loads(out)
                for key in ('events', 'host_ops', 'kernels_total', 'calls'):
                    if report[key] != count * once[key]:
                        sys.exit(f'error: {name}: {key}: expected {count} x {once[key]}, found {report[key]}')
                limit = bytes_ / 2 + 100 * MB
                if peak > limit and not os.environ.get('PERFMODEL_SANITIZED'):
                    sys.exit(f'error: {name}: peak of {peak / MB:.0f} MB, limit {limit / MB:.0f} MB')
                print(f'{name}: {bytes_ / MB:.0f} MB of JSON, {count} copies, peak {peak / MB:.0f} MB')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest='command', required=True)
    one = commands.add_parser('make')
    one.add_argument('source')
    one.add_argument('megabytes', type=float)
    one.add_argument('out')
    for name, sizes in (('table', [100, 400, 2000]), ('check', [30])):
        many = commands.add_parser(name)
        many.add_argument('program')
        many.add_argument('source')
        many.add_argument('--sizes', type=float, nargs='+', default=sizes, help='megabytes')
        many.add_argument('--folder', help='where the traces are made, one at a time')
        many.add_argument('--json-load', action='store_true')
    arguments = parser.parse_args()
    if arguments.command == 'make':
        bytes_, count = make(arguments.source, arguments.megabytes * MB, arguments.out)
        print(f'{arguments.out}: {bytes_ / MB:.1f} MB of JSON, {count} copies')
    elif arguments.command == 'table':
        table(arguments)
    else:
        check(arguments)


if __name__ == '__main__':
    main()
