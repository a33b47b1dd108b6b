"""Writes scipy_answers.hpp and scipy_spectra_answers.hpp: what SciPy, librosa and Kaldi's formulas
give for made-up signals.

Needs numpy, scipy, librosa and kaldi-native-fbank. Run from this folder: python scipy_answers.py"""

import kaldi_native_fbank
import librosa
import numpy as np
import scipy.fft
import scipy.signal as sig

answers = []


def noise(lines, samples, seed):
    """The signals of scipy_test.cpp: noise of 20 bits with a trend, exact in f32."""
    state, values = seed, []
    for i in range(lines * samples):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        values.append((state >> 44) / 2**20 - 0.5 + (i % samples) / 1024 + 0.125)
    return np.array(values).reshape(lines, samples)


def answer(name, array):
    """One constant {dims, values}; complex values as pairs along a last axis."""
    array = np.asarray(array)
    if np.iscomplexobj(array):
        array = np.stack([array.real, array.imag], axis=-1)
    lines = [""]
    for word in (f"{value:.17g}" for value in array.astype(np.float64).ravel()):
        if len(lines[-1]) + len(word) > 91:
            lines.append("")
        lines[-1] += (" " if lines[-1] else "") + word + ","
    dims = ", ".join(str(d) for d in array.shape)
    body = "\n    ".join(lines)
    answers.append(f"inline const Answer {name}{{{{{dims}}}, {{\n    {body}}}}};\n")


x, y = noise(2, 60, 1), noise(2, 60, 2)
line = noise(1, 700, 3)[0]

# windows, 7 and 8 points, symmetric then periodic
for kind in ("bartlett", "blackmanharris", "bohman", "cosine", "nuttall", "parzen", "triang",
             ("tukey", 0.4), "flattop", ("kaiser", 5.0), ("gaussian", 2.0)):
    name = kind if isinstance(kind, str) else kind[0]
    answer("window_" + name, np.concatenate(
        [sig.get_window(kind, n, fftbins) for n in (7, 8) for fftbins in (False, True)]))

# densities
answer("welch_linear", sig.welch(x, 100, "hamming", 16, 10, detrend="linear")[1])
answer("welch_median", sig.welch(x, 100, "hann", 15, 8, average="median")[1])
answer("welch_median_even", sig.welch(x, 1, "hann", 16, 4, average="median", detrend=False)[1])
answer("welch_two_sided", sig.welch(x, 10, "blackman", 12, 6, return_onesided=False)[1])
answer("welch_padded", sig.welch(x, 10, "hann", 12, 6, nfft=17, scaling="spectrum")[1])
answer("csd_mean", sig.csd(x, y, 100, "hann", 16, 8)[1])
answer("csd_median", sig.csd(x, y, 100, "hann", 16, 8, average="median", scaling="spectrum")[1])
answer("csd_two_sided", sig.csd(x, y, 100, "hann", 9, 3, return_onesided=False)[1])
answer("coherence", sig.coherence(x, y, 100, "hann", 16, 8)[1])
answer("spectrogram", sig.spectrogram(x, 50, ("tukey", 0.25), 16, 2)[2])
for mode in ("complex", "magnitude", "angle", "phase"):
    answer("spectrogram_" + mode, sig.spectrogram(x[:, :27], 50, "hann", 16, 5, detrend=False,
                                                  scaling="spectrum", mode=mode)[2])
answer("spectrogram_two_sided", sig.spectrogram(x[:, :25], 50, "hamming", 15, 5, nfft=18,
                                                return_onesided=False, mode="magnitude")[2])
answer("periodogram", sig.periodogram(x, 50)[1])
answer("periodogram_linear", sig.periodogram(x[:, :31], 50, detrend="linear",
                                             scaling="spectrum")[1])

# short-time transforms
answer("stft_scipy", sig.stft(x, 50, "hann", 16, 12)[2])
answer("stft_scipy_odd", sig.stft(x, 50, "hamming", 15, 10, nfft=20, boundary="odd",
                                  scaling="psd")[2])
answer("stft_scipy_plain", sig.stft(x, 50, "hann", 16, 8, boundary=None, padded=False)[2])
answer("stft_librosa", librosa.stft(x, n_fft=16, hop_length=5, win_length=12,
                                    pad_mode="reflect", dtype=np.complex128))
