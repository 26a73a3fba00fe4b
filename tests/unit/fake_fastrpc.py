"""A model of the kernel's FastRPC driver and of the DSP behind it, for the seam `dsp.hexagon.fastrpc.system`.

The kernel's part is written from drivers/misc/fastrpc.c: what each node accepts, what it copies and what it
maps, which errors it returns. The DSP's part loads an object as a DSP does, by asking the listener for it,
and runs it in qemu-hexagon (fake_dsp.c). Layouts are written again here: a model that shared them with the
runtime would agree with its mistakes.
"""

import ctypes
import errno
import functools
import mmap
import os
import queue
import re
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from sdk import cache, toolchain

SECURE_ONLY = {"adsp"}
AEE_EBADSTATE, AEE_EUNSUPPORTED, AEE_ENOSUCHMOD = 0x8000_040D, 0x8000_0414, 0x8000_043E
SHELL = b"\x7fELF" + bytes(12) + b"a shell"
ADD_PAGES = 0x1000

# number -> (name, layout, fields); written from misc/fastrpc.h, linux/dma-heap.h and linux/dma-buf.h
REQUESTS = {
    0xC0105201: ("alloc_dma_buf", "<iIQ", "fd flags size"),
    0xC0105203: ("invoke", "<IIQ", "handle sc args"),
    0xC0185205: ("init_create", "<IiIIQ", "filelen filefd attrs siglen file"),
    0xC0205206: ("mmap", "<iIQQQ", "fd flags vaddrin size vaddrout"),
    0xC0105207: ("munmap", "<QQ", "vaddrout size"),
    0xC01C520D: ("get_dsp_info", "<7I", "domain attribute_id capability r0 r1 r2 r3"),
    0xC0184800: ("dma_heap_alloc", "<QIIQ", "len fd fd_flags heap_flags"),
    0x40086200: ("dma_buf_sync", "<Q", "flags"),
}


@functools.cache
def loader():
    """Path of fake_dsp.c, built; the tests' own, in the cache."""
    source = Path(__file__).with_name("fake_dsp.c")
    flags = [
        "--target=hexagon",
        "-mcpu=hexagonv65",
        "-mhvx=v65",
        "-mhvx-length=128b",
        "-O2",
        "-ffreestanding",
    ]
    facts = [toolchain.version("clang"), *flags, source.read_text()]
    image = cache.directory("tests") / f"fake_dsp-{cache.digest(facts)}"
    if not image.exists():
        made = toolchain.run("clang", [*flags, "-fno-builtin", "-c", "-o", "-", source]).stdout
        unlinked = image.with_suffix(f".{os.getpid()}.o")
        cache.keep(unlinked, made)
        cache.keep(
            image, toolchain.run("lld", ["-m", "hexagonelf", "-e", "_start", "-o", "-", unlinked]).stdout
        )
        unlinked.unlink()
        image.chmod(0o755)
    return image


