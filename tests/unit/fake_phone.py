"""The kernel of a phone for the program of `towline push`: `FakeKernel`, behind a socket (fake_system.c)."""

import contextlib
import ctypes
import socket
import struct
import threading

INVOKE, INIT_CREATE = 0xC010_5203, 0xC018_5205
CALL, CALL_ATTRS, INITS = 0xC010_5201, 0xC020_5207, (0xC028_5206, 0xC030_520A)
"""Of an Android vendor's driver."""
TABLES = {
    INVOKE: [("<QQiI", slice(4))],
    CALL: [("<QQ", slice(2))],
    CALL_ATTRS: [("<QQ", slice(2)), ("<i", slice(2, 3)), ("<I", slice(3, 4))],
}
"""Of a call: the layouts of the tables that it points to, and which of (address, bytes, file, attributes)."""


class KernelServer:
    """Answers system calls from another process until it is closed; a context manager."""

    def __init__(self, kernel, path):
        self.kernel = kernel
        self.maps = {}  # descriptor -> (address in the program, address here, mapping)
        self.failed = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.bind(str(path))
        self.socket.listen(8)
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.end()
        assert not self.failed, self.failed

    def end(self):
        """What a kernel does when a program ends."""
        self.maps.clear()
        for descriptor in [*self.kernel.files, *self.kernel.buffers]:
            with contextlib.suppress(OSError):
                self.kernel.close(descriptor)

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                line, _ = self.socket.accept()
                threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line):
        with line, contextlib.suppress(ConnectionError):
            try:
                (operation,) = struct.unpack("<I", _get(line, 4))
                (self._open, self._close, self._map, self._ioctl)[operation - 1](line)
            except ConnectionError:
                raise
            except Exception as failure:
                self.failed.append(failure)

    def _open(self, line):
        flags, length = struct.unpack("<iI", _get(line, 8))
        path = _get(line, length).decode()
        try:
            result = self.kernel.open(path, flags)
        except OSError as refusal:
            result = -refusal.errno
        line.sendall(struct.pack("<i", result))

    def _close(self, line):
        (descriptor,) = struct.unpack("<i", _get(line, 4))
        self.kernel.close(descriptor)
        line.sendall(bytes(4))

    def _map(self, line):
        descriptor, size = struct.unpack("<iQ", _get(line, 12))
        mapping = self.kernel.map(descriptor, size)
        socket.send_fds(line, [b"\0"], [descriptor])
        (there,) = struct.unpack("<Q", _get(line, 8))
        self.maps[descriptor] = (there, self.kernel.buffers[descriptor], mapping)
        line.sendall(b"\0")

    def _here(self, address, descriptor):
        there, here, _ = self.maps[descriptor]
        return here + address - there

    def _ioctl(self, line):
        descriptor, request = struct.unpack("<iQ", _get(line, 12))
        size = request >> 16 & 0x3FFF
        given = _get(line, size)
        kept, arguments, inputs = [], [], 0
        vendor = "adsprpc" in self.kernel.files.get(descriptor, "")
        if request in ((CALL, CALL_ATTRS) if vendor else (INVOKE,)):
            handle, scalars = struct.unpack_from("<II", given)
            inputs, outputs = scalars >> 16 & 255, scalars >> 8 & 255
            arguments = list(struct.iter_unpack("<QQiI", _get(line, 24 * (inputs + outputs))))
            rows = []
            for index, (where, length, file, attributes) in enumerate(arguments):
                memory = ctypes.create_string_buffer(max(length, 1))
                if file == -1 and index < inputs:
                    memory.raw = _get(line, length).ljust(max(length, 1), b"\0")
                kept.append(memory)
                here = ctypes.addressof(memory) if file == -1 else self._here(where, file)
                rows.append((here, length, file, attributes))
            given = struct.pack("<II", handle, scalars)
            for layout, columns in TABLES[request]:
                packed = b"".join(struct.pack(layout, *row[columns]) for row in rows)
                kept.append(ctypes.create_string_buffer(packed or b"\0"))
                given += struct.pack("<Q", ctypes.addressof(kept[-1]))
        if vendor and request in INITS:
            address, _, file = struct.unpack_from("<QIi", given, 8)
            given = given[:8] + struct.pack("<Q", self._here(address, file)) + given[16:]
        if request == INIT_CREATE and not vendor:
            length, file, attributes, signature, address = struct.unpack("<IiIIQ", given)
            given = struct.pack("<IiIIQ", length, file, attributes, signature, self._here(address, file))
        argument = (ctypes.c_char * size).from_buffer_copy(given)
        try:
            result = self.kernel.ioctl(descriptor, request, argument)
        except OSError as refusal:
            result = -refusal.errno
        answer = struct.pack("<q", result) + bytes(argument)
        if result == 0:
            for index, (_, length, file, _) in enumerate(arguments):
                if index >= inputs and file == -1:
                    answer += kept[index].raw[:length]
        line.sendall(answer)


