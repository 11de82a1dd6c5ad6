"""Models that keep a real GPU busy and need nothing but its driver.

Each inference of `fma` and `small` is a known number of FP32 operations, on every or a few
of the board's processors; `copy` moves bytes within the board's memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from embedded_servers import write_model

if TYPE_CHECKING:
    from pathlib import Path

THREADS: Final = 256
CHAINS: Final = 16
"""Independent sums in each thread."""
UNROLLED: Final = 4
"""Multiply-adds of each chain in one round of the loop."""


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one inference: a kernel of this size, or copies if it has no blocks."""

    blocks: int = 0
    rounds: int = 0
    copies: int = 0

    @property
    def flops(self) -> int:
        """FP32 operations; a multiply-add counts as two."""
        return self.blocks * THREADS * self.rounds * CHAINS * UNROLLED * 2


MODELS: Final = {
    "fma": Work(blocks=1056, rounds=32_000),
    "small": Work(blocks=16, rounds=250_000),
    "copy": Work(copies=56),
}
"""About 20 ms each on an H100."""


def kernel() -> str:
    """PTX of `work(out, rounds)`: chains of multiply-adds that nothing can leave out."""
    sums = [f"%f{number}" for number in range(CHAINS)]
    lines = [
        ".version 7.0",
        ".target sm_70",
        ".address_size 64",
        ".visible .entry work(.param .u64 out, .param .u32 rounds) {",
        f".reg .f32 %f<{CHAINS + 2}>;",
        ".reg .u32 %r<6>;",
        ".reg .u64 %rd<4>;",
        ".reg .pred %p;",
        "ld.param.u64 %rd1, [out];",
        "ld.param.u32 %r1, [rounds];",
        "cvta.to.global.u64 %rd1, %rd1;",
        "mov.u32 %r2, %ctaid.x;",
        "mov.u32 %r3, %ntid.x;",
        "mov.u32 %r4, %tid.x;",
        "mad.lo.u32 %r5, %r2, %r3, %r4;",
        f"cvt.rn.f32.u32 %f{CHAINS}, %r4;",
        # Close to 1, so that the sums neither vanish nor overflow.
        f"mul.f32 %f{CHAINS}, %f{CHAINS}, 0f2EDBE6FF;",
        f"add.f32 %f{CHAINS}, %f{CHAINS}, 0f3F7FFFEF;",
        f"cvt.rn.f32.u32 %f{CHAINS + 1}, %r5;",
        *(f"add.f32 {name}, %f{CHAINS + 1}, 0f3F800000;" for name in sums),
        "again:",
        *(
            f"fma.rn.f32 {name}, {name}, %f{CHAINS}, %f{CHAINS};"
            for _ in range(UNROLLED)
            for name in sums
        ),
        "sub.u32 %r1, %r1, 1;",
        "setp.ne.u32 %p, %r1, 0;",
        "@%p bra again;",
        *(f"add.f32 %f0, %f0, {name};" for name in sums[1:]),
        "mul.wide.u32 %rd2, %r5, 4;",
        "add.u64 %rd3, %rd1, %rd2;",
        "st.global.f32 [%rd3], %f0;",
        "ret;",
        "}",
    ]
    return "\n".join(lines) + "\n"


_CONFIG: Final = """
backend: "python"
input [ { name: "x" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_GPU count: 1 } ]
"""

_MODEL: Final = '''
import ctypes

import triton_python_backend_utils as pb

WORK = {work}
KERNEL = b"""{kernel}"""
BYTES = 1 << 29
BLOCKING_SYNC = 4


class TritonPythonModel:
    def initialize(self, args):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = ctypes.c_int()
        self.call("cuDeviceGet", ctypes.byref(device), int(args["model_instance_device_id"]))
        self.call("cuDevicePrimaryCtxSetFlags_v2", device, BLOCKING_SYNC)
        self.context = ctypes.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        module, self.kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), KERNEL)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, b"work")
        self.buffers = [self.memory(), self.memory()]

    def call(self, name, *arguments):
        status = getattr(self.cuda, name)(*arguments)
        if status:
            raise pb.TritonModelException(f"{{name}} returned {{status}}")

    def memory(self):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(BYTES))
        self.call("cuMemsetD32_v2", address, 0x3F812345, ctypes.c_size_t(BYTES // 4))
        return address

    def execute(self, requests):
        self.call("cuCtxSetCurrent", self.context)
        answers = []
        for request in requests:
            self.work()
            given = pb.get_input_tensor_by_name(request, "x").as_numpy()
            answers.append(pb.InferenceResponse([pb.Tensor("y", given)]))
        return answers

    def work(self):
        one, other = self.buffers
        for _ in range(WORK["copies"]):
            self.call("cuMemcpyDtoDAsync_v2", one, other, ctypes.c_size_t(BYTES), None)
        if WORK["blocks"]:
            rounds = ctypes.c_uint32(WORK["rounds"])
            given = (ctypes.c_void_p * 2)(
                ctypes.cast(ctypes.byref(one), ctypes.c_void_p),
                ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p),
            )
            grid = WORK["blocks"], 1, 1, {threads}, 1, 1, 0
            self.call("cuLaunchKernel", self.kernel, *grid, None, given, None)
        self.call("cuCtxSynchronize")
'''


def write_gpu_models(repository: Path) -> Path:
    """Write all MODELS into the repository; return it."""
    for name, work in MODELS.items():
        shape = {"blocks": work.blocks, "rounds": work.rounds, "copies": work.copies}
        source = _MODEL.format(work=shape, kernel=kernel(), threads=THREADS)
        write_model(repository, name, _CONFIG, source)
    return repository
