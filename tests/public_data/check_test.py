#!/usr/bin/env python3
"""The check of public files finds what it is there to find (public_data_test.py), on made-up programs and data."""

import contextlib
import io
import os
import tempfile
import unittest
from pathlib import Path

import public_data_test

PROGRAM = """#!/bin/sh
# b.csv stands in a comment and is not read
if [ "$1" = "--gtest_filter=Tables.*" ]; then
  cat "$PERFMODEL_PUBLIC_DATA"/sub/a*.csv > /dev/null
  echo "[  PASSED  ] 2 tests."
elif [ "$1" = "--gtest_filter=Looks.*" ]; then
  ls -l "$PERFMODEL_PUBLIC_DATA" > /dev/null
  echo "[  PASSED  ] 1 test."
else
  echo "[  PASSED  ] 0 tests."
fi
"""


class Check(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = Path(scratch.name)
        self.data = self.root / "data"
        for name in ("sub/a1.csv", "sub/a2.csv", "b.csv", "later/c.csv", "README.md"):
            file = self.data / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("x\n")
        program = self.root / "made_test"
        program.write_text(PROGRAM)
        program.chmod(0o755)

    def errors(self, *lines):
        listed = self.root / "files.tsv"
        listed.write_text("# comment\n" + "".join(line.replace("|", "\t") + "\n" for line in lines))
        err = io.StringIO()
        with contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()):
            status = public_data_test.check(self.root, self.data, self.data, listed)
        self.assertEqual(status != 0, bool(err.getvalue()))
        return [line.removeprefix("error: ") for line in err.getvalue().splitlines() if line]

    READ = ("sub/a1.csv|made_test|Tables.*", "sub/a2.csv|made_test|Tables.*")
    REST = ("b.csv|unread|nobody needs it", "later/|unread|belongs to later work")

    def test_whole_list_passes(self):
        self.assertEqual(self.errors(*self.READ, *self.REST), [])

    def test_file_without_row(self):
        (self.data / "later2").mkdir()
        (self.data / "later2/d.csv").write_text("x")
        self.assertEqual(self.errors(*self.READ, *self.REST),
                         ["later2/d.csv: no test reads it, and the list does not say why"])

    def test_name_in_a_comment_is_no_reading(self):
        self.assertEqual(self.errors(*self.READ, "b.csv|made_test|Tables.*", self.REST[1]),
                         ["b.csv: made_test Tables.* does not read it"])

    def test_looking_at_a_file_is_no_reading(self):
        self.assertEqual(self.errors(*self.READ, "b.csv|made_test|Looks.*", self.REST[1]),
                         ["b.csv: made_test Looks.* does not read it"])

    def test_filter_without_tests(self):
        self.assertEqual(self.errors(*self.READ, "b.csv|made_test|Gone.*", self.REST[1])[0],
                         "made_test Gone.*: expected tests that pass")

    def test_file_that_is_gone(self):
        os.remove(self.data / "b.csv")
        self.assertEqual(self.errors(*self.READ, *self.REST), ["b.csv: the list names it, and it is not there"])

    def test_unread_file_that_is_read(self):
        self.assertEqual(self.errors(self.READ[0], "sub/a2.csv|unread|nobody needs it", *self.REST),
                         ["sub/a2.csv: the list calls it unread, and made_test Tables.* reads it"])

    def test_reason_that_is_none(self):
        self.assertEqual(self.errors(*self.READ, "b.csv|unread|later", self.REST[1]),
                         ["b.csv: expected a reason for not reading it, found 'later'"])


if __name__ == "__main__":
    unittest.main()
