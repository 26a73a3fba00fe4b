"""A pytest plugin for an installation of the core alone: what needs more than numpy and pyusb is skipped.

By rule, not by list: a test that ends because a package or a tool is missing needs that package or tool. The
emulator is an extra, so that it is missing here even where its files lie. A test that ends for lack of numpy,
pyusb or a part of ours has failed.
"""

import re
import sys

import pytest

from sdk.errors import EnvironmentMissing

CORE = {"numpy", "usb", "sdk", "dsp", "usbgpu", "firmware", "towline", "tests"}
MISSING = re.compile(r"ModuleNotFoundError: No module named '(\w+)|(?:EnvironmentMissing|ToolMissing): (.*)")

NOT_HERE = {
    "test_import_contracts": "import-linter is a developer's tool",
    "test_doctor_requires_the_extra_only_of_an_install_that_compiles": "it wants the emulator's packages",
    "test_a_bridge_that_may_not_be_opened": "it wants the emulated card",
    "test_failure_by_signal_is_named": "qemu-user has a word of its own on signals",
    "test_tools_die_with_us": "qemu-user stands between a process and its signals",
}
"""Tests that ask for more in a way that the rule does not see."""


class NoEmulator:
    """An importer to which the package of the emulator is not there."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "emulator":
            raise ModuleNotFoundError("No module named 'emulator'", name="emulator")


def pytest_configure():
    sys.meta_path.insert(0, NoEmulator())


def pytest_collection_modifyitems(items):
    for item in items:
        if reason := NOT_HERE.get(getattr(item, "originalname", item.name)):
            item.add_marker(pytest.mark.skip(reason=reason))


def missing(error):
    """What is missing, if that is why a test ended; else None."""
    while error is not None:
        if isinstance(error, EnvironmentMissing):
            return error.message
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] not in CORE:
            return str(error)
        error = error.__cause__ or error.__context__
    return None


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed and (reason := missing(call.excinfo.value)) is not None:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), 0, f"Skipped: {reason}")


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    outcome = yield
    report = outcome.get_result()
    if report.failed and (found := MISSING.search(str(report.longrepr))) and found[1] not in CORE:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {found[0]}")
