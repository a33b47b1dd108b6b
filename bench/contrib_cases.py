#!/usr/bin/env python3
"""Makes cases of ONNX Runtime's own ops (com.microsoft), which its optimiser and its exporters
write: attention with masks and caches, norms, products, activations.

usage: contrib_cases.py FOLDER
Makes FOLDER/CASE/model.onnx, of one node, with test_data_set_0: seeded inputs and what ONNX Runtime
makes of them, as `rlx check` reads them.
needs: pip install onnx numpy onnxruntime
"""
import argparse
import multiprocessing
import pathlib

import numpy
import onnx
import onnxruntime
from onnx import helper

from packaged_models import write

DOMAIN = "com.microsoft"
B, S, P, N, D = 2, 5, 7, 4, 16  # items, queries, past keys, heads, columns of a head
H = N * D
rng = numpy.random.default_rng(7)


def real(*dims):
    return rng.standard_normal(dims, dtype=numpy.float32)


def integers(*values):
    return numpy.array(values, numpy.int32)


def ids(*dims, below=11):
    return rng.integers(0, below, dims, dtype=numpy.int32)


def angles(rows, columns):
    at = rng.uniform(-3, 3, (rows, columns)).astype(numpy.float32)
    return numpy.cos(at), numpy.sin(at)


def attention_cases():
    x, w, b = real(B, S, H), real(H, 3 * H) * 0.3, real(3 * H)
    right = numpy.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], numpy.int32)
    each = rng.integers(0, 2, (B, S, S), dtype=numpy.int32) | numpy.eye(S, dtype=numpy.int32)
    past = real(2, B, N, P, D)
    plain = {"num_heads": N}
    yield "attention", "Attention", [x, w, b], 1, plain
    yield "attention_scale", "Attention", [x, w, b], 1, plain | {"scale": 0.2}
    yield "attention_causal", "Attention", [x, w, b], 1, plain | {"unidirectional": 1}
    yield "attention_mask", "Attention", [x, w, b, right], 1, plain
    yield "attention_mask_no_word", "Attention", [x, w, b, right * 0], 1, plain
    yield "attention_mask_filter", "Attention", [x, w, b, right], 1, (
        plain | {"mask_filter_value": -2.0})
    yield "attention_mask_each", "Attention", [x, w, b, each], 1, plain
    yield "attention_mask_ends", "Attention", [x, w, b, integers(3, 5)], 1, plain
    yield "attention_mask_begins", "Attention", [x, w, b, integers(5, 4, 1, 0)], 1, plain
    yield "attention_score_bias", "Attention", [x, w, b, None, None, real(B, N, S, S)], 1, plain
    yield "attention_score_bias_mask", "Attention", [
        x, w, b, right, None, real(1, N, S, S)], 1, plain
    yield "attention_past", "Attention", [x, w, b, None, past], 2, plain
    yield "attention_past_causal", "Attention", [x, w, b, None, past], 2, (
        plain | {"unidirectional": 1})
    yield "attention_past_mask", "Attention", [
        x, w, b, numpy.hstack([numpy.ones((B, P), numpy.int32), right]), past], 2, plain
    yield "attention_sizes", "Attention", [x, real(H, 2 * H + 16), real(2 * H + 16)], 1, (
        plain | {"qkv_hidden_sizes": [H, H, 16]})
    # Small enough for processors whose sums of pairs saturate at 16 bits.
    bytes_of_w = rng.integers(-63, 64, (H, 3 * H), dtype=numpy.int8)
    bytes_of_x = rng.integers(0, 256, (B, S, H), dtype=numpy.uint8)
    scales, zero = [numpy.float32(0.01), numpy.float32(0.004)], numpy.uint8(120)
    yield "qattention", "QAttention", [
        bytes_of_x, bytes_of_w, b, *scales, right, zero, numpy.int8(0)], 1, plain
    yield "qattention_past", "QAttention", [
        bytes_of_x, bytes_of_w, b, *scales, None, zero, numpy.int8(0),
        past], 2, plain | {"unidirectional": 1}


