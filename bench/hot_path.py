#!/usr/bin/env python3
"""The cost of a call beside ONNX Runtime with IO binding, measured in turns: one short round of
hot_path_bench, one of each session of ONNX Runtime, and so on; medians of all rounds.

usage: bench/hot_path.py [--bench FILE] [--rounds N] [--silero model.onnx]

What profiling costs where it is off is counted in instructions of run_slots, without and with a
profile taken before (valgrind knows no AVX-512):
  RLX_ISA=avx2 valgrind --tool=callgrind --toggle-collect='rlx::CompiledGraph::run_slots*' \\
      build/release/hot_path_bench --count [--profiled]

Needs onnx, onnxruntime and numpy (scripts/requirements-peers.txt). ONNX Runtime is called from
Python: what an empty call of a bound method costs there is told too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time

import numpy
import onnx
import onnxruntime


def tiny_model():
    """add and GELU (by its error function) on f32[8]."""
    helper = onnx.helper
    value = lambda name: helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [8])
    nodes = [
        helper.make_node("Add", ["x", "y"], ["s"]),
        helper.make_node("Gelu", ["s"], ["z"]),
    ]
    graph = helper.make_graph(nodes, "tiny", [value("x"), value("y")], [value("z")])
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    ).SerializeToString()


def session_of(model, threads):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def tiny_call(threads):
    session = session_of(tiny_model(), threads)
    binding = session.io_binding()
    kept = []
    for name, value in (("x", 0.5), ("y", 0.25)):
        kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(numpy.full(8, value, numpy.float32)))
        binding.bind_ortvalue_input(name, kept[-1])
    kept.append(onnxruntime.OrtValue.ortvalue_from_numpy(numpy.zeros(8, numpy.float32)))
    binding.bind_ortvalue_output("z", kept[-1])
    run = session._sess.run_with_iobinding  # the bound method itself: the least that Python allows
    inner, nothing = binding._iobinding, None
    return lambda: run(inner, nothing), (session, binding, kept)


def silero_call(file):
    """The step with its state bound to go round between two buffers."""
    session = session_of(file, 1)
    value = onnxruntime.OrtValue.ortvalue_from_numpy
    states = [value(numpy.zeros((2, 1, 128), numpy.float32)) for _ in range(2)]
    chunk = value(numpy.zeros((1, 576), numpy.float32))
    rate = value(numpy.array(16000, numpy.int64))
    output = value(numpy.zeros((1, 1), numpy.float32))
    names = {i.name for i in session.get_inputs()}
    bindings = []
    for first, second in ((0, 1), (1, 0)):
        binding = session.io_binding()
        binding.bind_ortvalue_input("input", chunk)
        binding.bind_ortvalue_input("state", states[first])
        if "sr" in names:
            binding.bind_ortvalue_input("sr", rate)
        binding.bind_ortvalue_output("output", output)
        binding.bind_ortvalue_output("stateN", states[second])
        bindings.append(binding)
    run = session._sess.run_with_iobinding
    inner = [b._iobinding for b in bindings]

    def call():
        run(inner[0], None)
        run(inner[1], None)

    return call, (session, bindings, states, chunk, rate, output)


def timed(call, calls):
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bench", default="build/release/hot_path_bench")
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--silero", help="silero-vad's model.onnx")
    options = parser.parse_args()
    command = [options.bench, "--serve"]
    calls = {f"ort tiny {n}": (tiny_call(n), 500, 1) for n in (1, 2)}
    if options.silero:
        command += [options.silero, "stateN=state"]
        calls["ort step"] = (silero_call(options.silero), 25, 2)
    calls["python call"] = ((([].__len__), None), 500, 1)
    times = {}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as own:
        for round_number in range(options.rounds + 2):
            own.stdin.write("\n")
            own.stdin.flush()
            figures = json.loads(own.stdout.readline())
            for name, ((call, _), count, each) in calls.items():
                figures[name] = timed(call, count) / each
            if round_number < 2:
                continue  # warming up
            for name, value in figures.items():
                times.setdefault(name, []).append(value)
        own.stdin.close()
    for name, values in times.items():
        print(f"{name:14} median {statistics.median(values):8.3f} us   least {min(values):8.3f}")
    if options.silero:
        ratios = [a / b for a, b in zip(times["step"], times["ort step"])]
        print(f"step: {statistics.median(ratios):.2f} of ONNX Runtime's time (median of rounds)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
