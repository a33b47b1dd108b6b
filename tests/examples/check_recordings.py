#!/usr/bin/env python3
"""Runs speech_features and eeg_bands on made-up recordings: the files that they write are whole,
the rhythms that they find are those that were put in.

usage: check_recordings.py SPEECH_FEATURES EEG_BANDS MAKE_RECORDINGS.PY"""
import ast
import os
import struct
import subprocess
import sys
import tempfile


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout, done.stderr


def check_picture(file):
    with open(file, "rb") as stream:
        data = stream.read()
    assert data.startswith(b"\x89PNG\r\n\x1a\n") and data.endswith(b"IEND\xaeB`\x82"), file
    width, height = struct.unpack(">II", data[16:24])
    assert width > 800 and height > 200, (width, height)


def check_speech(program, folder):
    features, picture = os.path.join(folder, "f.npy"), os.path.join(folder, "f.png")
    sound = os.path.join(folder, "sound.wav")
    code, out, err = call(program, sound, "--features", features, "--picture", picture)
    assert code == 0, err
    assert "80 bands x 400 frames" in out, out
    with open(features, "rb") as stream:
        data = stream.read()
    length = struct.unpack("<H", data[8:10])[0]
    header = ast.literal_eval(data[10:10 + length].decode().strip())
    assert header["shape"] == (80, 400) and header["descr"] == "<f4", header
    values = struct.unpack("<32000f", data[10 + length:])
    # Whisper's scale: nothing is more than 2 below the largest.
    assert max(values) - min(values) <= 2.0001 and max(values) < 3, (min(values), max(values))
    # The tone glides upwards: the strongest band of the first second is below that of the last.
    strongest = [max(range(80), key=lambda band: values[400 * band + frame]) for frame in (60, 360)]
    assert 5 < strongest[0] < strongest[1] < 79, strongest
    check_picture(picture)
    assert call(program, os.path.join(folder, "eeg.edf"))[0] == 3


def check_eeg(program, folder):
    picture = os.path.join(folder, "b.png")
    code, out, err = call(program, os.path.join(folder, "eeg.edf"), "--picture", picture)
    assert code == 0, err
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("EEG ")}
    expected = {"Fp1": 2.0, "F3": 6.0, "C3": 21.0, "O1": 10.0,
                "Fp2": 2.5, "F4": 5.5, "C4": 19.0, "O2": 10.5}
    assert set(rows) == set(expected), out
    for name, hertz in expected.items():
        found = float(rows[name].split()[-2])
        assert abs(found - hertz) <= 0.25, rows[name]
    check_picture(picture)
    assert call(program, os.path.join(folder, "sound.wav"))[0] == 3


def main():
    speech, eeg, maker = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, maker, folder], check=True)
        check_speech(speech, folder)
        check_eeg(eeg, folder)


if __name__ == "__main__":
    main()
