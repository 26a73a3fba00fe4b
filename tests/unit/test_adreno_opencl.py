"""Finding OpenCL devices, and reporting why there is none. Devices that no machine has are substituted."""

import os
import subprocess
import sys

import pytest

from dsp.adreno import opencl
from sdk import extras
from sdk.errors import DeviceFailed, DeviceMissing, EnvironmentMissing, Unsupported, UsageError
from tests.opencl_substitute import Altered, Substitute, error, require_opencl

EMULATED = require_opencl()


@pytest.fixture
def substitute(monkeypatch):
    """Substitute a platform of given devices for the existing ones."""
    cl = opencl._pyopencl()

    def put(*devices, **replaced):
        platform = Altered(EMULATED.handle.platform, get_devices=lambda: list(devices))
        module = Substitute(cl, get_platforms=lambda: [platform], **replaced)
        monkeypatch.setattr(opencl, "_pyopencl", lambda: module)
        return module

    return put


def gpu(cl, **altered):
    platform = Altered(EMULATED.handle.platform, name="QUALCOMM Snapdragon(TM)")
    return Altered(
        EMULATED.handle, type=cl.device_type.GPU, name="QUALCOMM Adreno(TM)", platform=platform, **altered
    )


@pytest.fixture(autouse=True)
def contexts(monkeypatch):
    """A context cannot be made of an altered device; its formats are those of the emulated one."""
    monkeypatch.setattr(
        opencl,
        "_formats",
        lambda cl, handle, flags, real=opencl._formats: real(cl, EMULATED.handle, flags),
    )
    monkeypatch.setattr(opencl, "_buffer_texels", lambda cl, handle: EMULATED.buffer_texels)


def test_the_emulated_device_is_a_cpu_with_images():
    assert EMULATED.emulated
    assert EMULATED.images
    assert min(EMULATED.image_limits) >= 2048
    assert EMULATED.alignment >= 1
    assert "a CPU" in EMULATED.description


def test_devices_are_numbered_as_they_are_opened():
    rows = dict(opencl.devices())
    assert rows["emulated"] == EMULATED.description
    assert opencl.choose("opencl:0").description == rows["opencl:0"]


def test_a_gpu_is_taken_before_a_cpu_and_never_for_the_emulated_device(substitute):
    cl = opencl._pyopencl()
    substitute(EMULATED.handle, gpu(cl, extensions="cl_khr_x cl_qcom_dot_product8"))
    assert opencl.choose("opencl").name == "QUALCOMM Adreno(TM)"
    assert opencl.choose("opencl:1").name == "QUALCOMM Adreno(TM)"
    assert opencl.choose("emulated").name == EMULATED.name
    assert [name for name, _ in opencl.devices()] == ["emulated", "opencl:0", "opencl:1"]
    assert "GPU), QUALCOMM" in opencl.devices()[2][1]
    assert opencl.devices()[2][1].endswith("cl_qcom_dot_product8")


def test_pocl_emulates_before_another_cpu(substitute):
    other = Altered(EMULATED.handle, platform=Altered(EMULATED.handle.platform, name="Intel(R) OpenCL"))
    substitute(other, Altered(EMULATED.handle, name="PoCL's"))
    assert opencl.choose(None).name == "PoCL's"
    substitute(other)
    assert opencl.choose(None).platform == "Intel(R) OpenCL"


def test_opencl_without_a_gpu_is_any_device():
    assert opencl.choose("opencl").emulated == all(one.emulated for one in opencl.find())


def test_without_a_cpu_the_error_names_the_available_gpu(substitute):
    substitute(gpu(opencl._pyopencl()))
    with pytest.raises(DeviceMissing, match="CPU") as caught:
        opencl.choose(None)
    assert "--device opencl" in caught.value.hint
    assert [name for name, _ in opencl.devices()] == ["opencl:0"]


