#!/usr/bin/env python3
"""The installed package: python_test.py PREFIX."""

import os
import sys

import perfmodel
from perfmodel._library import library

step = perfmodel.predict(perfmodel.build("mlp"), gpu="t4")
for path in (perfmodel.__file__, library().path):
    assert os.path.realpath(path).startswith(os.path.realpath(sys.argv[1])), path
print(f"e2e {step.step_us} us by {library().path}")
