#!/usr/bin/env python3
"""Lays out models of one op each: those of image, language and audio nets in shapes that such nets
have, so that a kernel or a layout that is slower than another runtime's shows by itself.

usage: single_ops.py FOLDER
Makes FOLDER/OP/model.onnx with test_data_set_0: seeded inputs and what ONNX Runtime makes of them,
as `rlx check` reads them. The tolerance of a case is the reader's: sums of thousands of seeded
numbers differ by their order.
needs: pip install onnx numpy onnxruntime
"""
import argparse
import pathlib

import numpy
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

GENERATOR = numpy.random.default_rng(11)
DTYPES = {numpy.dtype(numpy.float32): TensorProto.FLOAT,
          numpy.dtype(numpy.int64): TensorProto.INT64,
          numpy.dtype(bool): TensorProto.BOOL, numpy.dtype(numpy.uint8): TensorProto.UINT8}


def noise(*dims, scale=1.0):
    return (GENERATOR.standard_normal(dims) * scale).astype(numpy.float32)


def ints(*values):
    return numpy.array(values, numpy.int64)


class Case:
    """One node: `given` are inputs of the model, `constants` behind them are weights."""

    def __init__(self, name, op, given, constants=(), results=1, **attributes):
        self.name, self.given, self.results = name, given, results
        names = [f"x{i}" for i in range(len(given))]
        self.initializers = []
        for i, constant in enumerate(constants):
            names.append("" if constant is None else f"w{i}")
            if constant is not None:
                self.initializers.append(numpy_helper.from_array(constant, f"w{i}"))
        outputs = [f"y{i}" for i in range(results)]
        self.node = helper.make_node(op, names, outputs, **attributes)

    def model(self):
        inputs = [helper.make_tensor_value_info(f"x{i}", DTYPES[x.dtype], x.shape)
                  for i, x in enumerate(self.given)]
        # Which type an output has the inference tells.
        outputs = [onnx.ValueInfoProto(name=name) for name in self.node.output]
        graph = helper.make_graph([self.node], self.name, inputs, outputs, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def convolutions():
    """Channels in and out, kernel, stride, groups, size of the image."""
    for op, layers in {
            "Conv": [(3, 32, 3, 2, 1, 224), (64, 64, 3, 1, 1, 56), (64, 256, 1, 1, 1, 56),
                     (256, 256, 3, 1, 1, 14), (512, 512, 3, 1, 1, 7), (45, 77, 3, 1, 1, 37),
                     (128, 128, 3, 1, 128, 56), (240, 240, 5, 2, 240, 28), (96, 96, 7, 1, 96, 56),
                     (256, 256, 3, 1, 32, 28), (3, 768, 16, 16, 1, 224), (256, 21, 1, 1, 1, 64)],
            "ConvTranspose": [(64, 64, 2, 2, 1, 56), (64, 64, 4, 2, 1, 28), (64, 3, 4, 2, 1, 64),
                              (64, 1, 2, 2, 1, 80), (64, 64, 4, 2, 64, 32)]}.items():
        for inputs, outputs, kernel, stride, groups, size in layers:
            dims = ((outputs, inputs // groups) if op == "Conv" else (inputs, outputs // groups))
            pad = 0 if stride == kernel else (kernel - 1) // 2
            yield Case(f"{op}_{inputs}_{outputs}_{kernel}s{stride}g{groups}_{size}", op,
                       [noise(1, inputs, size, size)],
                       [noise(*dims, kernel, kernel, scale=0.1), noise(outputs)],
                       kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
                       group=groups)


def pools():
    for channels, size in ((3, 224), (64, 112), (256, 28), (1024, 14)):
        image = [noise(1, channels, size, size)]
        shape = f"{channels}_{size}"
        yield Case(f"MaxPool_3s2_{shape}", "MaxPool", image, kernel_shape=[3, 3], strides=[2, 2],
                   pads=[1] * 4)
        yield Case(f"AveragePool_3s1_{shape}", "AveragePool", image, kernel_shape=[3, 3],
                   pads=[1] * 4)
        yield Case(f"GlobalAveragePool_{shape}", "GlobalAveragePool", image)
        yield Case(f"Resize_{shape}", "Resize", image,
                   [None, numpy.array([1, 1, 2, 2], numpy.float32)], mode="linear")


def products():
    for rows, columns, depth in ((1, 1000, 2048), (1, 4096, 1024), (128, 768, 768),
                                 (128, 3072, 768), (512, 512, 512), (7, 100, 33),
                                 (1536, 768, 3072)):
        yield Case(f"MatMul_{rows}_{columns}_{depth}", "MatMul", [noise(rows, depth)],
                   [noise(depth, columns, scale=depth**-0.5)])
    for a, b in (((12, 128, 64), (12, 64, 128)), ((96, 49, 32), (96, 32, 49)),
                 ((1024,), (1024, 1024))):
        yield Case(f"MatMul_{a}_{b}".replace(" ", ""), "MatMul", [noise(*a), noise(*b)])


def rows_and_maps():
    for dims, axis in (((12, 128, 128), -1), ((1, 1000), -1), ((8, 21, 64, 64), 1)):
        yield Case(f"Softmax_{dims}_{axis}".replace(" ", ""), "Softmax", [noise(*dims)], axis=axis)
    for rows, columns in ((128, 384), (3136, 96), (197, 768)):
        yield Case(f"LayerNormalization_{rows}_{columns}", "LayerNormalization",
                   [noise(1, rows, columns)], [noise(columns), noise(columns)])
    for dims, axes in (((1, 64, 112, 112), (2, 3)), ((1, 512, 768), (1,)), ((100, 3, 64), (1,))):
        yield Case(f"ReduceMean_{dims}_{axes}".replace(" ", ""), "ReduceMean", [noise(*dims)],
                   [ints(*axes)])
    for op in ("Relu", "Sigmoid", "Tanh", "Erf", "Exp", "Sqrt", "HardSwish", "Softplus", "Mish",
               "Gelu", "Floor", "Sin"):
        yield Case(op, op, [numpy.abs(noise(1, 64, 56, 56))])
    for op in ("Add", "Mul", "Div"):
        yield Case(op, op, [noise(1, 64, 56, 56), noise(1, 64, 56, 56)])
    yield Case("Where", "Where", [noise(512, 512) > 0, noise(512, 512), noise(512, 512)])


def moves():
    for dims, order in (((1, 3, 224, 224), (0, 2, 3, 1)), ((1, 128, 12, 64), (0, 2, 1, 3)),
                        ((512, 768), (1, 0)), ((1, 8400, 85), (0, 2, 1)),
                        ((1, 2, 58, 28, 28), (0, 2, 1, 3, 4))):
        yield Case(f"Transpose_{dims}_{order}".replace(" ", ""), "Transpose", [noise(*dims)],
                   perm=order)
    yield Case("DepthToSpace", "DepthToSpace", [noise(1, 48, 64, 64)], blocksize=4, mode="CRD")
    yield Case("SpaceToDepth", "SpaceToDepth", [noise(1, 3, 256, 256)], blocksize=2)
    yield Case("Concat", "Concat", [noise(1, 64, 56, 56)] * 3, axis=1)
    yield Case("Slice", "Slice", [noise(1, 8400, 85)], [ints(5), ints(85), ints(2)])
    yield Case("Pad", "Pad", [noise(1, 64, 56, 56)], [ints(0, 0, 1, 1, 0, 0, 1, 1)])
    yield Case("Gather", "Gather", [noise(30000, 64), GENERATOR.integers(0, 30000, 2000)])
    yield Case("ScatterElements", "ScatterElements",
               [noise(1000, 32), GENERATOR.integers(0, 1000, (3000, 32)), noise(3000, 32)],
               reduction="add")
    for dims, k in (((1, 8400), 100), ((128, 1000), 5), ((8, 32000), 50), ((1, 8400), 1000)):
        yield Case(f"TopK_{dims}_{k}".replace(" ", ""), "TopK", [noise(*dims)], [ints(k)],
                   results=2)
    yield Case("CumSum", "CumSum", [noise(256, 1024)], [numpy.array(1, numpy.int64)])
    yield Case("NonZero", "NonZero", [noise(512, 64)])


def recurrent_layers():
    """Steps, inputs, units, directions."""
    for op, gates in (("LSTM", 4), ("GRU", 3)):
        for steps, inputs, units, directions in ((50, 64, 128, 1), (40, 512, 512, 2),
                                                 (1, 256, 256, 1), (1, 256, 512, 1),
                                                 (1, 512, 1024, 1)):
            width = gates * units
            more = {"linear_before_reset": 1} if op == "GRU" else {}
            yield Case(f"{op}_{steps}_{inputs}_{units}_{directions}", op, [noise(steps, 1, inputs)],
                       [noise(directions, width, inputs, scale=0.05),
                        noise(directions, width, units, scale=0.05),
                        noise(directions, 2 * width), None, noise(directions, 1, units)],
                       hidden_size=units,
                       direction="bidirectional" if directions == 2 else "forward", **more)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    onnxruntime.set_default_logger_severity(4)
    for family in (convolutions, pools, products, rows_and_maps, moves, recurrent_layers):
        for case in family():
            data = folder / case.name / "test_data_set_0"
            data.mkdir(parents=True, exist_ok=True)
            content = case.model().SerializeToString()
            (data.parent / "model.onnx").write_bytes(content)
            session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
            feeds = {f"x{i}": value for i, value in enumerate(case.given)}
            results = session.run(None, feeds)
            for kind, arrays in (("input", case.given), ("output", results)):
                for i, array in enumerate(arrays):
                    tensor = numpy_helper.from_array(numpy.asarray(array))
                    (data / f"{kind}_{i}.pb").write_bytes(tensor.SerializeToString())


if __name__ == "__main__":
    main()