@pytest.mark.parametrize(
    "name", ["usb", "opencl:", "opencl:x", "opencl:-1", "opencl:0:0", "emulated:0", "PoCL"]
)
def test_invalid_device_strings_are_refused(name):
    with pytest.raises(UsageError) as caught:
        opencl.choose(name)
    assert repr(name) in caught.value.message


def test_a_device_number_out_of_range():
    count = len(opencl.find())
    with pytest.raises(DeviceMissing, match=f"no OpenCL device {count}") as caught:
        opencl.choose(f"opencl:{count}")
    assert "opencl:0" in caught.value.hint


def test_formats_of_activations_and_of_both_weights_are_needed(monkeypatch):
    monkeypatch.undo()  # of the formats
    cl = opencl._pyopencl()
    order, types = cl.channel_order.RGBA, cl.channel_type
    activations = cl.ImageFormat(order, types.UNSIGNED_INT8)
    weights = [cl.ImageFormat(order, types.SIGNED_INT8), cl.ImageFormat(order, types.SIGNED_INT16)]

    def answers(written, read):
        lists = {cl.mem_flags.READ_WRITE: written, cl.mem_flags.READ_ONLY: read}
        module = Substitute(cl, get_supported_image_formats=lambda context, flags, kind: lists[flags])
        return opencl._has_formats(module, EMULATED.handle)

    assert answers([activations], weights)
    assert not answers([], weights)
    assert not answers([activations], weights[:1])
    assert not answers([cl.ImageFormat(cl.channel_order.R, types.UNSIGNED_INT8)], weights)


def test_words_are_read_and_written(monkeypatch):
    monkeypatch.undo()  # of the formats
    cl = opencl._pyopencl()
    words = cl.ImageFormat(cl.channel_order.R, cl.channel_type.UNSIGNED_INT32)
    others = [cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNSIGNED_INT32)]
    for written, read, has in (([words], [words], True), (others, [words], False), ([words], others, False)):
        lists = {cl.mem_flags.READ_WRITE: written, cl.mem_flags.READ_ONLY: read}
        module = Substitute(
            cl, get_supported_image_formats=lambda context, flags, kind, lists=lists: lists[flags]
        )
        assert opencl._has_word_formats(module, EMULATED.handle) == has


def test_platforms_without_a_device(substitute):
    cl = opencl._pyopencl()

    def none():
        raise error(cl, -1, "clGetDeviceIDs")

    platform = Altered(EMULATED.handle.platform, get_devices=none)
    for platforms in ([platform], [Altered(platform, get_devices=list)]):
        module = substitute()
        module.get_platforms = lambda platforms=platforms: platforms
        with pytest.raises(DeviceMissing, match="no OpenCL platform has a device"):
            opencl.find()
        assert opencl.devices() == []


def test_other_errors_of_the_loader_are_reported(substitute):
    module = substitute()

    def broken():
        raise error(module, -6, "clGetPlatformIDs")

    module.get_platforms = broken
    with pytest.raises(EnvironmentMissing, match=r"no OpenCL platform: clGetPlatformIDs.*OUT_OF_HOST_MEMORY"):
        opencl.find()
    assert opencl.devices() == []


