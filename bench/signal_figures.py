"""Signal figures side by side: rlx (fft_bench, signal_bench), FFTW where fft_bench has it,
pocketfft through SciPy, and torch (MKL) where it is installed. Times in microseconds: of each side
the least of the medians of several rounds, in which the sides take turns.

    python3 bench/signal_figures.py BUILD_FOLDER [--threads N] [--rounds N]

Needs numpy and scipy; torch is a peer where it can be imported. The log-mel peers are frames, rfft
and a product with the filters in NumPy, whose BLAS takes the same number of threads and whose
transforms are SciPy's with `workers` threads; and Whisper's own lines: torch.stft and a product.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

LENGTHS = (256, 400, 512, 1000, 1024, 4096, 1021)


def median_us(call, runs=15):
    for _ in range(5):
        call()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[runs // 2] * 1e6


def torch_with(threads):
    """torch on so many threads; None where it is not installed."""
    try:
        import torch
    except (ImportError, ValueError, OSError):
        return None
    torch.set_num_threads(threads)
    return torch


def geometric_mean(numbers):
    product = 1.0
    for number in numbers:
        product *= number
    return product ** (1 / len(numbers))


def least(times, name, value):
    times[name] = min(value, times.get(name, value))


def transform_calls(kind, n):
    """Calls of the peers that are libraries of Python."""
    import numpy as np
    import scipy.fft

    random = np.random.default_rng(1)
    x = random.standard_normal((256, n)).astype(np.float32)
    if kind == "complex":
        x = (x + 1j * x[::-1]).astype(np.complex64)
    of_scipy = scipy.fft.fft if kind == "complex" else scipy.fft.rfft
    calls = {"pocketfft": lambda: of_scipy(x)}
    torch = torch_with(1)
    if torch:
        of_torch = torch.fft.fft if kind == "complex" else torch.fft.rfft
        tensor = torch.from_numpy(x)
        calls["torch"] = lambda: of_torch(tensor)
    return calls


def transforms(folder, rounds):
    times = {(kind, n): {} for kind in ("complex", "real") for n in LENGTHS}
    for _ in range(rounds):
        lines = subprocess.run([folder / "fft_bench"], capture_output=True, text=True, check=True)
        found = re.findall(
            r"^(complex|real)\s+(\d+)\s+rlx\s+([\d.]+) us.*?(?:FFTW\s+([\d.]+) us|$)",
            lines.stdout, re.MULTILINE)
        for kind, n, own, fftw in found:
            of_case = times[kind, int(n)]
            least(of_case, "rlx", float(own))
            if fftw:
                least(of_case, "FFTW", float(fftw))
        for (kind, n), of_case in times.items():
            for peer, call in transform_calls(kind, n).items():
                least(of_case, peer, median_us(call))
    peers = ("FFTW", "pocketfft", "torch")
    for kind in ("complex", "real"):
        print(f"{kind:8} {'n':>5} {'rlx':>9}" + "".join(f" {peer:>9}" for peer in peers))
        ratios = {peer: [] for peer in peers}
        for n in LENGTHS:
            of_case = times[kind, n]
            row = f"{'':8} {n:>5} {of_case['rlx']:9.1f}"
            for peer in peers:
                row += f" {of_case[peer]:9.1f}" if peer in of_case else f" {'-':>9}"
                if peer in of_case:
                    ratios[peer].append(of_case[peer] / of_case["rlx"])
            print(row)
        for peer, list_of in ratios.items():
            if list_of:
                print(f"  {peer} / rlx, geometric mean: {geometric_mean(list_of):.2f}")


def torch_peers(torch, speech, filters, long_line):
    """Calls of torch on the same numbers."""
    audio, matrix, line = map(torch.from_numpy, (speech, filters, long_line))
    window = torch.hann_window(400)

    def log_mel():
        bins = torch.stft(audio, 400, 160, window=window, return_complex=True)
        level = torch.clamp(matrix @ bins[..., :-1].abs() ** 2, min=1e-10).log10()
        return (torch.maximum(level, level.max() - 8.0) + 4.0) / 4.0

    return {"log_mel_30s": log_mel, "rfft_2^20": lambda: torch.fft.rfft(line)}


def programs(folder, threads, rounds):
    import numpy as np
    import scipy.fft
    import scipy.signal

    random = np.random.default_rng(1)
    speech = random.standard_normal(480000).astype(np.float32)
    filters = np.abs(random.standard_normal((80, 201))).astype(np.float32)
    window = scipy.signal.get_window("hann", 400).astype(np.float32)

    def log_mel():
        padded = np.pad(speech, 200, mode="reflect")
        frames = np.lib.stride_tricks.sliding_window_view(padded, 400)[::160][:-1]
        bins = scipy.fft.rfft(frames * window, workers=threads)
        level = np.log10(np.maximum((bins.real**2 + bins.imag**2) @ filters.T, 1e-10))
        return (np.maximum(level, level.max() - 8) + 4) / 4

    eeg = random.standard_normal((32, 30720)).astype(np.float32)
    long_line = random.standard_normal(1 << 20).astype(np.float32)
    peers = {
        "log_mel_30s": log_mel,
        "welch_32x60s": lambda: scipy.signal.welch(eeg, 512, nperseg=512),
        "rfft_2^20": lambda: scipy.fft.rfft(long_line, workers=threads),
    }
    torch = torch_with(threads)
    of_torch = torch_peers(torch, speech, filters, long_line) if torch else {}
    own, of_scipy, torchs = {}, {}, {}
    for _ in range(rounds):
        lines = subprocess.run([folder / "signal_bench", str(threads)], capture_output=True,
                               text=True, check=True).stdout.split("\n")
        for line in filter(None, lines):
            least(own, line.split()[0], float(line.split()[1]))
        for name, call in peers.items():
            least(of_scipy, name, median_us(call))
        for name, call in of_torch.items():
            least(torchs, name, median_us(call))
    print(f"{'program':14} {'rlx':>9} {'SciPy':>9} {'ratio':>6} {'torch':>9} {'ratio':>6}"
          f"   ({threads} threads)")
    for name, peer in of_scipy.items():
        row = f"{name:14} {own[name]:9.1f} {peer:9.1f} {peer / own[name]:6.1f}"
        if name in torchs:
            row += f" {torchs[name]:9.1f} {torchs[name] / own[name]:6.1f}"
        print(row)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    arguments = parser.parse_args()
    # Before NumPy starts its BLAS.
    os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)
    transforms(arguments.build, arguments.rounds)
    programs(arguments.build, arguments.threads, arguments.rounds)


if __name__ == "__main__":
    sys.exit(main())
