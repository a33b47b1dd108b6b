#!/usr/bin/env python3
"""Predicted times beside measured ones, for models and generated graphs, on 1 and 2 threads.

usage: cost.py --rlx BUILD/rlx [--corpus FOLDER] [--rounds 3] [--threads 1,2] [--generated 40]
               [--only PART] [--markdown FILE] [MODEL[:dim=n,...] ...]

Predictions come from `rlx explain --json` in a process that never ran the model; measured times
from `rlx bench --json --profile`, the least of --rounds processes for each kernel. With --corpus
the models of its folders models and onnx/light count too. Kernels under 20 ns are left out of the
errors: they are near what the clock can tell. The machine should be quiet; the load is printed.
"""
import argparse
import glob
import json
import os
import statistics
import subprocess
import tempfile

LEAST_US = 0.02


def text_of(kind, a, b, c):
    """A graph in the text form."""
    lines = [f'%0 = input() {{name = "x", dtype = f32, shape = [{a}, {b}]}}']
    if kind == "matmul":
        lines.append(f'%1 = input() {{name = "w", dtype = f32, shape = [{b}, {c}]}}')
        lines.append("%2 = dot_general(%0, %1) {a_batch = [], b_batch = [], "
                     "a_contract = [1], b_contract = [0]}")
        lines.append("%3 = tanh(%2)")
    elif kind == "softmax":
        lines.append("%3 = softmax(%0) {axis = 1}")
    elif kind == "chain":
        lines += ["%1 = exp(%0)", "%2 = add(%1, %0)", "%4 = sqrt(%1)", "%3 = mul(%2, %4)"]
    elif kind == "sum":
        lines.append("%1 = mul(%0, %0)")
        lines.append("%3 = reduce(%1) {kind = sum, axes = [1], keep_dims = false}")
    elif kind == "transpose":
        lines += ["%1 = transpose(%0) {perm = [1, 0]}", "%3 = tanh(%1)"]
    return "rlx 1\ngraph {\n  " + "\n  ".join(lines) + '\n  output "y" = %3\n}\n'


def generated(count, folder):
    shapes = [(1, 64, 128), (4, 256, 256), (16, 768, 384), (64, 100, 500), (100, 333, 70),
              (128, 384, 384), (256, 1024, 512), (1000, 64, 30)]
    specs = [(kind, *shape) for shape in shapes
             for kind in ("matmul", "softmax", "chain", "sum", "transpose")]
    paths = []
    for spec in specs[:count]:
        path = os.path.join(folder, "_".join(map(str, spec)) + ".rlx")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text_of(*spec))
        paths.append(path)
    return paths


def call(rlx, verb, spec, threads, *options):
    path, _, binding = spec.partition(":")
    command = [rlx, verb, path, "--json", "--threads", str(threads), *options]
    for item in filter(None, binding.split(",")):
        command += ["--dim", item]
    case = os.path.join(os.path.dirname(path), "test_data_set_0")
    if os.path.isdir(case) and not binding:
        command += ["--case", case]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-200:])
    return json.loads(done.stdout)


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


def compare(rlx, spec, threads, rounds):
    predicted = call(rlx, "explain", spec, threads)
    runs = [call(rlx, "bench", spec, threads, "--profile", "--seconds", "0.1")
            for _ in range(rounds)]
    kernels = []
    for i, kernel in enumerate(predicted["kernels"]):
        measured = min(run["profile"][i]["median_us"] for run in runs)
        kernels.append((kernel["name"], kernel["predicted_us"], measured))
    whole = min(run["median_ms"] for run in runs)
    return predicted["predicted_ms"], whole, kernels


def error(pair):
    return abs(pair[0] / pair[1] - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", required=True)
    parser.add_argument("--corpus")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--generated", type=int, default=40)
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown")
    parser.add_argument("models", nargs="*")
    options = parser.parse_args()
    specs = list(options.models)
    if options.corpus:
        specs += sorted(glob.glob(options.corpus + "/models/*/*/*.onnx"))
        specs += sorted(glob.glob(options.corpus + "/onnx/light/*/model.onnx"))
    lines, kernels, programs, regret = [], {}, {}, []
    with tempfile.TemporaryDirectory() as folder:
        specs += generated(options.generated, folder)
        for spec in [s for s in specs if options.only in s]:
            times = {}
            name = spec.removesuffix("/model.onnx")
            name = "/".join(name.split("/")[-2 if spec.endswith(".onnx") else -1:])
            for threads in map(int, options.threads.split(",")):
                try:
                    predicted, measured, rows = compare(options.rlx, spec, threads, options.rounds)
                except (RuntimeError, KeyError) as failure:
                    print(f"{name}: {failure}", flush=True)
                    break
                times[threads] = measured
                programs.setdefault(threads, []).append((predicted, measured))
                kernels.setdefault(threads, []).extend(rows)
                lines.append(f"| {name} | {threads} | {predicted:.4f} | {measured:.4f} | "
                             f"{predicted / measured:.2f} |")
                print(lines[-1], flush=True)
            if len(times) > 1:
                regret.append((times[max(times)] / min(times.values()), name))
    summary = [f"load while measuring: {os.getloadavg()[0]:.1f}"]
    for threads, rows in kernels.items():
        counted = [row for row in rows if row[2] >= LEAST_US]
        errors = [error(row[1:]) for row in counted]
        whole = [error(pair) for pair in programs[threads]]
        summary.append(f"{threads} thread(s): {len(errors)} kernels: median "
                       f"{quantile(errors, .5):.1%}, p90 {quantile(errors, .9):.1%}; "
                       f"{len(whole)} programs: median {statistics.median(whole):.1%}, "
                       f"worst {max(whole):.1%}")
        for kind in sorted({row[0] for row in counted}):
            own = [error(row[1:]) for row in counted if row[0] == kind]
            summary.append(f"  {kind}: {len(own)} kernels, median {quantile(own, .5):.1%}, "
                           f"p90 {quantile(own, .9):.1%}")
    if regret:
        worst, name = max(regret)
        summary.append(f"choice of threads: worst {worst:.2f}x the better ({name})")
    print("\n".join(summary))
    if options.markdown:
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(summary) + "\n\n| program | threads | predicted ms | "
                       "measured ms | ratio |\n|---|---|---|---|---|\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
