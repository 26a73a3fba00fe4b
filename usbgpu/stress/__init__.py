"""A test of cable, port, supply and card under load: transfers both ways, kernels beside them, all checked.

    tester = stress.on_card(gpu, stress.Plan(seconds=60), compile_kernels)
    report = tester.run()
    print(report.verdict, report.evidence)

`patterns` has the data, `memories` what they are written to, `record` counts what goes wrong, and `verdict`
names the part that is to blame. An error does not end the test: what failed is recovered, and it goes on.
"""

from usbgpu.stress.memories import BridgeMemory, CardMemory
from usbgpu.stress.patterns import PATTERNS
from usbgpu.stress.record import Incident, Recovery, WrongBytes
from usbgpu.stress.run import Plan, Report, run
from usbgpu.stress.verdict import Verdict

__all__ = [
    "PATTERNS",
    "BridgeMemory",
    "CardMemory",
    "Incident",
    "Plan",
    "Recovery",
    "Report",
    "Verdict",
    "WrongBytes",
    "run",
]