spectrum = librosa.stft(x, n_fft=16, hop_length=4, dtype=np.complex128)
answer("istft_librosa", librosa.istft(spectrum * np.arange(1, 10)[:, None] / 8, hop_length=4,
                                      length=57, dtype=np.float64))
spectrum = sig.stft(x, 50, "hamming", 16, 11)[2]
answer("istft_scipy", sig.istft(spectrum * np.arange(1, 10)[:, None] / 8, 50, "hamming", 16,
                                11)[1])

# cosine transforms
for n in (1, 2, 7, 12):
    for kind in (1, 2, 3, 4):
        if n == 1 and kind == 1:
            continue
        part = x[:, :n]
        answer(f"dct{kind}_{n}", np.stack([
            scipy.fft.dct(part, kind), scipy.fft.dct(part, kind, norm="ortho"),
            scipy.fft.idct(part, kind), scipy.fft.idct(part, kind, norm="ortho")]))
answer("hilbert_odd", sig.hilbert(x[:, :15]))
answer("hilbert_even", sig.hilbert(x[:, :16]))

# filters
taps = sig.firwin(9, 0.3)
answer("firwin_low", taps)
answer("firwin_high", sig.firwin(11, 30, fs=100, pass_zero=False, window=("kaiser", 6.0)))
answer("firwin_band", sig.firwin(12, [10, 20], fs=100, pass_zero=False))
answer("fir", sig.lfilter(taps, 1, x))
sections = np.array([[0.2, 0.3, 0.1, 1, -0.6, 0.3], [0.5, -0.5, 0.25, 1, 0.2, -0.1]])
zi = noise(4, 2, 5).reshape(2, 2, 2)  # lines, sections, 2
out, zf = sig.sosfilt(sections, x, zi=zi.transpose(1, 0, 2))
answer("sos", sig.sosfilt(sections, line)[::7])
answer("sos_state_signal", out)
answer("sos_state", zf.transpose(1, 0, 2))
answer("sos_both_ways", sig.sosfiltfilt(sections, x))
for name, arguments in {"low": (5, 8, "lowpass"), "high": (4, 8, "highpass"),
                        "band": (3, [8, 13], "bandpass"), "wide": (1, [1, 45], "bandpass")}.items():
    answer("butter_" + name, sig.sosfilt(
        sig.butter(arguments[0], arguments[1], arguments[2], fs=100, output="sos"), x[0]))
answer("resample_3_2", sig.resample_poly(x, 3, 2, axis=-1))
answer("resample_down", sig.resample_poly(line, 2, 14)[::2])
answer("resample_up", sig.resample_poly(x[0, :20], 7, 3))
answer("decimate", sig.decimate(line, 5, ftype="fir")[::2])
answer("decimate_iir", sig.decimate(line, 4)[::5])
answer("cheby_low", sig.sosfilt(sig.cheby1(5, 0.5, 8, fs=100, output="sos"), x[0]))
answer("cheby_band", sig.sosfilt(sig.cheby1(4, 3, [8, 13], "band", fs=100, output="sos"), x[0]))

# mel features
for name, arguments in {"slaney": {}, "htk": {"htk": True, "norm": None, "fmin": 50, "fmax": 3000},
                        "plain": {"norm": None}}.items():
    answer("mel_" + name, librosa.filters.mel(sr=8000, n_fft=40, n_mels=5, dtype=np.float64,
                                              **arguments))
answer("mel_spectrogram", librosa.feature.melspectrogram(
    y=line, sr=8000, n_fft=64, hop_length=40, n_mels=6, pad_mode="reflect"))
answer("mfcc", librosa.feature.mfcc(
    S=librosa.power_to_db(librosa.feature.melspectrogram(
        y=line * line * line, sr=8000, n_fft=64, hop_length=60, n_mels=10, pad_mode="reflect"),
        top_db=30), n_mfcc=7, lifter=5))