def _get(line, size):
    data = b""
    while len(data) < size:
        part = line.recv(min(size - len(data), 1 << 20))
        if not part:
            raise ConnectionError
        data += part
    return data


def fake_adb(path, phone):
    """Write an adb whose phone is a directory, and whose processor is qemu-aarch64.

    What goes wrong with it is in the environment variable FAKE_ADB.
    """
    path.write_text(ADB.replace("PHONE", repr(str(phone))))
    path.chmod(0o755)
    phone.mkdir()


# A push runs it some twenty times: it imports what a command needs, and no site.
ADB = r"""#!/usr/bin/env -S python3 -IS
import os, sys
phone, fault, args = PHONE, os.environ.get("FAKE_ADB", ""), sys.argv[1:]
def say(text, status=1):
    print(text, file=sys.stderr)
    sys.exit(status)
if args == ["--version"]:
    print("Android Debug Bridge version 1.0.41")
    sys.exit()
if args == ["devices"]:
    rows = {"none": [], "two": ["A1\tdevice", "B2\tdevice"], "unauthorized": ["A1\tunauthorized"],
            "spaces": ["ZUG 5S\tdevice"],
            "many": ["A1\tdevice", "A1 (2)._adb-tls-connect._tcp\tunauthorized"],
            "offline": ["A1\toffline"], "permissions": ["A1\tno permissions (user in plugdev group); see"]}
    print("* daemon started successfully\nList of devices attached")
    print("\n".join(rows.get(fault, ["A1\tdevice"])))
    sys.exit()
assert args[:1] == ["-s"] and args[1] == ("ZUG 5S" if fault == "spaces" else "A1"), args
if os.path.exists(phone + ".gone"):
    say("error: device 'A1' not found")
verb, *rest = args[2:]
os.environ.pop("DSP_LIBRARY_PATH", None)  # a phone has its own environment
there = lambda text: text.replace("/data/local/tmp", phone)
def content(path):
    with open(path, "rb") as file:
        return bytearray(file.read())
def write(path, data):
    with open(path, "wb") as file:
        file.write(data)
if verb == "push":
    if fault == "full":
        say("adb: error: failed to copy: remote couldn't create file: No space left on device")
    data = content(rest[0])
    # Of a plan the domain of the DSP, which the target c does not read; of weights and inputs the end.
    plan = "plan-" in rest[0]
    if fault == ("damaged plan" if plan else "damage") and data[:4] != b"\x7fELF":
        data[168 if plan else -1] ^= 1
    write(there(rest[1]), data)
    print("1 file pushed")
elif verb == "pull":
    data = content(there(rest[0]))
    write(rest[1], data[:len(data) // 2] if fault == "cut" else data)
else:
    machine = {"arm32": "armv7l", "x86": "x86_64"}.get(fault, "aarch64")
    script = there(rest[0]).replace("uname -m", f"echo {machine}")
    script = script.replace("sha256sum ", "/nowhere/sha256sum " if fault == "no sha256sum" else "sha256sum ")
    if "./" not in script:
        os.execvp("sh", ["sh", "-c", script])
    import re, subprocess, threading, time
    qemu = {"crash": "sh -c 'kill -SEGV $$' ./", "noexec": "/dev/null ./"}.get(fault, "qemu-aarch64 ./")
    script, runs = re.subn(r"\./(?=[0-9a-f]{64} )", qemu, script)
    child = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE if runs else None)
    if runs and fault == "unplug":
        time.sleep(0.3)
        open(phone + ".gone", "w").close()
        child.stdin.close()
        child.wait(20)
        say("error: closed")
    if runs:
        threading.Thread(target=lambda: (sys.stdin.buffer.read(), child.stdin.close()), daemon=True).start()
    status = child.wait()
    sys.stdout.flush()
    os._exit(status & 255)
"""