def multi_head_cases():
    q, k, v, plain = real(B, S, H), real(B, P, H), real(B, P, 24), {"num_heads": N}
    word = numpy.array([[1] * 4 + [0] * 3, [1] * 7], numpy.int32)
    same = [real(B, S, H) for _ in range(3)]
    past = [real(B, N, P, D) for _ in range(2)]
    yield "mha", "MultiHeadAttention", [q, k, v], 1, plain
    yield "mha_bias", "MultiHeadAttention", [q, k, v, real(2 * H + 24)], 1, plain
    yield "mha_words", "MultiHeadAttention", [q, k, v, None, word], 1, plain
    yield "mha_score_bias", "MultiHeadAttention", [
        q, k, v, None, None, real(1, 1, S, P)], 1, plain | {"scale": 0.5}
    yield "mha_causal", "MultiHeadAttention", [*same], 3, plain | {"unidirectional": 1}
    yield "mha_past", "MultiHeadAttention", [*same, None, None, None, *past], 3, plain
    yield "mha_past_causal", "MultiHeadAttention", [*same, None, None, None, *past], 3, (
        plain | {"unidirectional": 1})
    yield "mha_other_sequence", "MultiHeadAttention", [q, *past], 1, plain
    yield "mha_other_sequence_bias", "MultiHeadAttention", [q, *past, real(3 * H)], 1, plain


