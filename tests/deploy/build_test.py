"""Tests deploy/build on a small project: its progress lines, and its report of a failed build.

usage: python -m tests.deploy.build_test
"""

import os
import pathlib
import pty
import re
import shutil
import subprocess
import tempfile
import unittest

BUILD = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "build"
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(small LANGUAGES CXX)
set(CMAKE_UNITY_BUILD ON)
set(CMAKE_UNITY_BUILD_BATCH_SIZE 4)
set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/slow)
file(GLOB sources CONFIGURE_DEPENDS *.cc)
add_executable(small ${sources})
"""


class BuildTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "deploy").mkdir()
        (self.root / ".deps").mkdir()
        shutil.copy(BUILD, self.root / "deploy" / "build")
        (self.root / ".deps" / "cmake-args").touch()
        (self.root / "CMakeLists.txt").write_text(PROJECT)
        (self.root / "slow").write_text('#!/bin/sh\nsleep 1\nexec "$@"\n')
        (self.root / "slow").chmod(0o755)
        for i in range(15):
            (self.root / f"f{i:02}.cc").write_text(f"int f{i}() {{ return {i}; }}\n")
        (self.root / "main.cc").write_text("int main() {}\n")

    def build(self, terminal=False):
        """Returns the exit status and everything that was printed."""
        command = [self.root / "deploy" / "build", self.root / "build"]
        if not terminal:
            done = subprocess.run(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True)
            return done.returncode, done.stdout
        reader, writer = pty.openpty()
        with subprocess.Popen(command, cwd=self.root, stdin=subprocess.DEVNULL, stdout=writer, stderr=writer) as program:
            os.close(writer)
            printed = b""
            while True:
                try:
                    piece = os.read(reader, 1 << 16)
                except OSError:  # Linux's answer at a terminal's end
                    break
                if not piece:
                    break
                printed += piece
        os.close(reader)
        return program.returncode, printed.decode()

    def test_a_terminal_shows_how_far_it_is_and_how_long_it_takes(self):
        status, printed = self.build(terminal=True)
        self.assertEqual(status, 0, printed)
        # Four unity units of four files each, and a link step.
        self.assertRegex(printed, r"\rbuild: [1-3] of 5, about \d+ (s|min) left\x1b\[K")
        self.assertIn("\rbuild: 5 of 5\x1b[K", printed)
        self.assertRegex(printed, r"\r\x1b\[Kbuild: done in \d+ s\r\n$")

    def test_a_second_build_compiles_only_what_changed(self):
        self.assertEqual(self.build()[0], 0)
        self.assertNotIn(" of ", self.build(terminal=True)[1])
        (self.root / "f00.cc").write_text("int f0() { return -1; }\n")
        self.assertIn("build: 2 of 2", self.build(terminal=True)[1])
        # The build finds the additional file, although nothing else names it.
        (self.root / "f99.cc").write_text("int main() {}\n")
        (self.root / "main.cc").unlink()
        status, printed = self.build(terminal=True)
        self.assertEqual(status, 0, printed)
        self.assertIn("build: 2 of 2", printed)

    def test_what_does_not_build_is_shown(self):
        (self.root / "f00.cc").write_text("int f0() { return nothing; }\n")
        status, printed = self.build()
        self.assertEqual(status, 1)
        self.assertRegex(printed, r"f00\.cc:1:19: error: .*nothing")
        self.assertRegex(printed, r"build: building failed; the whole output is in .*/build/build\.log\n$")

    def test_what_does_not_configure_is_shown(self):
        (self.root / "CMakeLists.txt").write_text(PROJECT + "no_such_command()\n")
        for attempt in ("the first", "another"):
            status, printed = self.build()
            self.assertEqual(status, 1, attempt)
            self.assertIn("no_such_command", printed, attempt)
            self.assertRegex(printed, r"build: configuring failed; the whole output is in .*\n$", attempt)


if __name__ == "__main__":
    unittest.main()