def test_only_devices_that_fail_are_left_out(substitute, caplog):
    module = substitute()

    def fail(*_):
        raise error(module, -6, "clGetDeviceIDs")

    def described(cl, handle, real=opencl._describe):
        return fail() if handle.name == "broken" else real(cl, handle)

    module.get_platforms = lambda: [
        Altered(EMULATED.handle.platform, name="Broken", get_devices=fail),
        Altered(
            EMULATED.handle.platform,
            get_devices=lambda: [Altered(EMULATED.handle, name="broken"), EMULATED.handle],
        ),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(opencl, "_describe", described)
        assert [one.name for one in opencl.find()] == [EMULATED.name]
    assert "Broken is left out: clGetDeviceIDs failed: OUT_OF_HOST_MEMORY" in caplog.text
    assert "broken is left out" in caplog.text


def in_a_process(**environment):
    """The error of `choose` in a new process: its class, message and hint."""
    script = """
from dsp.adreno import opencl
from sdk.errors import TowlineError
try:
    opencl.choose(None)
except TowlineError as problem:
    print(type(problem).__name__, problem.message, problem.hint, sep="\\n")
print(opencl.devices())
"""
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()


@pytest.mark.slow
def test_a_loader_without_a_platform():
    kind, message, hint, devices = in_a_process(OCL_ICD_VENDORS="/nowhere")
    assert (kind, message) == ("EnvironmentMissing", "there is no OpenCL platform")
    assert hint == "sudo apt-get install pocl-opencl-icd"
    assert devices == "[]"


def test_without_pyopencl(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(EnvironmentMissing, match="pyopencl") as caught:
        opencl.choose(None)
    assert caught.value.hint == "pip install 'towline[opencl]'"
    assert opencl.devices() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [{"POCL_DEVICES": "none"}, {"POCL_CACHE_DIR": "/proc/nowhere"}], ids=["none", "no cache"]
)
def test_a_pocl_without_devices(environment):
    kind, message, hint, devices = in_a_process(**environment)
    assert kind == "DeviceMissing"
    assert "no OpenCL platform has a device that works (Portable Computing Language" in message
    assert "POCL_DEVICES" in hint
    assert environment.get("POCL_CACHE_DIR", "") in hint
    assert devices == "[]"


def test_on_a_phone_the_hint_names_its_own_library(monkeypatch):
    monkeypatch.setattr(opencl.os.path, "exists", lambda path: path == "/system/vendor/lib64/libOpenCL.so")

    def missing(module, extra):
        raise EnvironmentMissing("pyopencl cannot be imported: libOpenCL.so.1: no such file", hint="x")

    monkeypatch.setattr(opencl, "require", missing)
    with pytest.raises(EnvironmentMissing) as caught:
        opencl._pyopencl()
    assert "LD_LIBRARY_PATH=/system/vendor/lib64:" in caught.value.hint


def test_pocl_caches_beside_us_unless_configured(monkeypatch, tmp_path):
    monkeypatch.setenv("TOWLINE_CACHE", str(tmp_path))
    monkeypatch.setenv("POCL_CACHE_DIR", "/somewhere")
    opencl._pyopencl()
    assert os.environ["POCL_CACHE_DIR"] == "/somewhere"
    monkeypatch.delenv("POCL_CACHE_DIR")
    opencl._pyopencl()
    assert os.environ["POCL_CACHE_DIR"] == str(tmp_path / "pocl")


@pytest.mark.parametrize("code", [-4, -5, -6, -61])
def test_errors_of_memory_name_the_sizes(code):
    cl = opencl._pyopencl()
    with (
        pytest.raises(Unsupported, match=r"takes 3\.0 MB") as caught,
        opencl.failing(EMULATED, "x", 3_000_000),
    ):
        raise error(cl, code)
    assert "in one piece" in caught.value.message


def test_any_other_error_is_the_device_s():
    cl = opencl._pyopencl()
    with pytest.raises(DeviceFailed, match="it could not: clSomething failed: INVALID_KERNEL_ARGS"):  # noqa: SIM117
        with opencl.failing(EMULATED, "it could not"):
            raise error(cl, -52)


class Event:
    def __init__(self, *statuses):
        self.statuses = list(statuses)

    def get_info(self, _):
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


def test_waiting_ends():
    opencl.wait(Event(3, 2, 1, 0), EMULATED, seconds=10)
    with pytest.raises(opencl.Hung, match=r"within 0\.01 s") as caught:
        opencl.wait(Event(1), EMULATED, seconds=0.01)
    assert "--device emulated" in caught.value.hint
    with pytest.raises(DeviceFailed, match="OUT_OF_RESOURCES"):
        opencl.wait(Event(1, -5), EMULATED, seconds=10)


@pytest.mark.slow
def test_the_package_is_imported_when_it_is_needed():
    assert opencl.require is extras.require
    script = "import sys, dsp.adreno.target; print('pyopencl' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
