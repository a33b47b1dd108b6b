#!/usr/bin/env python3
"""Writes made-up inputs for the examples: sound.wav (a gliding tone and clicks, 22050 Hz, stereo)
and eeg.edf (eight channels of noise with rhythms of known frequency, 256 Hz).

usage: make_recordings.py FOLDER"""
import math
import os
import random
import struct
import sys
import wave

RATE, SECONDS = 256, 40
# Channel: frequency of its rhythm in Hz, its amplitude in microvolts.
RHYTHMS = {"Fp1": (2.0, 30), "F3": (6.0, 18), "C3": (21.0, 9), "O1": (10.0, 24),
           "Fp2": (2.5, 30), "F4": (5.5, 18), "C4": (19.0, 9), "O2": (10.5, 24)}


def write_sound(file):
    rate, seconds = 22050, 4
    frames = bytearray()
    phase = 0.0
    for i in range(rate * seconds):
        t = i / rate
        phase += 2 * math.pi * (200 + 900 * t + 120 * math.sin(5 * t)) / rate
        voice = 0.3 * math.sin(phase) + 0.15 * math.sin(2 * phase) + 0.08 * math.sin(3 * phase)
        click = 0.5 * math.exp(-400 * (t % 0.5)) * math.sin(2 * math.pi * 3000 * t)
        for value in (voice + click, voice):
            frames += struct.pack("<h", int(20000 * value))
    with wave.open(file, "wb") as out:
        out.setnchannels(2)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(bytes(frames))


def channel(frequency, amplitude):
    """Brown noise, white noise and the rhythm, in tenths of a microvolt."""
    slow, values = 0.0, []
    for i in range(RATE * SECONDS):
        slow = 0.98 * slow + random.gauss(0, 2)
        wave_now = amplitude * math.sin(2 * math.pi * frequency * i / RATE)
        values.append(int(10 * (slow + random.gauss(0, 3) + wave_now)))
    return values


def write_eeg(file):
    random.seed(1)
    names = list(RHYTHMS)

    def fields(width, values):
        return "".join(str(v).ljust(width) for v in values)

    count = len(names)
    text = "0".ljust(8) + "made up".ljust(80) + "made up".ljust(80) + "01.01.2600.00.00"
    text += str(256 * (count + 1)).ljust(8) + "".ljust(44) + str(SECONDS).ljust(8)
    text += "1".ljust(8) + str(count).ljust(4)
    text += fields(16, ["EEG " + n for n in names]) + fields(80, [""] * count)
    text += fields(8, ["uV"] * count) + fields(8, ["-3276.8"] * count)
    text += fields(8, ["3276.7"] * count) + fields(8, ["-32768"] * count)
    text += fields(8, ["32767"] * count) + fields(80, [""] * count)
    text += fields(8, [RATE] * count) + fields(32, [""] * count)
    lines = [channel(*RHYTHMS[n]) for n in names]
    with open(file, "wb") as out:
        out.write(text.encode("ascii"))
        for second in range(SECONDS):
            for line in lines:
                out.write(struct.pack(f"<{RATE}h", *line[second * RATE:(second + 1) * RATE]))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    os.makedirs(sys.argv[1], exist_ok=True)
    write_sound(os.path.join(sys.argv[1], "sound.wav"))
    write_eeg(os.path.join(sys.argv[1], "eeg.edf"))
