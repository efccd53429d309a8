#!/usr/bin/env python3
"""Follows docs/extending.md literally, in a copy of the sources, and uses what comes out.

    extending_test.py BUILD

A block of the page that starts with "// PATH" or "# PATH" is a new file, or with ", below: TEXT" goes
below the first line of PATH that contains TEXT, with ", instead of: TEXT" takes its place. Files that are new or changed are compiled with the
commands of BUILD for the same file or one next to it, and linked in front of BUILD's libraries, so that
they replace the existing code. Shell blocks run unchanged, with the new program. The section on
overhead terms changes a header that most sources know: its sources are compiled, in another copy, and
not linked.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../..'))
SOURCES = ('graph', 'predictors', 'perfmodel', 'tests')
BLOCK = re.compile(r'^```(\w+)\n(.*?)^```$', re.S | re.M)
PLACE = re.compile(r'^(?://|#) (\S+/\S+\.\w+)(?:, (below|instead of): (.+))?\n')
TERMS = re.compile(r'^## Add an overhead term\n.*?(?=^## )', re.S | re.M)
# The tests that the page adds or extends, by program.
TESTS = {'predictors': ['NewOps.*', 'MySort.*'],
         'graph': ['DropoutAdd.*', 'RewriteInvariants.HoldForEveryRewriteOfEveryGraph']}
WALK_TERMS = ['perfmodel/src/overheads/overheads_file.cpp', 'perfmodel/src/predict/prediction.cpp',
              'tests/perfmodel/host_terms_test.cpp']


def fail(text):
    sys.exit('error: ' + text)


def run(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors='replace', **options)
    if done.returncode != 0:
        text = command if isinstance(command, str) else ' '.join(command)
        fail(f'{text}\nexit code {done.returncode}\n{done.stdout[-4000:]}')
    return done.stdout


def follow(page, copy):
    """Writes the blocks into the copy; returns the paths written and the shell blocks."""
    written, shells = [], []
    for language, body in BLOCK.findall(page):
        place = PLACE.match(body)
        if language == 'sh':
            shells.append(body)
        elif place:
            path, where, text = place.groups()
            content = body[place.end():]
            full = os.path.join(copy, path)
            if where is None:
                if os.path.exists(full):
                    fail(f'{path} exists: the page says it is new')
                os.makedirs(os.path.dirname(full), exist_ok=True)
                open(full, 'w').write(body)
            else:
                lines = open(full).read().splitlines(keepends=True)
                found = [i for i, line in enumerate(lines) if text in line]
                if not found:
                    fail(f'{path} has no line with "{text}"')
                lines[found[0] + (where == 'below'):found[0] + 1] = [content]
                open(full, 'w').write(''.join(lines))
            if path not in written:
                written.append(path)
    return written, shells


class Build:
    def __init__(self, folder, copy):
        self.folder, self.copy = os.path.realpath(folder), copy
        entries = json.load(open(os.path.join(folder, 'compile_commands.json')))
        self.commands = {os.path.relpath(os.path.realpath(e['file']), ROOT): e for e in entries}

    def command_for(self, path):
        """The command of the file itself, or of one nearby: if sources are compiled in large pieces,
        few have a command of their own."""
        if path in self.commands:
            return self.commands[path]
        if path.startswith('tests/'):  # the command of a large piece of the same program
            piece = f'/tests/CMakeFiles/{path.split("/")[1]}_test.dir/Unity/'
            for known in sorted(self.commands):
                if piece in known:
                    return self.commands[known]
        folder = os.path.dirname(path)
        while folder:
            for known in sorted(self.commands):
                if known.startswith(folder + '/'):
                    return self.commands[known]
            folder = os.path.dirname(folder)
        return fail(f'nothing near {path} is compiled')

    def compile(self, path, out=None):
        """Without an object, only whether it compiles."""
        entry = self.command_for(path)
        parts, command = shlex.split(entry['command']), []
        skip = 0
        for at, part in enumerate(parts):
            if skip:
                skip -= 1
            elif part in ('-o', '-c', '-MF', '-MT'):
                skip = 1
            elif part in ('-MD', '-Winvalid-pch'):
                pass
            elif part == '-include' and 'cmake_pch' in parts[at + 1]:
                skip = 1
            elif part == '-Xclang' and ('pch' in ' '.join(parts[at:at + 4])):
                skip = 3
            else:
                for folder in SOURCES:
                    part = part.replace(os.path.join(ROOT, folder) + '/', os.path.join(self.copy, folder) + '/')
                command.append(part)
        made = ['-o', out, '-c'] if out else ['-fsyntax-only']
        run(command + ['-O0', '-Werror', *made, os.path.join(self.copy, path)], cwd=entry['directory'])

    def link(self, target, objects, replaced, out):
        """The link command of a program with `objects` first, less the objects that they replace."""
        command = run(['ninja', '-C', self.folder, '-t', 'commands', target]).splitlines()[-1]
        command = command[command.index('&&') + 2:command.rindex('&&')].strip()
        parts = [p for p in shlex.split(command) if not any(p.endswith(name) for name in replaced)]
        at = parts.index('-o')
        parts[at + 1] = out
        first = next(i for i, p in enumerate(parts) if p.endswith('.o') or p == '-Wl,--whole-archive')
        # An object of a unity build may hold what these replace: the first definition counts.
        run(parts[:first] + ['-Wl,--allow-multiple-definition'] + objects + parts[first:], cwd=self.folder)


def copy_sources(copy):
    for folder in SOURCES:
        shutil.copytree(os.path.join(ROOT, folder), os.path.join(copy, folder))


def check_terms(section, folder, copy):
    """Compiles what the section on overhead terms changes, and what walks the terms."""
    copy_sources(copy)
    written, _ = follow(section, copy)
    build = Build(folder, copy)
    for path in [path for path in written if path.endswith('.cpp')] + WALK_TERMS:
        build.compile(path)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    page = open(os.path.join(ROOT, 'docs/extending.md')).read()
    with tempfile.TemporaryDirectory() as scratch:
        copy = os.path.join(scratch, 'copy')
        copy_sources(copy)
        terms = TERMS.search(page)
        if not terms:
            fail('the page has no section on overhead terms')
        check_terms(terms.group(), sys.argv[1], os.path.join(scratch, 'terms'))
        written, shells = follow(TERMS.sub('', page), copy)
        # A table of text is part of the source that includes it.
        sources = [path.replace('rows.txt', 'rows.cpp') for path in written if path.endswith(('.cpp', 'rows.txt'))]
        lists = ''.join(open(os.path.join(copy, path)).read() for path in written if path.endswith('CMakeLists.txt'))
        for path in sources:
            if not os.path.exists(os.path.join(ROOT, path)) and os.path.basename(path) not in lists:
                fail(f'{path} is in no CMakeLists.txt')

        build = Build(sys.argv[1], copy)
        objects = {}
        for path in sources:
            objects[path] = os.path.join(scratch, path.replace('/', '_') + '.o')
            build.compile(path, objects[path])
        library = [o for path, o in objects.items() if not path.startswith('tests/')]

        program = os.path.join(scratch, 'bin', 'perfpredict')
        os.makedirs(os.path.dirname(program))
        build.link('bin/perfpredict', library, [], program)
        for folder, tests in TESTS.items():
            sources_of_tests = [path for path in sources if path.startswith(f'tests/{folder}/')]
            replaced = [f'/{os.path.basename(path)}.o' for path in sources_of_tests]
            test = os.path.join(scratch, f'extended_{folder}_test')
            build.link(f'bin/{folder}_test', library + [objects[path] for path in sources_of_tests], replaced, test)
            out = run([test, '--gtest_filter=' + ':'.join(tests)])
            if f'PASSED  ] {len(tests)} test' not in out:
                fail(f'the tests of the page in {folder}_test did not run\n' + out)

        work = os.path.join(scratch, 'work')
        os.makedirs(os.path.join(work, 'data'))
        for folder in ('architectures', 'gpus'):
            shutil.copytree(os.path.join(ROOT, 'data', folder), os.path.join(work, 'data', folder))
        environment = dict(os.environ, PATH=os.path.dirname(program) + os.pathsep + os.environ['PATH'],
                           PERFMODEL_DATA=os.path.join(ROOT, 'data'))
        run('perfpredict build mlp -o graph.json.gz', shell=True, cwd=work, env=environment)
        for shell in shells:
            run('set -e\n' + shell.replace('\\\n', ' '), shell=True, cwd=work, env=environment)
        for made in ('my-gpu.json', 'mine/gpus/r100.json', 'fused.json.gz'):
            if not os.path.exists(os.path.join(work, made)):
                fail(f'{made} was not made')
        for gpu, architecture in (('mine/gpus/r100.json', 'is known'), ('like-hopper.json', 'stands in')):
            answer = json.loads(run(f'perfpredict predict graph.json.gz --gpu {gpu} --json 2>/dev/null', shell=True,
                                    cwd=work, env=environment))
            stands_in = any('hopper stands in' in warning for warning in answer['warnings'][:1])
            if stands_in != (architecture == 'stands in'):
                fail(f'{gpu}: the architecture {architecture}, but the warnings are {answer["warnings"]}')
        before = run('perfpredict predict bert.json.gz --gpu a100-sxm-40gb --json 2>/dev/null', shell=True,
                     cwd=work, env=environment)
        after = run('perfpredict predict fused.json.gz --gpu a100-sxm-40gb --json 2>/dev/null', shell=True,
                    cwd=work, env=environment)
        if not json.loads(after)['kernel_sum_us'] < json.loads(before)['kernel_sum_us']:
            fail('the rewrite saved no kernel time')
        print(f'followed: {len(written)} files written, {len(sources)} compiled, {sum(map(len, TESTS.values()))} tests, {len(shells)} shell blocks')


if __name__ == '__main__':
    main()