def grouped_cases():
    few = 2
    q, k, v = real(B, S, H), real(B, S, few * D), real(B, S, few * D)
    past = [real(B, few, P, D) for _ in range(2)]
    turned = angles(20, D // 2)
    plain = {"num_heads": N, "kv_num_heads": few}
    first = [None, None, integers(S - 1, S - 1), integers(S)[0]]
    yield "gqa_first", "GroupQueryAttention", [q, k, v, *first], 3, plain
    yield "gqa_first_packed", "GroupQueryAttention", [
        real(B, S, H + 2 * few * D), None, None, *first], 3, plain
    yield "gqa_first_rotary", "GroupQueryAttention", [q, k, v, *first, *turned], 3, (
        plain | {"do_rotary": 1})
    yield "gqa_first_window", "GroupQueryAttention", [q, k, v, *first], 3, (
        plain | {"local_window_size": 2})
    yield "gqa_first_softcap", "GroupQueryAttention", [q, k, v, *first], 3, (
        plain | {"softcap": 2.0, "scale": 0.7})
    for items, queries in ((B, 1), (1, S)):
        now = [x[:items, :queries] for x in (q, k, v)]
        now += [x[:items] for x in past]
        now += [integers(*[P + queries - 1] * items), integers(P + queries)[0]]
        name = f"gqa_past_{queries}"
        yield name, "GroupQueryAttention", now, 3, plain
        yield name + "_rotary", "GroupQueryAttention", [*now, *turned], 3, (
            plain | {"do_rotary": 1, "rotary_interleaved": 1})
        yield name + "_window", "GroupQueryAttention", now, 3, plain | {"local_window_size": 3}
        yield name + "_score_bias", "GroupQueryAttention", [
            *now, None, None, None, real(items, 1, queries, P + queries)], 3, plain


def other_cases():
    x = real(B, S, H)
    cosine, sine = angles(20, D // 2)
    at = rng.integers(0, 20, (B, S), dtype=numpy.int64)
    yield "rotary", "RotaryEmbedding", [x, at, cosine, sine], 1, {"num_heads": N}
    yield "rotary_offset", "RotaryEmbedding", [
        x, numpy.array([3], numpy.int64), cosine, sine], 1, {"interleaved": 1}
    yield "rotary_heads_first", "RotaryEmbedding", [real(B, N, S, D), at, cosine, sine], 1, {}
    yield "rotary_part", "RotaryEmbedding", [x, at, cosine[:, :2], sine[:, :2]], 1, {
        "num_heads": N, "rotary_embedding_dim": 4}
    yield "skip_norm", "SkipLayerNormalization", [x, real(B, S, H), real(H), real(H)], 1, {
        "epsilon": 1e-5}
    yield "skip_norm_sum", "SkipLayerNormalization", [
        x, real(1, S, H), real(H), None, real(H)], (0, 3), {}
    yield "skip_rms", "SkipSimplifiedLayerNormalization", [
        x, real(B, S, H), real(H), real(H)], (0, 3), {"epsilon": 1e-3}
    words, places, segments = real(11, H), real(9, H), real(2, H)
    embed = [ids(B, S), ids(B, S, below=2), words, places, segments, real(H), real(H)]
    mask = numpy.array([[1, 1, 1, 0, 0], [1] * 5], numpy.int32)
    yield "embed", "EmbedLayerNormalization", embed, 2, {}
    yield "embed_mask", "EmbedLayerNormalization", [*embed, mask], 2, {"epsilon": 1e-5}
    yield "embed_places", "EmbedLayerNormalization", [
        embed[0], None, words, places, None, *embed[5:], None, ids(B, S, below=9)], (0, 2), {}
    tables = [rng.integers(0, 256, table.shape, dtype=numpy.uint8) for table in embed[2:]]
    scales = [numpy.float32(0.01 * (i + 1)) for i in range(5)]
    zeros = [numpy.uint8(120 + i) for i in range(5)]
    yield "qembed", "QEmbedLayerNormalization", [
        *embed[:2], *tables, mask, *scales, *zeros], 2, {}
    yield "fused_matmul", "FusedMatMul", [real(3, 6, 4), real(3, 5, 6)], 1, {
        "transA": 1, "transB": 1, "alpha": 0.25}
    yield "fused_matmul_batch", "FusedMatMul", [real(4, 2, 3, 6), real(2, 3, 6, 5)], 1, {
        "transBatchA": 1}
    yield "fused_matmul_batch_both", "FusedMatMul", [real(4, 2, 3, 6), real(5, 2, 3, 6)], 1, {
        "transBatchA": 1, "transBatchB": 1, "transB": 1}
    yield "fused_gemm", "FusedGemm", [real(3, 4), real(5, 4), real(5)], 1, {
        "transB": 1, "alpha": 0.5, "activation": "LeakyRelu", "activation_alpha": 0.3}
    image, window = real(1, 4, 9, 9), real(6, 4, 3, 3)
    for name, parameters in (("Relu", []), ("Clip", [-1.0, 2.0]), ("HardSigmoid", [0.3, 0.4]),
                             ("LeakyRelu", [0.2]), ("Tanh", []), ("Sigmoid", [])):
        attributes = {"activation": name, "pads": [1, 1, 1, 1]}
        if parameters:
            attributes["activation_params"] = parameters
        yield f"fused_conv_{name.lower()}", "FusedConv", [image, window, real(6)], 1, attributes
    yield "fused_conv_sum", "FusedConv", [image, window, real(6), real(1, 6, 7, 7)], 1, {
        "activation": "Relu"}
    yield "bias_gelu", "BiasGelu", [x, real(H)], 1, {}
    yield "fast_gelu", "FastGelu", [x, real(H)], 1, {}
    yield "gelu", "Gelu", [x], 1, {}
    yield "quick_gelu", "QuickGelu", [x], 1, {}


def make(folder, name, op, inputs, results, attributes):
    given = {f"x{i}": numpy.asarray(value) for i, value in enumerate(inputs) if value is not None}
    wanted = range(results) if isinstance(results, int) else results
    names = [f"y{i}" if i in wanted else "" for i in range(max(wanted) + 1)]
    node = helper.make_node(op, [f"x{i}" if value is not None else "" for i, value in
                                 enumerate(inputs)], names, domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node], name, [helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()],
        [onnx.ValueInfoProto(name=name) for name in names if name])
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"])
    made = session.run(None, given)
    case = folder / name / "test_data_set_0"
    case.mkdir(parents=True, exist_ok=True)
    onnx.save(model, folder / name / "model.onnx")
    write(case, "input", given.items())
    write(case, "output", zip([value.name for value in session.get_outputs()], made))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    onnxruntime.set_default_logger_severity(4)
    for cases in attention_cases(), multi_head_cases(), grouped_cases(), other_cases():
        for case in cases:
            # A process for each: ONNX Runtime ends by a signal on some that it does not take.
            maker = multiprocessing.Process(target=make, args=(folder, *case))
            maker.start()
            maker.join()
            if maker.exitcode:
                print(f"{case[0]} was not made")


if __name__ == "__main__":
    main()