def kaldi(samples, rate, snip_edges, raw_energy, use_energy, mels=10, ceps=None, power=True,
          remove_dc=True, kind="povey"):
    """Kaldi's features in f64, by its formulas; checked against kaldi-native-fbank below."""
    length, shift, n_fft = int(rate * 0.025), int(rate * 0.01), 256
    if not snip_edges:
        count, left = (len(samples) + shift // 2) // shift, length // 2 - shift // 2
        index = np.arange((count - 1) * shift + length) - left
        index = np.where(index < 0, -1 - index, index)
        samples = samples[np.where(index >= len(samples), 2 * len(samples) - 1 - index, index)]
    frames = np.lib.stride_tricks.sliding_window_view(samples, length)[::shift]
    if remove_dc:
        frames = frames - frames.mean(axis=1, keepdims=True)
    energy = np.log(np.maximum((frames**2).sum(axis=1), 1.1920928955078125e-07))
    frames = frames - 0.97 * np.concatenate([frames[:, :1], frames[:, :-1]], axis=1)
    hann = sig.windows.hann(length)
    frames = frames * {"povey": hann**0.85, "hann": hann}[kind]
    if not raw_energy:
        energy = np.log(np.maximum((frames**2).sum(axis=1), 1.1920928955078125e-07))
    bins = np.abs(np.fft.rfft(frames, n_fft)) ** (2 if power else 1)
    mel = lambda hz: 1127 * np.log(1 + hz / 700)
    step = (mel(rate / 2) - mel(20)) / (mels + 1)
    at = mel(np.arange(n_fft // 2 + 1) * rate / n_fft)
    left = mel(20) + step * np.arange(mels)[:, None]
    filters = np.maximum(0, np.minimum((at - left) / step, (left + 2 * step - at) / step))
    filters[:, -1] = 0
    bands = np.log(np.maximum(bins @ filters.T, 1.1920928955078125e-07))
    if ceps:
        lifter = 1 + 11 * np.sin(np.pi * np.arange(ceps) / 22)
        bands = scipy.fft.dct(bands, norm="ortho")[:, :ceps] * lifter
        if use_energy:
            bands[:, 0] = energy
        return bands
    return np.concatenate([energy[:, None], bands], axis=1) if use_energy else bands


def native(samples, rate, snip_edges, raw_energy, use_energy, mels=10, ceps=None, power=True,
           remove_dc=True, kind="povey"):
    options = (kaldi_native_fbank.MfccOptions if ceps else kaldi_native_fbank.FbankOptions)()
    frame = options.frame_opts
    frame.samp_freq, frame.dither, frame.snip_edges = rate, 0, snip_edges
    frame.remove_dc_offset, frame.window_type = remove_dc, {"hann": "hanning"}.get(kind, kind)
    options.mel_opts.num_bins, options.use_energy, options.raw_energy = mels, use_energy, raw_energy
    options.energy_floor = 0
    if ceps:
        options.num_ceps = ceps
    else:
        options.use_power, options.htk_compat = power, False
    computer = (kaldi_native_fbank.OnlineMfcc if ceps else kaldi_native_fbank.OnlineFbank)(options)
    computer.accept_waveform(rate, samples.astype(np.float32).tolist())
    computer.input_finished()
    return np.stack([computer.get_frame(i) for i in range(computer.num_frames_ready)])


for name, arguments in {
        "fbank": (8000, True, True, False), "fbank_energy": (8000, True, False, True),
        "fbank_edges": (8000, False, True, True), "mfcc": (8000, True, True, True, 12, 7),
        "mfcc_plain": (8000, True, True, False, 12, 7)}.items():
    expected = kaldi(line * 1000, *arguments)
    assert np.allclose(expected, native(line * 1000, *arguments), atol=2e-3, rtol=1e-4), name
    answer("kaldi_" + name, expected)


def write(name, some):
    with open(name, "w", encoding="ascii") as file:
        file.write("// What SciPy, librosa and Kaldi's formulas give for made-up signals. Made by\n"
                   "// scipy_answers.py.\n// clang-format off\n#pragma once\n\n"
                   '#include "signal/answer.hpp"\n\nnamespace rlx::testing::scipy {\n\n')
        file.write("".join(some))
        file.write("\n}  // namespace rlx::testing::scipy\n")


spectra = next(i for i, text in enumerate(answers) if " dct2_1{" in text)
write("scipy_spectra_answers.hpp", answers[:spectra])
write("scipy_answers.hpp", answers[spectra:])
