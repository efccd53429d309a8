#!/usr/bin/env python3
"""budget.py and english.py count what they say, on a made-up tree, and fail where a limit is passed."""

import contextlib
import io
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import budget
import cpp_text
import english
import include_graph

TREE = {
    "graph/src/core/tensor.hpp": """#pragma once
// Two lines
// of comment.
struct Tensor { /* one
   more */ int id; };
""",
    "graph/src/core/tensor.cpp": """#include "core/tensor.hpp"
#include "read/reader.hpp"

const char* text = "// no comment /* nor here";  // one
const char* raw = R"x(" // )" )x"; int million = 1'000'000; char quote = '"';  // "
auto size = static_cast<std::size_t>(million) + static_cast<size_t>(1);
// static_cast<std::size_t>(2)
""",
    "graph/src/read/reader.hpp": '#include "core/tensor.hpp"\n',
    "graph/src/write/writer.cpp": '#include "core/tensor.hpp"\n',
    "perfmodel/cli/flags.hpp": "#include <CLI/CLI.hpp>\n",
    "perfmodel/cli/command.hpp": '#include "flags.hpp"\n',
    "perfmodel/cli/command.cpp": '#include "command.hpp"\nint micro_batch = 1;\n',
    "perfmodel/cli/other.cpp": 'const char* name = "micro_batch";  // not micro_batches\n',
    "perfmodel/src/layout/text.cpp": "// micro_batch\n",
    "kernels_bench/core/long.cpp": "class Long final : public Base {\n" + "  int x;\n" * 299 + "};\n" +
                                   "struct Short {\n" + "  int x;\n" * 298 + "};\nenum class E {\n" + "\n" * 400 + "};\n",
}


class Tree(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name).resolve()
        for name, text in TREE.items():
            self.write(name, text)
        moved = mock.patch.object(include_graph, "ROOT", self.root)
        moved.start()
        self.addCleanup(moved.stop)

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def run_budget(self, *words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), mock.patch("sys.argv", ["budget.py", "--limits", str(self.root / "l.tsv"), *words]):
            return budget.main(), out.getvalue()


class Structure(Tree):
    def figure(self, folder, measure):
        return budget.structure_figures()[folder, measure]

    def test_lines(self):
        # tensor.hpp: pragma, two of the struct; tensor.cpp: two includes, three lines of code.
        self.assertEqual(self.figure("graph/src/core", "lines"), 3 + 5)
        self.assertEqual(self.figure("graph", "lines"), 3 + 5 + 1 + 1)
        self.assertEqual(self.figure("total", "lines"), 10 + 1 + 1 + 2 + 1 + 301 + 300 + 2)

    def test_classes(self):
        self.assertEqual(self.figure("kernels_bench", "classes>300"), 1)
        self.assertEqual(self.figure("total", "classes>300"), 1)

    def test_arrows_back(self):
        # core and read include each other; write only looks at core.
        self.assertEqual(self.figure("graph/src/core", "back"), 1)
        self.assertEqual(self.figure("graph/src/read", "back"), 1)
        self.assertEqual(self.figure("graph/src/write", "back"), 0)

    def test_arrows_back_through_a_third_folder(self):
        self.write("graph/src/read/reader.hpp", '#include "write/writer.hpp"\n')
        self.write("graph/src/write/writer.hpp", '#include "core/tensor.hpp"\n')
        # writer.hpp and writer.cpp of write; core -> read -> write -> core
        self.assertEqual([self.figure(f"graph/src/{f}", "back") for f in ("core", "read", "write")], [1, 1, 2])

    def test_cli11_through_headers(self):
        self.assertEqual(self.figure("perfmodel/cli", "sees CLI11"), 1)

    def test_casts_and_field(self):
        self.assertEqual(self.figure("graph/src/core", "size_t casts"), 2)
        self.assertEqual(self.figure("perfmodel/cli", "micro_batch"), 2)
        self.assertEqual(self.figure("perfmodel/src/layout", "micro_batch"), 0)


