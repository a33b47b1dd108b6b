#!/usr/bin/env python3
"""Times layers whose weights are stored in few bits, beside ONNX Runtime and OpenVINO, in turns.

usage: bench/weight_bits.py [--rlx build/release/rlx] [--rows 1,16,128] [--threads 1,2]
                            [--rounds 3] [--seconds 0.3]

Three products, 1024 x 4096, 4096 x 1024 and 1024 x 4096, one after the other: int8 with a scale
for each column (DequantizeLinear), and MatMulNBits of 8 and 4 bits in blocks of 32, without and
with zero points. Of several rounds the least median counts. First rlx, ONNX Runtime and OpenVINO
with activations in f32 (MatMulNBits asks for it with accuracy_level 1, OpenVINO gets a group size
of 0; ONNX Runtime's DequantizeLinear always has activations of int8), then with narrower ones: rlx
--precision bf16 and OpenVINO as it is by itself, with int8. Errors are the largest difference from
the products in f64 over the largest value, in the same order.

Needs numpy, onnx, onnxruntime, openvino (scripts/requirements-peers.txt) and a quiet machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy
import onnx
import onnxruntime
import openvino
from onnx import TensorProto, helper, numpy_helper

LAYERS = ((1024, 4096), (4096, 1024), (1024, 4096))
BLOCK = 32


def by_column(random, k, n, index):
    weight = random.integers(-127, 128, (k, n), dtype=numpy.int8)
    scale = ((random.random(n) + 0.5) * 0.01 / 127).astype(numpy.float32)
    nodes = [("DequantizeLinear", [f"w{index}", f"s{index}"], f"d{index}", {"axis": 1}, ""),
             ("MatMul", [f"x{index}", f"d{index}"], f"x{index + 1}", {}, "")]
    return nodes, {f"w{index}": weight, f"s{index}": scale}, weight * scale.astype(float)


def by_block(bits, zeros):
    def layer(random, k, n, index):
        blocks, most = k // BLOCK, 1 << bits
        numbers = random.integers(0, most, (n, blocks, BLOCK))
        zero = numpy.full((n, blocks), most // 2)
        if zeros:
            zero = random.integers(0, most, (n, blocks))
        scale = ((random.random((n, blocks)) + 0.5) * 0.02 / most).astype(numpy.float32)
        pack = (lambda x: x) if bits == 8 else (lambda x: x[..., ::2] | x[..., 1::2] << 4)
        values = {f"w{index}": pack(numbers).astype(numpy.uint8), f"s{index}": scale.reshape(-1)}
        if zeros:
            values[f"z{index}"] = pack(zero).astype(numpy.uint8).reshape(-1)
        node = ("MatMulNBits", [f"x{index}", *values], f"x{index + 1}",
                {"K": k, "N": n, "bits": bits, "block_size": BLOCK, "accuracy_level": 1},
                "com.microsoft")
        real = (numbers - zero[..., None]) * scale.astype(float)[..., None]
        return [node], values, real.reshape(n, k).T
    return layer


KINDS = {"int8 by column": by_column, "8 bits": by_block(8, False), "4 bits": by_block(4, False),
         "4 bits, zero points": by_block(4, True)}


def build(kind, rows, path):
    """Writes the model; gives an input and what it makes, in f64."""
    random = numpy.random.default_rng(1)
    nodes, weights = [], {}
    x = random.standard_normal((rows, LAYERS[0][0])).astype(numpy.float32)
    y = x.astype(float)
    for index, (k, n) in enumerate(LAYERS):
        made, values, real = KINDS[kind](random, k, n, index)
        nodes += [helper.make_node(op, inputs, [output], domain=domain, **attributes)
                  for op, inputs, output, attributes, domain in made]
        weights.update(values)
        y = y @ real
    value = lambda index, width: helper.make_tensor_value_info(
        f"x{index}", TensorProto.FLOAT, [rows, width])
    graph = helper.make_graph(nodes, "layers", [value(0, LAYERS[0][0])],
                              [value(len(LAYERS), LAYERS[-1][1])],
                              [numpy_helper.from_array(v, name) for name, v in weights.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return x, y


def median_ms(run, seconds):
    run()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def onnxruntime_of(path, x, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x0": x})[0]


def openvino_of(path, x, threads, narrow):
    options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1,
               "INFERENCE_PRECISION_HINT": "f32"}
    if not narrow:
        options["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    compiled = openvino.Core().compile_model(path, "CPU", options)
    request = compiled.create_infer_request()
    return lambda: request.infer({"x0": x})[compiled.output(0)]


def rlx_ms(arguments, path, threads, precision):
    done = subprocess.run([arguments.rlx, "bench", path, "--json", "--seconds",
                           str(arguments.seconds), "--threads", str(threads),
                           "--precision", precision],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["median_ms"]


def rlx_result(arguments, path, x, folder, precision):
    numpy.save(os.path.join(folder, "x.npy"), x)
    subprocess.run([arguments.rlx, "run", path, "--input", f"x0={folder}/x.npy", "--out", folder,
                    "--precision", precision],
                   capture_output=True, check=True)
    return numpy.load(os.path.join(folder, "output_0.npy"))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rlx", default="build/release/rlx")
    parser.add_argument("--rows", default="1,16,128")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3)
    arguments = parser.parse_args()
    print("| weights | rows | threads | rlx ms | ONNX Runtime | OpenVINO | rlx / best "
          "| rlx bf16 | OpenVINO int8 | errors |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind in KINDS:
        for rows in map(int, arguments.rows.split(",")):
            with tempfile.TemporaryDirectory() as folder:
                compare(arguments, kind, rows, folder)


def compare(arguments, kind, rows, folder):
    path = os.path.join(folder, "model.onnx")
    x, y = build(kind, rows, path)

    def error(result):
        return f"{numpy.abs(result - y).max() / numpy.abs(y).max():.0e}"

    for threads in map(int, arguments.threads.split(",")):
        peers = [onnxruntime_of(path, x, threads), openvino_of(path, x, threads, False),
                 openvino_of(path, x, threads, True)]
        own = [error(rlx_result(arguments, path, x, folder, p)) for p in ("f32", "bf16")]
        of_peers = [error(peer()) for peer in peers]
        errors = [own[0], *of_peers[:2], own[1], of_peers[2]]
        best = [float("inf")] * 5
        for _ in range(arguments.rounds):
            times = [rlx_ms(arguments, path, threads, p) for p in ("f32", "bf16")]
            times += [median_ms(peer, arguments.seconds) for peer in peers]
            best = [min(a, b) for a, b in zip(best, times)]
        wide, narrow, onnx_ms, openvino_ms, openvino_narrow = best
        print(f"| {kind} | {rows} | {threads} | {wide:.3f} | {onnx_ms:.3f} | {openvino_ms:.3f} | "
              f"{wide / min(onnx_ms, openvino_ms):.2f} | {narrow:.3f} | {openvino_narrow:.3f} | "
              f"{', '.join(errors)} |", flush=True)


if __name__ == "__main__":
    main()
