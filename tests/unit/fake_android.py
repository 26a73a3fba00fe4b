"""A model of an Android vendor's kernel: the second back end of `FakeKernel`, with the same DSP behind it.

Written from the table of /dev/adsprpc-smd's requests (trace) and from the vendor's driver of Linux 4.9
(published): a failed check is EPERM, and a DSP that restarted is ECONNRESET as a positive result. Layouts are
written again here, as there.
"""

import ctypes
import errno
import itertools
import os
import struct

from tests.unit.fake_fastrpc import REQUESTS, FakeKernel, Process

NODE, SECURE = "/dev/adsprpc-smd", "/dev/adsprpc-smd-secure"

ANDROID_REQUESTS = {
    0xC0105201: ("call", "<IIQ", "handle sc pra"),
    0xC0205202: ("mmap", "<iIQQQ", "fd flags vaddrin size vaddrout"),
    0xC0105203: ("munmap", "<QQ", "vaddrout size"),
    0xC0285206: ("init", "<I4xQIiQIi", "flags file filelen filefd mem memlen memfd"),
    0xC0205207: ("call_attrs", "<IIQQQ", "handle sc pra fds attrs"),
    0xC0045208: ("getinfo", "<I", "domain"),
    0xC030520A: ("init_attrs", "<I4xQIiQIiiI", "flags file filelen filefd mem memlen memfd attrs siglen"),
    0xC00C520C: ("control", "<III", "req value level"),
    0xC018520D: ("munmap_fd", "<iIQQ", "fd flags va len"),
}
ION_REQUESTS = {
    "old": {
        0xC0204900: ("ion_alloc", "<QQIIi4x", "len align heaps flags handle"),
        0xC0044901: ("ion_free", "<i", "handle"),
        0xC0084904: ("ion_share", "<ii", "handle fd"),
    },
    "new": {0xC0184900: ("ion_alloc_new", "<QIIII", "len heaps flags fd unused")},
}