class Limits(Tree):
    def test_todays_figures_pass(self):
        status, out = self.run_budget("--lower")
        self.assertEqual(status, 0)
        self.assertIn("0 figures above their limits, 0 to lower", out)

    def test_one_line_more_fails(self):
        self.run_budget("--lower")
        self.write("graph/src/core/more.cpp", "int more;\n")
        status, out = self.run_budget()
        self.assertEqual(status, 1)
        self.assertIn("graph/src/core: lines: 9, limit 8: a change that passes the budget says why in its commit and "
                      "raises the limit here\n", out)

    def test_new_folder_has_no_limit_yet(self):
        self.run_budget("--lower")
        self.write("graph/src/step/step.cpp", "int step;\n")
        self.assertIn("graph/src/step: lines: 1, limit 0: ", self.run_budget()[1])

    def test_lower_never_raises(self):
        self.run_budget("--lower")
        self.write("graph/src/core/more.cpp", "int more;\n")
        (self.root / "perfmodel/cli/other.cpp").unlink()
        self.assertIn("perfmodel/cli: micro_batch: 1, limit 2\n", self.run_budget()[1])
        status, out = self.run_budget("--lower")
        self.assertEqual(status, 1)
        self.assertIn("graph/src/core: lines: 9, limit 8: ", out)
        self.assertNotIn("perfmodel/cli: micro_batch:", out)
        self.assertEqual(budget.read_limits(self.root / "l.tsv")["perfmodel/cli", "micro_batch"], 1)

    def test_slack(self):
        limits = {("a", "lines"): 100, ("b", "lines"): 100, ("c", "back"): 100}
        figures = {("a", "lines"): 97, ("b", "lines"): 96, ("c", "back"): 99}
        self.assertEqual(budget.check(figures, limits), ([], ["b: lines: 96, limit 100", "c: back: 99, limit 100"]))


class English(Tree):
    def found(self, name, text):
        return [(line, pattern) for line, _, pattern, _ in english.places(name, text)]

    def test_comments_of_cpp(self):
        self.assertEqual(self.found("graph/src/a.cpp", "/// Of those that\n/// of course\nint x;  // what is left\n"
                                                       "int behind;  /* the price is that\n of it */\n"),
                         [(1, "of ..."), (3, "what ..."), (4, "that of")])

    def test_comments_below_each_other_are_one_unless_code_stands_between(self):
        self.assertEqual(self.found("graph/a.hpp", "int x;  // the time\nint y;  // of it\nint z;\n// the time\n// of it\n"),
                         [(2, "of ...")])

    def test_strings_of_programs_and_not_of_tests(self):
        text = 'option("--x", "cost of the host, "\n  "behind all");\nname("behind");\n'
        self.assertEqual(self.found("perfmodel/cli/a.cpp", text), [(2, "behind")])
        self.assertEqual(self.found("tests/cli/a.cpp", text), [])

    def test_pages(self):
        self.assertEqual(self.found("docs/a.md", "# Behind\n\nThe sum is that\nof all.\n\n```\nbehind\n```\n`behind`\n- beside\n"),
                         [(1, "behind"), (3, "that of"), (10, "beside")])

    def test_sentences(self):
        self.assertEqual(self.found("docs/a.md", "What it writes is the input. What it costs is a question?\n\n"
                                                 "Where nothing is left, stop. See where it is, now.\n"),
                         [(1, "what ... is"), (3, "where = if")])

    def test_python_and_scripts(self):
        self.assertEqual(self.found("tests/a.py", '"""Nobody reads it."""\nx = "nobody"  # it lies there\n'),
                         [(1, "nobody"), (2, "lies")])
        self.assertEqual(self.found("tests/a.sh", '#!/bin/nobody\necho "$#" nobody  # it is\n# so\n'), [])
        self.assertEqual(self.found("tests/a.sh", "# it stands here\n"), [(1, "stands")])

    def test_idioms_are_no_riddles(self):
        self.assertEqual(self.found("docs/a.md", "m stands for rows; they are told apart; how many a second?\n"), [])

    def test_counts_have_limits(self):
        self.run_budget("--lower")
        self.write("docs/a.md", "It lies here.\n")
        self.assertIn("docs: English: lies: 1, limit 0: ", self.run_budget()[1])


class Lexer(unittest.TestCase):
    def test_offsets_stay(self):
        text = 'a /* b\n c */ "d // e" // f\ng'
        code, comments, strings = cpp_text.split(text)
        self.assertEqual(code, 'a     \n      "d // e"     \ng')
        self.assertEqual(comments, [(2, "/* b\n c */"), (text.index("// f"), "// f")])
        self.assertEqual(strings, [(text.index('"d'), '"d // e"')])


if __name__ == "__main__":
    unittest.main()
