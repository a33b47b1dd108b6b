#!/usr/bin/env python3
"""Predicted times beside measured ones, for models and generated graphs, on 1 and 2 threads.

usage: cost.py --rlx BUILD/rlx [--corpus FOLDER] [--rounds 5] [--threads 1,2] [--generated]
               [--only PART] [--table FILE] [--again] [--realtime PRIORITY]
               [--patience SECONDS] [--fusion] [--alternatives N] [--seeds FIRST-LAST]
               [--markdown FILE] [--programs FOLDER]
               [MODEL[:dim=n,...] ...]

Predictions come from `rlx explain --json` in a process that never ran the model; measured times
from `rlx bench --json --profile`: the least of --rounds processes' medians for each kernel and
program, the rounds going over all programs. Each process waits up to --patience seconds until no
neighbour is busy on the same cores (bench/quiet.py); how many ran beside one is told. With --corpus
the models of its folders models and onnx/light count too. Kernels under 20 ns are left out of the
errors: they are near what the clock can tell.

--realtime runs the processes with that real-time priority (chrt -f), so that others who work on
the machine wait; two programs of one priority stand in each other's way. --table writes one line
for each kernel and each program; with --again the measured times come from that file and only the
predictions are made anew. --fusion measures each program with fusion off, too, and with each answer
given to a fusion question that was refused by less than twice what it would have won (at most
--alternatives of a program), all of them in turn: up to three --rounds, and up to six while the
plan seems to take more than 1.1 times the least. --seeds 0-39 adds random graphs. --programs keeps
the generated graphs in a folder, with a file programs.tsv that tells build/release/cost_fit what
was measured.
"""
import argparse
import contextlib
import csv
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile

import cost_graphs
import quiet

LEAST_US = 0.02
FIELDS = ["program", "threads", "index", "kind", "kernel_threads", "predicted_us", "measured_us",
          "bound", "flops", "bytes", "shape", "region", "clock_ghz"]


def call(options, verb, spec, threads, *more, environment=None):
    path, _, binding = spec.partition(":")
    command = [options.rlx, verb, path, "--json", *more]
    if threads:
        command += ["--threads", str(threads)]
    for item in filter(None, binding.split(",")):
        command += ["--dim", item]
    case = os.path.join(os.path.dirname(path), "test_data_set_0")
    if os.path.isdir(case) and not binding:
        command += ["--case", case]
    if options.realtime:
        command = ["chrt", "-f", str(options.realtime), *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env={**os.environ, **(environment or {})})
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-200:])
    return json.loads(done.stdout)


def measure(options, spec, threads, least):
    """Times one short process more; `least` keeps the least medians of all of them."""
    run = call(options, "bench", spec, threads, "--profile", "--seconds", "0.1")
    times = [run["median_ms"] * 1e3] + [kernel["median_us"] for kernel in run["profile"]]
    key = name_of(spec), threads
    before = least.get(key, (times, None))[0]
    least[key] = ([min(pair) for pair in zip(times, before)],
                  [kernel["shape"] for kernel in run["profile"]])


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


def name_of(spec):
    path, _, binding = spec.partition(":")
    parts = path.removesuffix("/model.onnx").removesuffix(".rlx").removesuffix(".onnx").split("/")
    name = "/".join(parts[-2:]) if path.endswith("/model.onnx") else parts[-1]
    return f"{name}:{binding}" if binding else name


def rows_of(options, spec, threads, least, known):
    """The lines of the table: the program's own (index -1), then its kernels."""
    name = name_of(spec)
    if options.again and (name, threads, -1) not in known:
        return []
    predicted = call(options, "explain", spec, threads)
    program = {"index": -1, "kind": "program",
               "bytes": predicted["plan_io"]["device_traffic_bytes"],
               "kernel_threads": max(k["threads"] for k in predicted["kernels"]),
               "predicted_us": predicted["predicted_ms"] * 1e3,
               "flops": sum(k["flops"] for k in predicted["kernels"]),
               "region": len(predicted["kernels"]), "clock_ghz": predicted["clock_ghz"]}
    rows = [program]
    for i, kernel in enumerate(predicted["kernels"]):
        rows.append({"index": i, "kind": kernel["name"], "kernel_threads": kernel["threads"],
                     "predicted_us": kernel["predicted_us"], "bound": kernel["bound"],
                     "flops": kernel["flops"], "bytes": kernel["bytes"],
                     "region": kernel["region"]})
    for row in rows:
        row["program"], row["threads"] = name, threads
        if options.again:
            before = known.get((name, threads, row["index"]), {})
            same = all(str(row[f]) == str(before.get(f))
                       for f in ("kind", "region", "kernel_threads"))
            # Where the plan is another one now there is nothing to compare with.
            if same or row is program:
                row["measured_us"], row["shape"] = before["measured_us"], before["shape"]
            else:
                program.pop("measured_us", None)
        else:
            times, shapes = least[name, threads]
            row["measured_us"] = times[row["index"] + 1]
            row["shape"] = shapes[row["index"]] if row["index"] >= 0 else ""
    return [row for row in rows if "measured_us" in row]


