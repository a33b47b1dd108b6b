"""Whether the cores run at full speed, or share their units with a neighbour on the other hardware
thread of the same core, which a virtual machine cannot see: no process of this machine is busier
for it, and no time is told as stolen.

A loop of the interpreter wants all that a core can decode, so that a neighbour doubles its time.
"""
import os
import statistics
import time

SLOWER = 1.2  # times the least loop so far: disturbed


def loop_seconds():
    begin, total = time.perf_counter(), 0
    for i in range(20_000):
        total += i
    return time.perf_counter() - begin


class Quiet:
    """Watches the cores that this process may use."""

    def __init__(self):
        self.cores = sorted(os.sched_getaffinity(0))
        self.least = float("inf")
        self.samples = self.disturbed = 0
        end = time.monotonic() + 1
        while time.monotonic() < end:
            self.now()

    def now(self):
        """Whether all cores are at full speed, as far as known so far."""
        times = []
        for core in self.cores:
            os.sched_setaffinity(0, {core})
            times.append(statistics.median(loop_seconds() for _ in range(3)))
        os.sched_setaffinity(0, self.cores)
        self.least = min(self.least, *times)
        return max(times) < SLOWER * self.least

    def wait(self, seconds):
        """Returns when the cores are quiet, or after so many seconds; whether they are."""
        end = time.monotonic() + seconds
        while not (quiet := self.now()) and time.monotonic() < end:
            pass
        return quiet

    def sample(self, measure, patience):
        """Waits at most `patience` seconds for quiet cores, calls `measure` and notes whether
        they were quiet before and behind it."""
        before = self.wait(patience)
        measure()
        self.samples += 1
        self.disturbed += not (before and self.now())

    def summary(self):
        return f"{self.disturbed} of {self.samples} samples beside busy neighbours"
