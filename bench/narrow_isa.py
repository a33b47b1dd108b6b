#!/usr/bin/env python3
"""Times models on a narrower instruction set, beside OpenVINO limited to the same: rlx by RLX_ISA,
OpenVINO's oneDNN by ONEDNN_MAX_CPU_ISA (ONNX Runtime obeys no such switch). Both run in processes
of their own and in turns; of several rounds the least median counts.

usage: bench/narrow_isa.py --rlx build/release/rlx [--isa avx2] [--rounds 2] [--seconds 0.5]
                           [--as-it-is] MODEL[:name=dim,...] ...

oneDNN's switch does not reach all of OpenVINO: products of f32 with constant weights and nothing
fused behind them are computed by MLAS, with AVX-512 where the processor has it. So a clamp to
+-1e30, which changes no number, is put behind each of them: oneDNN then computes them, within its
limit. --as-it-is leaves the model alone; the first column then compares with a mixture.

Needs onnx, openvino and numpy (scripts/requirements-peers.txt). The last column is OpenVINO
without any limit. Works best on a machine that does nothing else.
"""
import argparse
import json
import math
import os
import subprocess
import sys

PEER_ISAS = {"avx2": "AVX2", "portable": "SSE41"}

PEER = r"""
import statistics, sys, time
import numpy, onnx, openvino
from openvino import opset13
path, binding, seconds, clamps = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4] == "1"
core = openvino.Core()
model = core.read_model(path)
sizes = dict(item.split("=") for item in binding.split(",") if item)
graph = onnx.load(path, load_external_data=False).graph
fed = {port.get_any_name() for port in model.inputs}
model.reshape({value.name: [dim.dim_value or int(sizes.get(dim.dim_param, 1))
                            for dim in value.type.tensor_type.shape.dim]
               for value in graph.input if value.name in fed})
def is_constant(node):
    while node.get_type_name() in ("Convert", "Transpose", "Reshape"):
        node = node.input_value(0).get_node()
    return node.get_type_name() == "Constant"
for op in list(model.get_ordered_ops()) if clamps else []:
    if op.get_type_name() != "MatMul" or not is_constant(op.input_value(1).get_node()):
        continue
    result = op.output(0)
    readers = list(result.get_target_inputs())
    if len(readers) == 1 and readers[0].get_node().get_type_name() == "Add":
        result = readers[0].get_node().output(0)  # a bias stays with its product
        readers = list(result.get_target_inputs())
    clamped = opset13.clamp(result, -1e30, 1e30)
    for reader in readers:
        reader.replace_source_output(clamped.output(0))
best = None
for threads in (1, 2):
    compiled = core.compile_model(model, "CPU", {
        "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"})
    request = compiled.create_infer_request()
    random = numpy.random.default_rng(1)
    for port in compiled.inputs:
        kind = port.get_element_type().to_dtype()
        shape = list(port.get_shape())
        value = random.standard_normal(shape) if numpy.issubdtype(kind, numpy.floating) \
            else numpy.ones(shape)
        request.set_tensor(port, openvino.Tensor(value.astype(kind)))
    request.infer()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        request.infer()
        times.append(time.perf_counter() - start)
    median = statistics.median(times) * 1e3
    best = median if best is None else min(best, median)
print(best)
"""


def rlx_ms(arguments, path, binding):
    command = [arguments.rlx, "bench", path, "--json", "--seconds", str(arguments.seconds)]
    for item in filter(None, binding.split(",")):
        command += ["--dim", item]
    done = subprocess.run(command, capture_output=True, text=True,
                          env=dict(os.environ, RLX_ISA=arguments.isa))
    if done.returncode:
        sys.exit(f"{path}: {done.stderr.strip()}")
    return json.loads(done.stdout)["median_ms"]


def peer_ms(arguments, path, binding, limited):
    env = dict(os.environ)
    if limited:
        env["ONEDNN_MAX_CPU_ISA"] = PEER_ISAS[arguments.isa]
    clamps = "1" if limited and not arguments.as_it_is else "0"
    command = [sys.executable, "-c", PEER, path, binding, str(arguments.seconds), clamps]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    return float(done.stdout) if done.returncode == 0 else math.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", default="build/release/rlx")
    parser.add_argument("--isa", choices=sorted(PEER_ISAS), default="avx2")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--as-it-is", action="store_true")
    parser.add_argument("models", nargs="+")
    arguments = parser.parse_args()
    print(f"| model | rlx {arguments.isa} ms | OpenVINO {arguments.isa} | ratio | OpenVINO |")
    print("|---|---|---|---|---|")
    logs = []
    for spec in arguments.models:
        path, _, binding = spec.partition(":")
        own, limited, free = math.inf, math.inf, math.inf
        for _ in range(arguments.rounds):
            own = min(own, rlx_ms(arguments, path, binding))
            limited = min(limited, peer_ms(arguments, path, binding, True))
            free = min(free, peer_ms(arguments, path, binding, False))
        ratio = own / limited
        if math.isfinite(limited):
            logs.append(math.log(ratio))
        name = os.path.basename(os.path.dirname(path))
        print(f"| {name} {binding} | {own:.3f} | {limited:.3f} | {ratio:.2f} | {free:.3f} |",
              flush=True)
    if logs:
        print(f"\nGeometric mean {math.exp(sum(logs) / len(logs)):.3f}, "
              f"worst {math.exp(max(logs)):.2f}, {len(logs)} models")


if __name__ == "__main__":
    main()