def close_refusals(plan):
    """The questions that were refused by less than twice what they would have won."""
    for question in plan["questions"]:
        lost, won = question["after_ns"], question["before_ns"]
        if won == 0:
            lost = question["work_added_ns"]
            won = question["score_ns"] + lost
        ratio = lost / won if won > 0 else float("inf")
        if not question["fused"] and ratio < 2:
            yield question["what"]


def fusion_row(options, spec, threads, rows):
    """The program with fusion off, and with each answer given that was nearly another one: their
    times; and bytes moved and kernels beside the plan's."""
    off = {"RLX_DISABLE_FUSION": "1"}
    plain = call(options, "explain", spec, threads, environment=off)
    plan = call(options, "explain", spec, threads)
    ways = {"on": ((), None)}
    if plain["kernels"] != plan["kernels"]:
        ways["off"] = (), off
    for what in sorted(set(close_refusals(plan)))[:options.alternatives]:
        ways[what] = (("--answer", what + "=yes"), None)
    alternatives = len(ways) - ("off" in ways) - 1
    times = {key: float("inf") for key in ways}
    for done in range(6):
        # Whether the plan lost or the machine was slow for a second, more rounds tell.
        if done >= min(options.rounds, 3) and times["on"] <= 1.1 * min(times.values()):
            break
        for key, (more, environment) in ways.items():
            def measure_way():
                run = call(options, "bench", spec, threads, "--seconds", "0.1", *more,
                           environment=environment)
                times[key] = min(times[key], run["median_ms"] * 1e3)
            options.quiet.sample(measure_way, options.patience)
    best = min(times, key=times.get)
    return {"name": rows[0]["program"], "threads": threads, "kernels": rows[0]["region"],
            "bytes": rows[0]["bytes"], "us": times["on"], "kernels_off": len(plain["kernels"]),
            "bytes_off": plain["plan_io"]["device_traffic_bytes"],
            "us_off": times.get("off", times["on"]), "alternatives": alternatives, "best": best,
            "regret": times["on"] / times[best]}


def error(row):
    return abs(float(row["predicted_us"]) / float(row["measured_us"]) - 1)


def summary_of(table):
    """Errors by number of threads and by kind of kernel, as lines."""
    lines = []
    for threads in sorted({row["threads"] for row in table}):
        own = [row for row in table if row["threads"] == threads]
        kernels = [r for r in own if r["index"] >= 0 and float(r["measured_us"]) >= LEAST_US]
        errors = [error(row) for row in kernels]
        whole = [error(row) for row in own if row["index"] < 0] or [float("nan")]
        lines.append(f"{threads} thread(s): {len(errors)} kernels: median "
                     f"{quantile(errors, .5):.1%}, p90 {quantile(errors, .9):.1%}; "
                     f"{len(whole)} programs: median {statistics.median(whole):.1%}, "
                     f"worst {max(whole):.1%}")
        for kind in sorted({row["kind"] for row in kernels}):
            part = [error(row) for row in kernels if row["kind"] == kind]
            lines.append(f"  {kind}: {len(part)} kernels, median {quantile(part, .5):.1%}, "
                         f"p90 {quantile(part, .9):.1%}")
    return lines


def regret_of(table):
    """How much longer a program takes with two threads allowed than in the better of the two."""
    times = {}
    for row in table:
        if row["index"] < 0:
            times.setdefault(row["program"], {})[row["threads"]] = float(row["measured_us"])
    worst = sorted((own[max(own)] / min(own.values()), name)
                   for name, own in times.items() if len(own) > 1)[::-1][:5]
    return ["choice of threads, worst: " + ", ".join(f"{r:.2f}x {name}" for r, name in worst)
            ] if worst else []


