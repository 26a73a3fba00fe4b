"""pyopencl with some of it replaced: for what no healthy driver does. Errors are pyopencl's own."""

import pytest

from dsp.adreno import opencl
from sdk.errors import EnvironmentMissing


def require_opencl():
    """The emulated device; the module is skipped where there is none."""
    try:
        return opencl.choose(None)
    except EnvironmentMissing as problem:
        pytest.skip(str(problem), allow_module_level=True)


class Substitute:
    """A module that is pyopencl but for what it is given."""

    def __init__(self, real, **replaced):
        self._real = real
        self.__dict__ |= replaced

    def __getattr__(self, name):
        return getattr(self._real, name)


class Altered:
    """Any object, pyopencl's Device or Platform, some of whose attributes say something else."""

    def __init__(self, real, **altered):
        self._real = real
        self.__dict__ |= altered

    def __getattr__(self, name):
        return getattr(self._real, name)


def error(cl, code, routine="clSomething", kind="RuntimeError"):
    """An exception as pyopencl raises it."""
    return getattr(cl, kind)(cl._cl._ErrorRecord(msg="", code=code, routine=routine))
