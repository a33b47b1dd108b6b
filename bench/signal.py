"""Signal figures side by side: rlx (fft_bench, signal_bench), FFTW where fft_bench has it, and
pocketfft through SciPy. Times in microseconds, medians.

    python3 bench/signal.py BUILD_FOLDER [--threads N]

Needs numpy and scipy. The log-mel peer is frames, rfft and a product with the filters in NumPy,
whose BLAS takes the same number of threads; the transforms are SciPy's, with `workers` threads.
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
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return sorted(times)[runs // 2] * 1e6


def geometric_mean(numbers):
    product = 1.0
    for number in numbers:
        product *= number
    return product ** (1 / len(numbers))


def transforms(folder):
    import numpy as np
    import scipy.fft

    lines = subprocess.run([folder / "fft_bench"], capture_output=True, text=True, check=True)
    found = re.findall(r"^(complex|real)\s+(\d+)\s+rlx\s+([\d.]+) us.*?(?:FFTW\s+([\d.]+) us|$)",
                       lines.stdout, re.MULTILINE)
    random = np.random.default_rng(1)
    for kind in ("complex", "real"):
        print(f"{kind:8} {'n':>5} {'rlx':>9} {'FFTW':>9} {'pocketfft':>9}")
        ratios = {"FFTW": [], "pocketfft": []}
        for name, n, own, fftw in found:
            if name != kind:
                continue
            x = random.standard_normal((256, int(n))).astype(np.float32)
            if kind == "complex":
                x = (x + 1j * x[::-1]).astype(np.complex64)
            call = scipy.fft.fft if kind == "complex" else scipy.fft.rfft
            pocket = median_us(lambda: call(x))
            ratios["pocketfft"].append(pocket / float(own))
            if fftw:
                ratios["FFTW"].append(float(fftw) / float(own))
            print(f"{'':8} {n:>5} {float(own):9.1f} {fftw or '-':>9} {pocket:9.1f}")
        for peer, list_of in ratios.items():
            if list_of:
                print(f"  {peer} / rlx, geometric mean: {geometric_mean(list_of):.2f}")


def programs(folder, threads):
    import numpy as np
    import scipy.fft
    import scipy.signal

    lines = subprocess.run([folder / "signal_bench", str(threads)], capture_output=True, text=True,
                           check=True).stdout.split("\n")
    own = {line.split()[0]: float(line.split()[1]) for line in lines if line}
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
    print(f"{'program':14} {'rlx':>9} {'SciPy':>9} {'ratio':>6}   ({threads} threads)")
    for name, call in peers.items():
        peer = median_us(call)
        print(f"{name:14} {own[name]:9.1f} {peer:9.1f} {peer / own[name]:6.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    # Before NumPy starts its BLAS.
    os.environ["OPENBLAS_NUM_THREADS"] = str(arguments.threads)
    transforms(arguments.build)
    programs(arguments.build, arguments.threads)


if __name__ == "__main__":
    sys.exit(main())