def fusion_lines(rows):
    if not rows:
        return []
    lines = ["", "| program | threads | kernels | off | KB moved | off | us | off | ratio | "
             "alternatives | regret |", "|---|---|---|---|---|---|---|---|---|---|---|"]
    product = 1.0
    for row in rows:
        ratio = row["us"] / row["us_off"]
        product *= row["regret"] ** (1 / len(rows))
        lines.append(f"| {row['name']} | {row['threads']} | {row['kernels']} | "
                     f"{row['kernels_off']} | {row['bytes'] / 1e3:.1f} | "
                     f"{row['bytes_off'] / 1e3:.1f} | {row['us']:.2f} | {row['us_off']:.2f} | "
                     f"{ratio:.2f} | {row['alternatives']} | {row['regret']:.2f} |")
    worst = max(rows, key=lambda row: row["regret"])
    return [f"regret against fusion off and {sum(row['alternatives'] for row in rows)} single "
            f"alternatives: worst {worst['regret']:.2f}x ({worst['name']}, {worst['best']}), "
            f"geomean {product:.3f}x"] + lines


def read_table(path):
    with open(path, encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {(r["program"], int(r["threads"]), int(r["index"])): r for r in rows}


def write_table(path, table):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, delimiter="\t", extrasaction="ignore", restval="")
        writer.writeheader()
        writer.writerows(table)


def write_programs(options, specs, counts):
    """Name, threads, file and dims of the inputs of every program."""
    with open(os.path.join(options.programs, "programs.tsv"), "w", encoding="utf-8") as file:
        for spec in specs:
            inputs = call(options, "inspect", spec, None)["inputs"]
            dims = ",".join(f"{i['name']}={'x'.join(map(str, i['shape']))}" for i in inputs)
            for threads in counts:
                print(name_of(spec), threads, spec.partition(":")[0], dims, sep="\t", file=file)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", required=True)
    parser.add_argument("--corpus")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--generated", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--table")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--realtime", type=int, default=0)
    parser.add_argument("--patience", type=float, default=0.2)
    parser.add_argument("--fusion", action="store_true")
    parser.add_argument("--alternatives", type=int, default=8)
    parser.add_argument("--seeds", default="")
    parser.add_argument("--markdown")
    parser.add_argument("--programs")
    parser.add_argument("models", nargs="*")
    return parser.parse_args()


def specs_of(options, folder):
    specs = list(options.models)
    if options.corpus:
        specs += sorted(glob.glob(options.corpus + "/models/*/*/model.onnx"))
        specs += sorted(glob.glob(options.corpus + "/onnx/light/*/model.onnx"))
    if options.generated:
        specs += cost_graphs.write_graphs(folder)
    if options.seeds:
        first, _, last = options.seeds.partition("-")
        specs += cost_graphs.write_seeded(folder, range(int(first), int(last or first) + 1))
    return [spec for spec in specs if options.only in spec]


def measure_all(options, specs, counts):
    """Rounds over all programs, so that the processes of one program lie far apart in time."""
    least, failed = {}, set()
    for _ in range(0 if options.again else options.rounds):
        for spec in specs:
            for threads in counts:
                try:
                    if spec not in failed:
                        options.quiet.sample(lambda: measure(options, spec, threads, least),
                                             options.patience)
                except (RuntimeError, KeyError) as failure:
                    print(f"{name_of(spec)}: {failure}", file=sys.stderr, flush=True)
                    failed.add(spec)
    return least, [spec for spec in specs if spec not in failed]


def main():
    options = arguments()
    options.quiet = quiet.Quiet()
    known = read_table(options.table) if options.again else {}
    counts = list(map(int, options.threads.split(",")))
    table, fusion, lines = [], [], []
    with contextlib.ExitStack() as stack:
        folder = options.programs or stack.enter_context(tempfile.TemporaryDirectory())
        os.makedirs(folder, exist_ok=True)
        least, specs = measure_all(options, specs_of(options, folder), counts)
        if options.programs:
            write_programs(options, specs, counts)
        for spec in specs:
            for threads in counts:
                rows = rows_of(options, spec, threads, least, known)
                if options.fusion and rows:
                    fusion.append(fusion_row(options, spec, threads, rows))
                for program in [row for row in rows if row["index"] < 0]:
                    predicted, measured = program["predicted_us"], float(program["measured_us"])
                    lines.append(f"| {program['program']} | {threads} | {predicted:.2f} | "
                                 f"{measured:.2f} | {predicted / measured:.2f} |")
                table += rows
    summary = [f"load at the end: {os.getloadavg()[0]:.1f}, {options.quiet.summary()}",
               *summary_of(table),
               *regret_of(table), *fusion_lines(fusion)]
    print("\n".join(summary))
    if options.table:
        write_table(options.table + (".again" if options.again else ""), table)
    if options.markdown:
        head = ["", "| program | threads | predicted us | measured us | ratio |",
                "|---|---|---|---|---|"]
        with open(options.markdown, "w", encoding="utf-8") as file:
            file.write("\n".join(summary + head + lines) + "\n")


if __name__ == "__main__":
    main()
