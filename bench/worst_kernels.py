#!/usr/bin/env python3
"""Lists the kernels that lose the most to the machine's limits, over all models, as a table.

usage: bench/worst_kernels.py --rlx build/release/rlx [--seconds 0.5] [--rounds 3] [--rows 10]
                              MODEL[:name=dim,...] ...
A kernel's loss is its time less its limit (the roofline of `rlx bench --profile`: the least time
for its arithmetic and its bytes), as a share of its model's time, so that small models count like
large ones. Kernels of one model that are alike (same kind, shape and ops inside) are one row. Of
several rounds the one with the least time of a model counts. Works best on a machine that does
nothing else.
"""
import argparse
import collections
import json
import os
import subprocess
import sys


def profile(rlx, spec, seconds):
    path, _, binding = spec.partition(":")
    command = [rlx, "bench", path, "--profile", "--json", "--seconds", str(seconds)]
    for item in filter(None, binding.split(",")):
        command += ["--dim", item]
    stored = os.path.join(os.path.dirname(path), "test_data_set_0")
    if os.path.isdir(stored) and not binding:
        command += ["--case", stored]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{spec}: {done.stderr.strip()}")
    return json.loads(done.stdout)["profile"]


def name_of(spec):
    path, _, binding = spec.partition(":")
    name = os.path.basename(os.path.dirname(path))
    return f"{name} {binding}".strip()


def rows_of(spec, arguments):
    rounds = [profile(arguments.rlx, spec, arguments.seconds) for _ in range(arguments.rounds)]
    kernels = min(rounds, key=lambda kernels: sum(k["median_us"] for k in kernels))
    total = sum(k["median_us"] for k in kernels)
    alike = collections.defaultdict(list)
    for k in kernels:
        alike[k["kernel"], k["shape"], k["region"]].append(k)
    for (kind, shape, region), group in alike.items():
        time = sum(k["median_us"] for k in group)
        limit = sum(k["limit_us"] for k in group)
        yield {"model": name_of(spec), "kernel": f"{kind} [{shape}] {region}"[:90],
               "times": len(group), "us": time, "of_limit": limit / time if time else 1,
               "loss": (time - limit) / total, "bound": group[0]["bound"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", default="build/release/rlx")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=10)
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    rows = [row for spec in arguments.models for row in rows_of(spec, arguments)]
    rows.sort(key=lambda row: -row["loss"])
    print("| model | kernel | times | us | share of its limit | set by | loss, of its model |")
    print("|---|---|---|---|---|---|---|")
    for row in rows[: arguments.rows]:
        print(f"| {row['model']} | {row['kernel']} | {row['times']} | {row['us']:.1f} "
              f"| {row['of_limit']:.0%} | {row['bound']} | {row['loss']:.0%} |")


if __name__ == "__main__":
    main()
