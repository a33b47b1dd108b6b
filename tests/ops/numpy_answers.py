"""Writes numpy_answers.hpp: results that NumPy and ONNX's reference evaluator give for patterned
operands.

Needs numpy, onnx and onnxruntime. Run from this folder: python numpy_answers.py"""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

answers = []


def pattern(dims, seed, dtype=np.float32, offset=0):
    """The operands of numeric.hpp."""
    whole = (37 * np.arange(int(np.prod(dims)), dtype=np.int64) + 11 * seed) % 23 - 11
    values = whole + offset if np.issubdtype(dtype, np.integer) else whole / 8
    return values.astype(dtype).reshape(dims)


def text(value):
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value:.9g}"


def answer(name, *arrays):
    """One constant {dims, values} for each result."""
    for i, array in enumerate(arrays):
        suffix = f"_{i}" if len(arrays) > 1 else ""
        dims = ", ".join(str(d) for d in array.shape)
        flat = np.asarray(array)
        if np.iscomplexobj(flat):
            flat = np.stack([flat.real, flat.imag], axis=-1)
        words, lines = [text(v) for v in flat.astype(np.float64).ravel()], [""]
        for word in words:
            if len(lines[-1]) + len(word) > 92:
                lines.append("")
            lines[-1] += word + ", "
        body = "\n    ".join(line.strip() for line in lines)
        answers.append(f"inline const Answer {name}{suffix}{{{{{dims}}}, {{\n    {body}}}}};")


def onnx_answer(name, op, inputs, outputs=1, opset=21, reference=False, **attributes):
    """What ONNX Runtime (or ONNX's reference evaluator) gives for one node."""
    while inputs[-1] is None:
        inputs.pop()
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    inputs = [None if v is None else np.asarray(v) for v in inputs]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in zip(names, inputs)
        if v is not None
    ]
    results = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, results, **attributes)
    output_infos = [helper.make_empty_tensor_value_info(r) for r in results]
    graph = helper.make_graph([node], "one", infos, output_infos)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    feeds = {n: v for n, v in zip(names, inputs) if v is not None}
    if reference:
        from onnx.reference import ReferenceEvaluator

        values = ReferenceEvaluator(model).run(None, feeds)
    else:
        model = onnx.shape_inference.infer_shapes(model)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        values = session.run(None, feeds)
    answer(name, *values)


def contractions():
    a, b = pattern((2, 3, 4), 1), pattern((2, 4, 5), 2)
    answer("batched_matmul", a @ b)
    answer("outer_axes", np.einsum("kmb,bkn->bmn", pattern((3, 4, 2), 1), pattern((2, 3, 5), 2)))
    u, i = pattern((2, 3, 4), 1, np.uint8, 100), pattern((4, 5), 2, np.int8, 3)
    onnx_answer("integer_matmul", "MatMulInteger", [u, i, np.uint8(97), np.int8(4)])
    rows, columns = pattern((3,), 3, np.int64, 97), pattern((5,), 4, np.int64, 2)
    exact = (u[0].astype(np.int64) - rows[:, None]) @ (i.astype(np.int64) - columns)
    answer("integer_matmul_by_row", exact)


def convolutions():
    x, w, b = pattern((2, 4, 6, 5), 1), pattern((6, 2, 3, 2), 2), pattern((6,), 3)
    onnx_answer(
        "conv_grouped",
        "Conv",
        [x, w, b],
        group=2,
        strides=[2, 1],
        pads=[1, 0, 2, 1],
        dilations=[1, 2],
    )
    onnx_answer(
        "conv_line",
        "Conv",
        [pattern((1, 2, 9), 1), pattern((3, 2, 3), 2)],
        strides=[2],
        pads=[1, 1],
    )
    volume, kernel = pattern((1, 2, 3, 4, 4), 1), pattern((2, 2, 2, 2, 3), 2)
    onnx_answer("conv_volume", "Conv", [volume, kernel], pads=[0, 1, 1, 1, 0, 0])
    up, weights = pattern((1, 4, 3, 4), 1), pattern((4, 3, 3, 2), 2)
    onnx_answer(
        "conv_transposed",
        "ConvTranspose",
        [up, weights],
        group=2,
        strides=[2, 3],
        pads=[1, 0, 0, 1],
        dilations=[1, 2],
        output_padding=[1, 0],
    )
    u, i = pattern((1, 2, 4, 4), 1, np.uint8, 100), pattern((3, 2, 2, 2), 2, np.uint8, 20)
    onnx_answer(
        "conv_integer", "ConvInteger", [u, i, np.uint8(97), np.uint8(19)], pads=[1, 0, 0, 1]
    )


