"""What the process does so that its resident memory stays what it uses."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

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
CACHES = """
import ctypes, threading
from exporter.system import memory
{call}
class Found(ctypes.Structure):
    # mallinfo2(3): the eighth of ten counts is of bytes in use.
    _fields_ = [(f"n{{place}}", ctypes.c_size_t) for place in range(1, 11)]
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.mallinfo2.restype = Found
ready, done, ended = threading.Barrier(13), threading.Barrier(13), threading.Event()
def use():
    ready.wait()
    held = [libc.malloc(size) for size in range(24, 1025, 16) for _ in range(7)]
    for piece in held: libc.free(ctypes.c_void_p(piece))
    del held
    done.wait()
    ended.wait()
threads = [threading.Thread(target=use) for _ in range(12)]
for thread in threads: thread.start()
before = libc.mallinfo2().n8
ready.wait()
done.wait()
print(libc.mallinfo2().n8 - before)
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


@pytest.mark.skipif(NO_GLIBC, reason="tunables are glibc's")
def test_threads_keep_little_of_what_they_freed():
    kept = int(said(CACHES, AGAIN))
    assert kept < int(said(CACHES, "")) / 3


AGAIN = "memory.start_with_small_caches()"
STARTS = """
import os
os.write(1, b"started ")
from exporter.system import memory
{call}
print([name for name in os.environ if "TRITONWATCH" in name])
"""


@pytest.mark.skipif(NO_GLIBC, reason="tunables are glibc's")
def test_the_program_is_executed_again_once_and_leaves_no_mark():
    assert said(STARTS, AGAIN) == "started started []\n"


@pytest.mark.skipif(NO_GLIBC, reason="tunables are glibc's")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_program_that_glibc_takes_the_variable_from_is_executed_again_once(tmp_path):
    # As with a file capability, where the user is not root: AT_SECURE is set.
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    shutil.copy(Path(sys.executable).resolve(), python)
    environment = Path(sys.prefix)
    shutil.copy(environment / "pyvenv.cfg", tmp_path)
    (tmp_path / "lib").symlink_to(environment / "lib")
    os.chown(python, 0, 12345)
    python.chmod(0o2755)
    ended = subprocess.run(
        [python, "-c", STARTS.format(call=AGAIN)],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout == "started started []\n"


def test_garbage_is_collected_before_it_is_much():
    settled, unsettled = int(said(CYCLES, "memory.settle()")), int(said(CYCLES, ""))
    assert settled < unsettled / 2
