"""What the process does so that its resident memory stays what it uses."""

from __future__ import annotations

import platform

import pytest
from commands import python

NO_GLIBC = platform.libc_ver()[0] != "glibc"
ARENAS = """
import ctypes, threading
from exporter.system import memory
{call}
ended = threading.Event()
ready = threading.Barrier(13)
def hold():
    kept = [bytes(1000) for _ in range(2000)]
    ready.wait()
    ended.wait()
threads = [threading.Thread(target=hold) for _ in range(12)]
for thread in threads: thread.start()
ready.wait()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = libc.fopen(b"/dev/stdout", b"w")
libc.malloc_info(0, ctypes.c_void_p(file))
libc.fclose(ctypes.c_void_p(file))
ended.set()
"""
CYCLES = """
import collections
from exporter.system import memory
import exporter.app
{call}
class Cycle:
    there = most = 0
    def __init__(self):
        self.itself = self
        Cycle.there += 1
        Cycle.most = max(Cycle.there, Cycle.most)
    def __del__(self):
        Cycle.there -= 1
used = collections.deque(maxlen=300)
for _ in range(500_000):
    used.append(Cycle())
print(Cycle.most)
"""


def said(program: str, call: str) -> str:
    """What a Python of its own prints."""
    return python(program.format(call=call))


@pytest.mark.skipif(NO_GLIBC, reason="mallopt is glibc's")
def test_threads_share_two_arenas():
    assert said(ARENAS, "memory.use_few_arenas()").count("<heap nr=") == 2
    assert said(ARENAS, "").count("<heap nr=") > 2


def test_garbage_is_collected_before_it_is_much():
    settled, unsettled = int(said(CYCLES, "memory.settle()")), int(said(CYCLES, ""))
    assert settled < unsettled / 2