def pools():
    x = pattern((1, 2, 6, 5), 1)
    window = dict(kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1])
    onnx_answer("max_pool", "MaxPool", [x], outputs=2, **window)
    onnx_answer("max_pool_columns", "MaxPool", [x], outputs=2, storage_order=1, **window)
    onnx_answer("mean_pool", "AveragePool", [x], **window)
    onnx_answer("mean_pool_padded", "AveragePool", [x], count_include_pad=1, **window)


def norms():
    x = pattern((2, 4, 5), 1)
    onnx_answer("softmax", "Softmax", [x], axis=1)
    onnx_answer("log_softmax", "LogSoftmax", [x], axis=-1)
    onnx_answer("hardmax", "Hardmax", [x], axis=1)
    scale, bias = pattern((4, 5), 2), pattern((4, 5), 3)
    onnx_answer("layer_norm", "LayerNormalization", [x, scale, bias], axis=1, epsilon=1e-3)
    square = np.mean(x * x, axis=-1, keepdims=True)
    answer("rms_norm", x / np.sqrt(square + 1e-3) * scale[0])
    c, d = pattern((4,), 2), pattern((4,), 3)
    onnx_answer(
        "group_norm", "GroupNormalization", [x, c, d], num_groups=2, epsilon=1e-3, reference=True
    )
    onnx_answer("instance_norm", "InstanceNormalization", [x, c, d], epsilon=1e-3)
    variance = np.array([0.25, 1.25, 0.75, 1], np.float32)
    onnx_answer(
        "batch_norm", "BatchNormalization", [x, c, d, pattern((4,), 4), variance], epsilon=1e-3
    )
    onnx_answer("lp_norm", "LpNormalization", [x], axis=1, p=1)
    onnx_answer("lrn", "LRN", [x[..., None]], size=3, alpha=0.5, beta=0.6, bias=1.5)


