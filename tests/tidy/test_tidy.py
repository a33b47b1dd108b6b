#!/usr/bin/env python3
"""Tests of tidy.py: a tree without faults passes, each kind of fault is found in its words."""
import os
import tempfile
import unittest

import tidy

TABLE = """# Architecture
| room | may include |
|---|---|
| `include/rlx` | |
| `src/base` | `include/rlx` |
| `src/ops` | `include/rlx` `src/base` |
| `src/backends` | `src/base` |
| `src/backends/*` | `src/backends` `src/base` |
| `src/import` | `include/rlx` |
| `tests` | `*` |
"""
TIDY_TREE = {
    "docs/architecture.md": TABLE,
    "include/rlx/a.hpp": "// What a is.\n#pragma once\n",
    "src/base/b.hpp": "// What b is.\n#pragma once\n#include \"rlx/a.hpp\"\n#include <vector>\n",
    "src/base/b.cpp": "// How b works.\n#include \"base/b.hpp\"\n",
    "src/backends/backend.hpp": "// Backends.\n#pragma once\n#include \"base/b.hpp\"\n",
    "src/backends/cpu/cpu.cpp": "// CPU.\n#include \"backends/backend.hpp\"\n",
    "src/backends/gpu/gpu.hpp": "// GPU.\n#pragma once\n",
    "src/import/onnx/read.cpp": "// Reads.\n#include <rlx/a.hpp>\n#include \"onnx/onnx-ml.pb.h\"\n",
    "tests/base/test_b.cpp": "// Tests b.\n#include \"base/b.hpp\"\n",
    "scripts/setup": "#!/bin/sh\n# Sets up.\n",
    "cmake/x.cmake": "# Things.\n",
}


class TidyTest(unittest.TestCase):
    def findings(self, changes=None):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**TIDY_TREE, **(changes or {})}.items():
                os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
                with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                    file.write(text)
            return list(tidy.findings(root))

    def expect(self, path, text, words):
        wrong = self.findings({path: text})
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(words, wrong[0])

    def test_a_tidy_tree_passes(self):
        self.assertEqual(self.findings(), [])

    def test_include_against_the_direction(self):
        self.expect("src/base/up.cpp", "// Up.\n#include \"backends/backend.hpp\"\n",
                    "src/base may not include src/backends/backend.hpp")

    def test_include_of_a_backend_by_the_registry(self):
        self.expect("src/backends/registry.cpp", "// All.\n#include \"backends/gpu/gpu.hpp\"\n",
                    "may not include src/backends/gpu/gpu.hpp")

    def test_include_of_one_backend_by_another(self):
        self.expect("src/backends/cpu/x.cpp", "// X.\n#include \"backends/gpu/gpu.hpp\"\n",
                    "may not include src/backends/gpu/gpu.hpp")

    def test_import_uses_the_public_surface_alone(self):
        self.expect("src/import/onnx/x.cpp", "// X.\n#include \"base/b.hpp\"\n",
                    "src/import may not include src/base/b.hpp")

    def test_include_of_nothing(self):
        self.expect("src/base/x.cpp", "// X.\n#include \"base/none.hpp\"\n", "nothing is called")

    def test_room_that_the_table_lacks(self):
        self.expect("src/cellar/x.cpp", "// X.\n", "lies in no room")

    def test_header_comment(self):
        self.expect("src/base/x.cpp", "int x;\n", "opens with no comment")
        self.expect("scripts/x", "#!/bin/sh\necho\n", "opens with no comment")

    def test_long_file_and_long_line(self):
        self.expect("src/base/x.cpp", "// X.\n" * 801, "801 lines; the limit is 800")
        self.expect("src/base/x.cpp", "// " + "x" * 98 + "\n", "101 columns; the limit is 100")

    def test_public_surface(self):
        many = {f"include/rlx/x{i}.hpp": "// X.\n#pragma once\n" + "\n" * 798 for i in range(4)}
        wrong = self.findings(many)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn("the public surface is at most 3000", wrong[0])

    def test_marks_and_machine_paths(self):
        self.expect("src/base/x.cpp", "// TO" "DO: more.\n", "a mark of unfinished work")
        self.expect("src/base/x.cpp", "// See /wo" "rk/x.\n", "a path of one machine")

    def test_pages(self):
        self.expect("docs/x.md", "# X\n[y](y.md) [a](architecture.md#rooms) [b](#here)\n",
                    "links to (y.md), which is not there")
        self.expect("docs/x.md", "# X\nSee /wo" "rk/x.\n", "a path of one machine")

    def test_headers(self):
        self.expect("src/base/x.hpp", "// X.\n", "has no #pragma once")

    def test_rooms_in_a_circle(self):
        circle = TABLE.replace("| `src/base` | `include/rlx` |", "| `src/base` | `src/ops` |")
        wrong = self.findings({"docs/architecture.md": circle,
                               "src/base/b.hpp": "// B.\n#pragma once\n"})
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn("rooms in a circle: src/base -> src/ops -> src/base", wrong[0])

    def test_page_without_a_table(self):
        self.expect("docs/architecture.md", "# Architecture\n", "has no include table")


if __name__ == "__main__":
    unittest.main()
