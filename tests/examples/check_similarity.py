#!/usr/bin/env python3
"""Runs the semantic search over stored sentences and compares its similarities to 3 decimals.

usage: check_similarity.py SEMANTIC_SEARCH      (RLX_MINILM and RLX_MINILM_CASE name the data)
"""
import os
import subprocess
import sys

SKIPPED = 77


def rows(text):
    return [[float(word) for word in line.split()] for line in text.splitlines() if line.strip()]


def main(program):
    model, case = os.environ.get("RLX_MINILM"), os.environ.get("RLX_MINILM_CASE")
    if not model or not case:
        print("skipped: RLX_MINILM and RLX_MINILM_CASE are not set")
        return SKIPPED
    command = [program, "--model", os.path.join(model, "model.onnx"),
               "--vocabulary", os.path.join(model, "vocab.txt"),
               "--file", os.path.join(case, "sentences.txt"), "--matrix"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    with open(os.path.join(case, "similarity.txt"), encoding="utf-8") as file:
        expected = rows(file.read())
    actual = rows(output)
    if [len(row) for row in actual] != [len(row) for row in expected]:
        print(f"wrong size:\n{output}")
        return 1
    pairs = [(a, e) for left, right in zip(actual, expected) for a, e in zip(left, right)]
    worst = max(abs(a - e) for a, e in pairs)
    print(f"{len(expected)} sentences, greatest difference {worst:.5f}")
    return 0 if worst < 5e-4 else 1


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
