"""A kernel of your own on the plugged GPU.

    python examples/gpu_kernel.py                 # an emulated bridge with an emulated card
    python examples/gpu_kernel.py usb             # the card behind the bridge that is plugged in

Kernels are OpenCL C without its library: work-items are numbered by clang's builtins.
"""

import sys

import numpy as np

import towline

SOURCE = """
__attribute__((reqd_work_group_size(64, 1, 1)))
__kernel void scale(__global float *values, float factor) {
  values[64 * __builtin_amdgcn_workgroup_id_x() + __builtin_amdgcn_workitem_id_x()] *= factor;
}
"""

values = np.arange(256, dtype=np.float32)
with towline.open_gpu(sys.argv[1] if len(sys.argv) > 1 else None) as gpu:
    kernels = gpu.load(towline.compile_kernels(SOURCE, gpu.chip))
    buffer = gpu.allocate(values.nbytes)
    gpu.upload(buffer, values.tobytes())
    gpu.launch(kernels["scale"], 4, buffer, 1.5)  # 4 workgroups of 64, then the kernel's arguments
    result = np.frombuffer(gpu.download(buffer, values.nbytes), np.float32)

print(f"{gpu.chip}: {(result == values * 1.5).sum()} of {len(result)} are right")