class Process:
    """A process on the DSP: objects loaded by the listener, run by qemu-hexagon."""

    def __init__(self, dsp):
        self.dsp = dsp
        self.requests = queue.Queue()
        self.answers = queue.Queue()
        self.listening = self.waiting = self.ended = False
        self.modules = {}
        self.qemu = toolchain.start("qemu-hexagon", [loader()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.free(dsp.units)
        for name in dsp.image_lacks:
            self._send(ord("H"), len(name), name.encode())
            assert self._word() == 0

    def end(self):
        if not self.ended:
            self.ended = True
            self.requests.put(None)
            self.answers.put(None)
            self.qemu.stdin.close()
            self.qemu.kill()
            self.qemu.wait()
            self.qemu.stdout.close()

    # -- qemu's part ------------------------------------------------------------------------------------

    def _send(self, *parts):
        self.qemu.stdin.write(b"".join(p if isinstance(p, bytes) else struct.pack("<I", p) for p in parts))
        self.qemu.stdin.flush()

    def _receive(self, size):
        data = self.qemu.stdout.read(size)
        assert len(data) == size, "the fake DSP died"
        return data

    def _word(self):
        return struct.unpack("<I", self._receive(4))[0]

    def load(self, content):
        self._send(ord("L"), len(content), content)
        return self._word()

    def find(self, name):
        self._send(ord("F"), len(name), name.encode())
        return self._word()

    def call(self, address, handle, scalars, inputs, sizes):
        lengths = b"".join(struct.pack("<I", len(data)) + data for data in inputs)
        self._send(ord("C"), address, handle & 0xFFFFFFFF, handle >> 32, scalars, lengths)
        self._send(*sizes)
        result = self._word()
        outputs = [self._receive(size) for size in sizes]
        handles = [struct.unpack("<Q", self._receive(8))[0] for _ in range(scalars & 15)]
        return result, outputs, handles

    def state(self):
        """What the image's functions have done."""
        self._send(ord("S"))
        words = struct.unpack("<6I", self._receive(24))
        names = ("begun", "joined", "locks", "most", "unlocked", "requests")
        return SimpleNamespace(**dict(zip(names, words, strict=True)), request=self._receive(40))

    def free(self, units):
        """So many of HVX: other processes have the rest."""
        self._send(ord("U"), units)

    # -- requests to the listener -----------------------------------------------------------------------

    def ask(self, handle, method, inputs, sizes):
        """A call that goes back to the program: (result, outputs)."""
        assert self.listening
        packed = b""
        for data in inputs:
            packed += struct.pack("<I", len(data))
            if data:
                packed += bytes(-len(packed) % 8) + data
        packed += b"".join(struct.pack("<I", size) for size in sizes)
        scalars = min(method, 31) << 24 | len(inputs) << 16 | len(sizes) << 8
        self.requests.put((7, handle, scalars, packed))
        answer = self.answers.get(timeout=30)
        assert answer is not None, "the listener has ended"
        result, data = answer
        outputs = []
        position = 0
        for size in sizes if result == 0 else ():
            assert struct.unpack_from("<I", data, position)[0] == size
            position += 4
            if size:
                position += -position % 8
            outputs.append(data[position : position + size])
            position += size
        assert position == len(data)
        return result, outputs

    def interface(self, name):
        text = name.encode() + b"\0"
        result, (numbers, _) = self.ask(0, 0, [struct.pack("<II", len(text), 255), text], [8, 255])
        handle, error = struct.unpack("<Ii", numbers)
        assert (result, error) == (0, 0), f"no interface {name}"
        return handle

    def read_file(self, name):
        """A file as a loader gets it, or the error."""
        std = self.interface("apps_std")
        texts = [b"ADSP_LIBRARY_PATH\0", b";\0", name.encode() + b"\0", b"r\0"]
        result, outputs = self.ask(std, 19, [struct.pack("<4I", *map(len, texts)), *texts], [4])
        if result:
            return result
        file = outputs[0]
        _, (length,) = self.ask(std, 10, [file], [8])
        content = b""
        while True:
            result, (numbers, data) = self.ask(std, 4, [file + struct.pack("<I", 5000)], [8, 5000])
            read, end = struct.unpack("<II", numbers)
            assert result == 0
            content += data[:read]
            if end:
                break
        assert self.ask(std, 9, [file + struct.pack("<iI", -4, 2)], [])[0] == 0
        _, (numbers, data) = self.ask(std, 4, [file + struct.pack("<I", 4)], [8, 4])
        assert data == content[-4:], "fseek"
        assert self.ask(std, 3, [file], [])[0] == 0
        assert self.ask(std, 3, [file], [])[0] == errno.EBADF
        assert struct.unpack("<Q", length)[0] == len(content)
        return content

    def grow(self, size):
        memory = self.interface("apps_mem")
        numbers = struct.pack("<IIIIQQ", 22, 0, ADD_PAGES, 0, 0, size)
        result, outputs = self.ask(memory, 2, [numbers], [16])
        assert result == 0
        assert struct.unpack("<QQ", outputs[0])[1]

    # -- modules that every process has -----------------------------------------------------------------

    def open(self, uri):
        """remotectl.open: (handle, error, text)."""
        match = re.fullmatch(r"file:///(.*)\?(.*)&_modver=1\.0&_dom=(\w+)", uri)
        assert match
        name, entry, _ = match.groups()
        assert self.read_file("oemconfig.so") == errno.ENOENT
        content = self.read_file(name)
        if isinstance(content, int):
            return 0, -5, f"cannot open {name}, errno {content:x}"
        self.grow(1 << 20)
        if self.dsp.loader_says:
            return 0, self.dsp.loader_error, self.dsp.loader_says
        if problem := self.load(content):
            return 0, -5, f"cannot load {name}: {problem}"
        address = self.find(entry)
        if not address:
            return 0, 0x80000442 - (1 << 32), f"undefined symbol {entry}"
        text = uri.encode() + b"\0"
        result, _, handles = self.call(address, 0, 2 << 16 | 1, [struct.pack("<I", len(text)), text], [])
        assert result == 0
        self.modules[0x1000 + len(self.modules)] = (address, handles[0])
        return max(self.modules), 0, ""

    def close(self, handle):
        address, own = self.modules.pop(handle)
        assert self.call(address, own, 1 << 24 | 1 << 4, [], [])[0] == 0
        self.dsp.image = self.state()


class FakeKernel:
    """The other side of the seam. Attributes select the faults.

    Attributes:
        nodes: the existing FastRPC nodes, by path; with an errno, opening one fails with it.
        has_heap: whether programs may use /dev/dma_heap/system.
        unsigned_support: whether the DSP starts unsigned processes.
        old_capabilities: whether a capability's answer comes in the wrong place.
        exits: whether a process ends when it is asked to.
        create_result: the DSP's answer to INIT_CREATE.
        loader_says, loader_error: the message and error with which its loader refuses every object.
        invoke_error: an errno for calls into modules.
        closing: called before an object is closed, or a process asked to end.
        buffers_left: how many more buffers can be allocated.
        image_lacks: functions that the DSP's image does not have.
        units: of HVX that are free when a process starts: other processes have the rest of two.
        schedule: what the last object was given for its contexts.
        image: when an object was closed, what it had done with the image's functions.
    """

    def __init__(self):
        self.nodes = {"/dev/fastrpc-cdsp": 0, "/dev/fastrpc-cdsp-secure": 0}
        self.has_heap = self.unsigned_support = True
        self.old_capabilities = False
        self.exits = True
        self.create_result = self.invoke_error = 0
        self.buffers_left = 1000
        self.loader_says, self.loader_error = "", -5
        self.closing = lambda: None
        self.image_lacks, self.image = (), None
        self.units = 2
        self.schedule = None
        self.files = {}  # descriptor -> node
        self.buffers = {}  # descriptor -> address of its mapping
        self.processes = {}  # descriptor of the node -> process
        self.maps = {}  # descriptor of the node -> {descriptor: inode of the buffer it stays with}
        self.shells = []
        self.log = []
        self.heap = {}

    # -- the seam ---------------------------------------------------------------------------------------

    def open(self, path, flags=os.O_RDWR):
        if path == "/dev/dma_heap/system" and self.has_heap:
            return self._descriptor(path)
        if path not in self.nodes:
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        if self.nodes[path]:
            raise OSError(self.nodes[path], os.strerror(self.nodes[path]))
        return self._descriptor(path)

    def _descriptor(self, node):
        descriptor = os.memfd_create("fake")
        self.files[descriptor] = node
        return descriptor

    def close(self, descriptor):
        if process := self.processes.pop(descriptor, None):
            process.end()
        self.files.pop(descriptor, None)
        self.maps.pop(descriptor, None)
        self.buffers.pop(descriptor, None)
        os.close(descriptor)

    def map(self, descriptor, size):
        assert size % 4096 == 0
        mapped = mmap.mmap(descriptor, size)
        self.buffers[descriptor] = int(np.frombuffer(mapped, np.uint8).ctypes.data)
        return mapped

    def ioctl(self, descriptor, request, argument):
        requests = self._requests(descriptor)
        if int(request) not in requests:
            self._refuse(errno.ENOTTY)
        name, layout, names = requests[int(request)]
        size = int(request) >> 16 & 0x3FFF
        assert ctypes.sizeof(argument) == size == struct.calcsize(layout)
        self.log.append(name)
        fields = SimpleNamespace(
            **dict(zip(names.split(), struct.unpack(layout, bytes(argument)), strict=True))
        )
        result = getattr(self, name)(descriptor, fields) or 0
        ctypes.memmove(ctypes.addressof(argument), struct.pack(layout, *vars(fields).values()), size)
        return result

    def assert_hvx_was_locked(self):
        """Whenever the last object used it."""
        assert self.image is None or self.image.unlocked == 0, "HVX was used without its lock"

    def _requests(self, descriptor):
        """What the file knows."""
        return REQUESTS

    def _refuse(self, number):
        raise OSError(number, os.strerror(number))

    # -- buffers ----------------------------------------------------------------------------------------

    def _dma_buffer(self, size):
        if not self.buffers_left:
            self._refuse(errno.ENOMEM)
        self.buffers_left -= 1
        descriptor = os.memfd_create("dma")
        os.truncate(descriptor, size)
        self.buffers[descriptor] = 0
        return descriptor

    def alloc_dma_buf(self, node, argument):
        argument.fd = self._dma_buffer(argument.size)

    def dma_heap_alloc(self, heap, argument):
        assert self.files[heap] == "/dev/dma_heap/system"
        argument.fd = self._dma_buffer(argument.len)

    def dma_buf_sync(self, descriptor, argument):
        assert descriptor in self.buffers
        if not self.has_heap:
            self._refuse(errno.ENOTTY)

    # -- processes --------------------------------------------------------------------------------------

    def init_create(self, node, argument):
        unsigned = bool(argument.attrs & 8)
        path = self.files[node]
        if not path.endswith("-secure") and not (unsigned and self.unsigned_support and "cdsp" in path):
            self._refuse(errno.ECONNREFUSED)
        if argument.filelen > 2 << 20:
            self._refuse(errno.EINVAL)
        if argument.filefd not in self.buffers or self.buffers[argument.filefd] != argument.file:
            self._refuse(errno.EBADF)
        self.maps[node] = {argument.filefd: os.fstat(argument.filefd).st_ino}
        shell = ctypes.string_at(argument.file, argument.filelen)
        assert shell[:4] == b"\x7fELF"
        self.shells.append((unsigned, shell))
        if self.create_result:
            return self.create_result
        self.processes[node] = Process(self)
        return 0

    def get_dsp_info(self, node, argument):
        value = {1: int(self.unsigned_support), 6: 0x8465}.get(argument.attribute_id, 0)
        if self.old_capabilities:
            argument.domain = value
        else:
            argument.capability = value

    def mmap(self, node, argument):
        if argument.flags != ADD_PAGES or argument.vaddrin:
            self._refuse(errno.EINVAL)
        argument.vaddrout = 0xE000_0000 + len(self.heap) * 0x10_0000
        self.heap[argument.vaddrout] = argument.size

    def munmap(self, node, argument):
        if self.heap.pop(argument.vaddrout, None) != argument.size:
            self._refuse(errno.EINVAL)

    # -- calls ------------------------------------------------------------------------------------------

    def invoke(self, node, argument):
        scalars = argument.sc
        n_in, n_out = scalars >> 16 & 255, scalars >> 8 & 255
        raw = ctypes.string_at(argument.args, 24 * (n_in + n_out)) if n_in + n_out else b""
        buffers = list(struct.iter_unpack("<QQiI", raw))
        for address, length, descriptor, _ in buffers:
            if descriptor in (0, -1):
                continue  # copied
            if descriptor not in self.buffers or not length:
                self._refuse(errno.EINVAL)
            assert self.buffers[descriptor] <= address  # mapped
            inode = os.fstat(descriptor).st_ino
            assert self.maps.get(node, {}).get(descriptor, inode) == inode, "the driver maps another buffer"
        return self._carry(node, argument.handle, scalars, [buffer[:2] for buffer in buffers])

    def _carry(self, node, handle, scalars, buffers):
        """A call to the DSP, of (address, bytes) for each buffer."""
        n_in = scalars >> 16 & 255
        process = self.processes.get(node)
        if handle == 1:
            self._refuse(errno.EPERM)
        if process is None or process.ended:
            return AEE_EBADSTATE
        inputs = [ctypes.string_at(address, length) for address, length in buffers[:n_in]]
        sizes = [length for _, length in buffers[n_in:]]
        result, outputs = self._dispatch(process, handle, scalars, inputs, sizes)
        if result == 0:
            for (address, length), data in zip(buffers[n_in:], outputs, strict=True):
                assert len(data) == length
                ctypes.memmove(address, data, length)
        return result

    def _dispatch(self, process, handle, scalars, inputs, sizes):
        method = scalars >> 24
        if handle == 3:
            return self._listener(process, method, inputs, sizes)
        if handle == 4 and scalars == 2 << 24:
            self.closing()
            if not self.exits:
                return 0, []
            process.end()
            return AEE_EBADSTATE, []
        if handle == 0 and method == 0:
            length, room = struct.unpack("<II", inputs[0])
            assert (len(inputs[1]), sizes) == (length, [8, room])
            opened, error, text = process.open(inputs[1].rstrip(b"\0").decode())
            return 0, [struct.pack("<Ii", opened, error), text.encode()[:room].ljust(room, b"\0")]
        if handle == 0 and method == 1:
            self.closing()
            closed, room = struct.unpack("<II", inputs[0])
            process.close(closed)
            return 0, [bytes(4), bytes(room)]
        if handle not in process.modules:
            return AEE_ENOSUCHMOD, []
        if self.invoke_error:
            self._refuse(self.invoke_error)
        if method == 6 and len(inputs) == 2 and inputs[0] == struct.pack("<I", len(inputs[1])):
            self.schedule = inputs[1]
        address, own = process.modules[handle]
        result, outputs, _ = process.call(address, own, scalars, inputs, sizes)
        return result, outputs

    def _listener(self, process, method, inputs, sizes):
        if method == 3:
            process.listening = True
            return 0, []
        if method == 5:
            context, offset, room = struct.unpack("<III", inputs[0])
            assert context == process.request[0]
            assert sizes == [4, room]
            assert offset + room == len(process.request[3])
            return 0, [struct.pack("<I", len(process.request[3])), process.request[3][offset:]]
        assert method == 4
        _, result, length, room = struct.unpack("<IIII", inputs[0])
        assert len(inputs[1]) == length
        assert sizes == [16, room]
        if process.waiting:
            process.waiting = False
            process.answers.put((result, inputs[1]))
        request = process.requests.get()
        if request is None:
            return AEE_EBADSTATE, []
        process.waiting = True
        process.request = context, handle, scalars, packed = request
        numbers = struct.pack("<IIII", context, handle, scalars, len(packed))
        return 0, [numbers, packed[:room].ljust(room, b"\0")]