def attention_of(q, k, v, visible=None, bias=None, scale=None, softcap=0):
    """NumPy's attention over [B, H, S, D], heads of k and v repeated."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, axis=1).astype(np.float64), np.repeat(v, group, axis=1)
    scores = q @ k.swapaxes(2, 3) * (scale or 1 / np.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total) @ v


def attentions():
    q, k, v = pattern((2, 4, 3, 4), 1), pattern((2, 2, 5, 4), 2), pattern((2, 2, 5, 3), 3)
    i, j = np.arange(3)[:, None], np.arange(5)[None]
    answer("attention", attention_of(q, k, v))
    answer("attention_causal", attention_of(q, k, v, visible=j <= i + 2))
    answer("attention_offset", attention_of(q, k, v, visible=j <= i - 1, scale=0.25, softcap=2))
    answer("attention_window", attention_of(q, k, v, visible=(j - 2 <= i) & (j - 2 >= i - 1)))
    answer("attention_bias", attention_of(q, k, v, bias=pattern((4, 3, 5), 4)))
    visible = pattern((2, 1, 1, 5), 5) > 0
    answer("attention_bool", attention_of(q, k, v, visible=visible & (j <= i + 2)))
    x, angles = pattern((2, 3, 4, 6), 1), np.arange(8, dtype=np.float32).reshape(1, 4, 2) / 3
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b, rest = x[..., 0:2], x[..., 2:4], x[..., 4:]
    answer("rope_halves", np.concatenate([a * c - b * s, a * s + b * c, rest], axis=-1))
    a, b = x[..., 0:4:2], x[..., 1:4:2]
    pairs = np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(2, 3, 4, 4)
    answer("rope_neighbours", np.concatenate([pairs, rest], axis=-1))


def quantizations():
    x = pattern((3, 9), 1)
    scales, zeros = np.array([0.01, 0.05, 0.25], np.float32), np.array([0, 128, 7], np.uint8)
    onnx_answer("quantize_tensor", "QuantizeLinear", [x, np.float32(0.05), np.int8(3)])
    onnx_answer("quantize_axis", "QuantizeLinear", [x, scales, zeros], axis=0)
    blocks = np.abs(pattern((3, 3), 2)) / 8 + 0.01
    onnx_answer(
        "quantize_blocked",
        "QuantizeLinear",
        [x, blocks.astype(np.float32)],
        axis=1,
        block_size=4,
        output_dtype=TensorProto.INT16,
        reference=True,
    )
    u = pattern((3, 9), 1, np.uint8, 100)
    onnx_answer("dequantize_axis", "DequantizeLinear", [u, scales, zeros], axis=0)
    onnx_answer("dynamic_quantize", "DynamicQuantizeLinear", [x], outputs=3)


def resizes():
    x = pattern((1, 1, 4, 5), 1)

    def resize(name, sizes=None, scales=None, roi=None, **attributes):
        to = None if sizes is None else np.array([1, 1, *sizes], np.int64)
        by = None if scales is None else np.array([1, 1, *scales], np.float32)
        region = None if roi is None else np.array(roi, np.float32)
        onnx_answer("resize_" + name, "Resize", [x, region, by, to], reference=True, **attributes)

    resize("nearest", sizes=[7, 8], mode="nearest")
    resize(
        "nearest_ceil",
        sizes=[7, 3],
        mode="nearest",
        nearest_mode="ceil",
        coordinate_transformation_mode="asymmetric",
    )
    resize(
        "nearest_up",
        sizes=[6, 3],
        mode="nearest",
        nearest_mode="round_prefer_ceil",
        coordinate_transformation_mode="align_corners",
    )
    resize("linear", sizes=[3, 8], mode="linear")
    resize(
        "linear_corners",
        sizes=[3, 8],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    resize(
        "linear_scales",
        scales=[0.6, 1.7],
        mode="linear",
        coordinate_transformation_mode="half_pixel_symmetric",
    )
    resize("linear_antialias", sizes=[2, 3], mode="linear", antialias=1)
    resize("cubic", sizes=[7, 3], mode="cubic")
    resize("cubic_outside", sizes=[7, 3], mode="cubic", exclude_outside=1, cubic_coeff_a=-0.5)
    resize("cubic_antialias", sizes=[2, 3], mode="cubic", antialias=1)
    resize(
        "crop",
        sizes=[3, 3],
        roi=[0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7],
        mode="linear",
        extrapolation_value=10.0,
        coordinate_transformation_mode="tf_crop_and_resize",
    )


def log_mel(spectrum, filters, floor):
    n_fft = spectrum.shape[-1] // 2
    bins = n_fft // 2 + 1
    power = spectrum[..., :bins] ** 2 + spectrum[..., n_fft : n_fft + bins] ** 2
    level = np.log10(np.maximum(power @ filters.T, 1e-10))
    if floor == "frame":
        level = np.maximum(level, level.max(axis=-1, keepdims=True) - 8)
    if floor == "clip":
        level = np.maximum(level, level.max(axis=(-1, -2), keepdims=True) - 8)
    return (level + 4) / 4


def welch_peaks(spectrum, k, segments):
    n_fft = spectrum.shape[1] // 2
    bins = n_fft // 2 + 1
    power = spectrum[:, :bins] ** 2 + spectrum[:, n_fft : n_fft + bins] ** 2
    power = power.reshape(-1, segments, bins).sum(axis=1) / segments
    power[:, 1 : -1 if n_fft % 2 == 0 else None] *= 2
    order = np.argsort(-power, axis=1, kind="stable")[:, :k]
    return np.stack([order, np.take_along_axis(power, order, axis=1)], axis=-1).reshape(-1, 2 * k)


def signals():
    for n in (6, 30, 37):
        z = pattern((2, n), 1) + 1j * pattern((2, n), 2)
        answer(f"fft_{n}", np.fft.fft(z))
        answer(f"rfft_{n}", np.fft.rfft(pattern((2, n), 1)))
    z = pattern((2, 6), 1) + 1j * pattern((2, 6), 2)
    answer("ifft_ortho", np.fft.ifft(z, axis=0, norm="ortho"))
    answer("irfft_even", np.fft.irfft(z))
    answer("irfft_odd", np.fft.irfft(z, n=9, norm="forward"))
    answer("irfft_long", np.fft.irfft(z, n=16))
    spectrum, filters = pattern((2, 3, 32), 1), np.abs(pattern((4, 9), 2))
    spectrum[0, 0] *= 1e-5
    for floor in ("none", "frame", "clip"):
        answer(f"log_mel_{floor}", log_mel(spectrum.astype(np.float64), filters, floor))
    answer("welch_even", welch_peaks(pattern((4, 32), 3).astype(np.float64), 5, 2))
    answer("welch_odd", welch_peaks(pattern((3, 18), 3).astype(np.float64), 5, 1))


def recurrences():
    steps, batch, inputs, hidden = 4, 3, 5, 2
    lengths = np.array([4, 2, 3], np.int32)

    def layer(name, op, gates, directions=1, full=True, **attributes):
        x, h0 = pattern((steps, batch, inputs), 1), pattern((directions, batch, hidden), 5)
        w, r = pattern((directions, gates * hidden, inputs), 2), pattern(
            (directions, gates * hidden, hidden), 3
        )
        b = pattern((directions, 2 * gates * hidden), 4)
        operands = [x, w, r, b, lengths, h0] if full else [x, w, r]
        if full and op == "LSTM":
            operands += [
                pattern((directions, batch, hidden), 6),
                pattern((directions, 3 * hidden), 7),
            ]
        onnx_answer(
            name, op, operands, outputs=3 if op == "LSTM" else 2, hidden_size=hidden, **attributes
        )

    layer("lstm", "LSTM", 4, full=False)
    layer("lstm_both", "LSTM", 4, directions=2, direction="bidirectional")
    layer("lstm_clipped", "LSTM", 4, direction="reverse", clip=0.5, input_forget=1)
    layer(
        "lstm_named",
        "LSTM",
        4,
        full=False,
        activations=["HardSigmoid", "Affine", "LeakyRelu"],
        activation_alpha=[0.3, 0.8, 0.05],
        activation_beta=[0.4, 0.1],
    )
    layer("gru", "GRU", 3, directions=2, direction="bidirectional")
    layer("gru_linear", "GRU", 3, direction="reverse", linear_before_reset=1, clip=0.75)
    layer(
        "rnn",
        "RNN",
        1,
        directions=2,
        direction="bidirectional",
        activations=["Relu", "Softsign"],
        clip=0.75,
    )


for family in (
    contractions,
    convolutions,
    pools,
    norms,
    attentions,
    quantizations,
    resizes,
    signals,
    recurrences,
):
    family()

HEADER = """// What NumPy, ONNX Runtime and ONNX's reference evaluator give for patterned operands.
// Made by numpy_answers.py.
// clang-format off
#pragma once

#include <cmath>

#include "ops/numeric.hpp"

namespace rlx::testing::numpy {

"""

with open("numpy_answers.hpp", "w") as file:
    file.write(HEADER + "\n".join(answers) + "\n\n}  // namespace rlx::testing::numpy\n")
