#!/usr/bin/env python3
"""The pre-commit hook (tests/hooks) lets good changes pass and refuses bad ones, in a temporary repository."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# For machines without clang-format: one blank for several, whatever the options say.
STAND_IN = "#!/bin/sh\nsed 's/  */ /g'\n"


class PreCommit(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name) / "clone"
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_NOSYSTEM="1")
        for name in ("author", "committer"):
            self.environment[f"GIT_{name.upper()}_NAME"] = name
            self.environment[f"GIT_{name.upper()}_EMAIL"] = f"{name}@example.invalid"
        for name in ("tests/hooks/pre-commit", "tests/structure/english.py", "tests/structure/cpp_text.py", ".clang-format"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        if not shutil.which("clang-format"):
            tools = Path(scratch.name) / "tools"
            tools.mkdir()
            (tools / "clang-format").write_text(STAND_IN)
            (tools / "clang-format").chmod(0o755)
            self.environment["PATH"] = f"{tools}:{self.environment['PATH']}"
        self.git("init", "-q")
        self.write("graph/src/old.cpp", "int  old;  // it lies here\n")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "Begin")
        self.git("config", "core.hooksPath", "tests/hooks")

    def git(self, *words, check=True):
        return subprocess.run(["git", *words], cwd=self.root, env=self.environment, check=check, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def commit(self, name, text):
        self.write(name, text)
        self.git("add", name)
        done = self.git("commit", "-q", "-m", "Change", check=False)
        return done.returncode == 0, done.stdout

    def test_good_change(self):
        self.assertEqual(self.commit("graph/src/good.cpp", "int good;\n// The price of a copy.\n"), (True, ""))

    def test_layout(self):
        passed, out = self.commit("graph/src/bad.cpp", "int good;\nint  bad;\n")
        self.assertFalse(passed)
        self.assertIn("-int  bad;\n+int bad;\n", out)
        self.assertIn("error: not committed", out)

    def test_forbidden_turn_in_a_comment(self):
        passed, out = self.commit("graph/src/bad.cpp", "int good;\n// The price is that\n// of a copy.\n")
        self.assertFalse(passed)
        self.assertIn("graph/src/bad.cpp:2: 'that of': The price is that of a copy.\n", out)

    def test_forbidden_turn_in_a_page(self):
        passed, out = self.commit("docs/page.md", "# Title\n\nNobody reads it.\n")
        self.assertFalse(passed)
        self.assertIn("docs/page.md:3: 'nobody': Nobody reads it.\n", out)

    def test_added_line_that_looks_like_the_head_of_a_file(self):
        self.assertIn("docs/page.md:2: 'lies'", self.commit("docs/page.md", "++ b/docs/other.md\nIt lies here.\n")[1])

    def test_old_lines_are_left_alone(self):
        if shutil.which("clang-format"):  # the stand-in knows no lines
            self.assertEqual(self.commit("graph/src/old.cpp", "int  old;  // it lies here\n\nint more;\n"), (True, ""))
        self.assertEqual(self.commit("docs/README.md", "Words.\n"), (True, ""))

    def test_what_is_staged_counts_and_not_the_file(self):
        self.write("docs/page.md", "It lies here.\n")
        self.git("add", "docs/page.md")
        self.write("docs/page.md", "It is here.\n")
        self.assertIn("docs/page.md:1: 'lies'", self.git("commit", "-q", "-m", "Change", check=False).stdout)

    def test_removed_files_and_names_with_blanks(self):
        self.git("rm", "-q", "graph/src/old.cpp")
        self.assertEqual(self.commit("docs/a page.md", "Good words.\n"), (True, ""))
        self.assertIn("docs/b page.md:1: 'lies'", self.commit("docs/b page.md", "It lies here.\n")[1])


if __name__ == "__main__":
    unittest.main()
