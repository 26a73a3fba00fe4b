"""linuxpy's video module as far as a camera is read through it: a seam, not a kernel.

What the real one does with a driver has not been run here: there is no camera and no v4l2loopback.
"""

import enum
from types import SimpleNamespace

BufferFlag = enum.Flag("BufferFlag", ["MAPPED", "ERROR"])


class V4L2Error(Exception):
    pass


class Camera:
    """A camera to be opened as linuxpy's Device; give it to `sys.modules` by `installed`.

    Args:
        formats: names of what it offers.
        size: width and height that it has, whatever is asked for.
        stride: bytes per line of NV12; YUYV has twice the width.
        frames: bytes of each, an exception that is raised in its place, or None for silence.
        opening: what opening it raises.
        setting: what setting a format raises.
    """

    def __init__(self, formats=("NV12",), size=(8, 4), stride=8, frames=(), opening=None, setting=None):
        self.formats, self.size, self.stride = formats, size, stride
        self.frames, self.opening, self.setting = list(frames), opening, setting
        self.asked, self.opened, self.streaming = None, 0, False

    def installed(self, monkeypatch):
        module = SimpleNamespace(
            V4L2Error=V4L2Error, BufferFlag=BufferFlag, Device=self._device, VideoCapture=_Capture
        )
        monkeypatch.setitem(__import__("sys").modules, "linuxpy", SimpleNamespace())
        monkeypatch.setitem(__import__("sys").modules, "linuxpy.video", SimpleNamespace())
        monkeypatch.setitem(__import__("sys").modules, "linuxpy.video.device", module)
        return self

    def _device(self, path):
        self.path = path
        return self

    def open(self):
        if self.opening is not None:
            raise self.opening
        self.opened += 1

    def close(self):
        self.opened -= 1


class _Capture:
    def __init__(self, camera, size):
        assert size >= 2
        self.camera = camera
        self.buffer = SimpleNamespace(frame_reader=self)

    def formats(self):
        return [SimpleNamespace(pixel_format=SimpleNamespace(name=name)) for name in self.camera.formats]

    def set_format(self, width, height, pixel_format):
        if self.camera.setting is not None:
            raise self.camera.setting
        self.camera.asked = width, height, pixel_format

    def get_format(self):
        name, (width, height) = self.camera.asked[2], self.camera.size
        stride = 2 * width if name == "YUYV" else self.camera.stride
        return SimpleNamespace(
            width=width, height=height, pixel_format=SimpleNamespace(name=name), bytes_per_line=stride
        )

    def open(self):
        self.camera.streaming = True

    def close(self):
        self.camera.streaming = False

    def read(self, timeout):
        assert self.camera.streaming
        assert timeout > 0
        found = self.camera.frames.pop(0)
        if isinstance(found, Exception):
            raise found
        if found is None:
            return None
        data, flags = found if isinstance(found, tuple) else (found, BufferFlag.MAPPED)
        return SimpleNamespace(data=data, flags=flags)