class AndroidKernel(FakeKernel):
    """Attributes select the faults, besides those of `FakeKernel`.

    Attributes:
        ion: "old", "new" or None: which ION the kernel has.
        trusted: whether the program may start signed processes.
        kalloc: whether the driver allocates a process's memory.
        lacks: names of the driver's requests that it does not know.
        forbidden: names of those that SELinux refuses.
        faults: what the next calls into modules do, in order: an errno, or "restart" of the DSP.
        start_faults: errnos of the next starts of a process.
    """

    def __init__(self):
        super().__init__()
        self.nodes = {NODE: 0, SECURE: errno.EACCES}
        self.has_heap = False
        self.ion = "old"
        self.trusted = True
        self.kalloc = 1
        self.lacks, self.forbidden = set(), set()
        self.faults, self.start_faults = [], []
        self.stray = []  # requests to files that were closed
        self.domains = {}  # descriptor of the node -> number of the DSP
        self.handles = {}  # of ION -> descriptor
        self.numbers = itertools.count(1)

    # -- the seam ---------------------------------------------------------------------------------------

    def open(self, path, flags=os.O_RDWR):
        if path.startswith("/dev/fastrpc"):
            return super().open(path, flags)
        if flags & os.O_ACCMODE != os.O_RDONLY:
            self._refuse(errno.EACCES)
        if path == "/dev/ion" and self.ion:
            return self._descriptor(path)
        assert "adsprpc" not in path or flags & os.O_NONBLOCK
        return super().open(path, flags)

    def close(self, descriptor):
        self.domains.pop(descriptor, None)
        super().close(descriptor)

    def _requests(self, descriptor):
        path = self.files.get(descriptor, "")
        if descriptor not in self.files and descriptor not in self.buffers:
            self.stray += [descriptor] if descriptor >= 0 else []
            self._refuse(errno.EBADF)
        if path == "/dev/ion":
            return ION_REQUESTS[self.ion]
        if "adsprpc" not in path:
            return REQUESTS
        return ANDROID_REQUESTS

    def ioctl(self, descriptor, request, argument):
        requests = self._requests(descriptor)
        name = requests.get(int(request), ("",))[0]
        if requests is ANDROID_REQUESTS and name in self.lacks:
            self._refuse(errno.ENOTTY)
        if requests is ANDROID_REQUESTS and name in self.forbidden:
            self._refuse(errno.EACCES)
        if requests is ION_REQUESTS["new"] and int(request) == 0xC0204900:
            self._refuse(errno.EINVAL)  # larger than any request of this ION
        return super().ioctl(descriptor, request, argument)

    # -- ION --------------------------------------------------------------------------------------------

    def _ion_buffer(self, argument):
        assert argument.heaps == 1 << 25
        assert argument.flags == 1
        assert argument.len % 4096 == 0
        buffer = self._dma_buffer(argument.len)
        del self.buffers[buffer]
        return buffer

    def ion_alloc(self, ion, argument):
        argument.handle = next(self.numbers)
        self.handles[argument.handle] = self._ion_buffer(argument)

    def ion_share(self, ion, argument):
        argument.fd = os.dup(self.handles[argument.handle])
        self.buffers[argument.fd] = 0

    def ion_free(self, ion, argument):
        os.close(self.handles.pop(argument.handle))

    def ion_alloc_new(self, ion, argument):
        argument.fd = self._ion_buffer(argument)
        self.buffers[argument.fd] = 0

    # -- processes --------------------------------------------------------------------------------------

    def getinfo(self, node, argument):
        if argument.domain > 3 or (argument.domain != 3 and self.files[node] == NODE):
            self._refuse(errno.EPERM)
        self.domains[node] = argument.domain
        argument.domain = 1

    def control(self, node, argument):
        if argument.req != 3:
            self._refuse(errno.ENOTTY)
        argument.value = self.kalloc

    def init(self, node, argument, attrs=0):
        if node not in self.domains:
            self._refuse(errno.ECHRNG)
        if argument.flags != 1:
            self._refuse(errno.ENOTTY)
        if argument.filelen >= 2 << 20:
            self._refuse(errno.EPERM)
        if argument.mem or argument.memlen:
            self._refuse(errno.EINVAL)
        if not attrs and not self.trusted:
            self._refuse(errno.ECONNREFUSED)
        if argument.filefd not in self.buffers or self.buffers[argument.filefd] != argument.file:
            self._refuse(errno.EPERM)
        if self.start_faults:
            self._refuse(self.start_faults.pop(0))
        shell = ctypes.string_at(argument.file, argument.filelen)
        assert shell[:4] == b"\x7fELF"
        self.shells.append((bool(attrs), shell))
        if self.create_result:
            return self.create_result
        self.processes[node] = Process(self)
        return 0

    def init_attrs(self, node, argument):
        assert (argument.attrs, argument.siglen) == (8, 0)
        return self.init(node, argument, argument.attrs)

    # -- calls ------------------------------------------------------------------------------------------

    def call(self, node, argument):
        n = (argument.sc >> 16 & 255) + (argument.sc >> 8 & 255)
        raw = ctypes.string_at(argument.pra, 16 * n) if n else b""
        return self._carry(node, argument.handle, argument.sc, list(struct.iter_unpack("<QQ", raw)))

    def call_attrs(self, node, argument):
        n = (argument.sc >> 16 & 255) + (argument.sc >> 8 & 255)
        buffers = struct.iter_unpack("<QQ", ctypes.string_at(argument.pra, 16 * n))
        fds = struct.unpack(f"<{n}i", ctypes.string_at(argument.fds, 4 * n))
        attributes = struct.unpack(f"<{n}I", ctypes.string_at(argument.attrs, 4 * n))
        for (address, length), descriptor, attribute in zip(buffers, fds, attributes, strict=True):
            # 1, no address on the DSP, is for handles, which the DSP's code maps itself.
            assert attribute == 0, "a buffer with attributes"
            if descriptor not in (0, -1):
                assert self.buffers.get(descriptor) == address, "the driver maps another buffer"
                assert length <= os.fstat(descriptor).st_size
        assert set(fds) - {0, -1}
        return self.call(node, argument)

    def _dispatch(self, process, handle, scalars, inputs, sizes):
        if handle in process.modules and self.faults:
            fault = self.faults.pop(0)
            if fault != "restart":
                self._refuse(fault)
            process.end()
            return errno.ECONNRESET, []
        return super()._dispatch(process, handle, scalars, inputs, sizes)

    def munmap_fd(self, node, argument):
        assert self.buffers[argument.fd] == argument.va
        self._refuse(errno.EPERM)  # no map is left after a call
