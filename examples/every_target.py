"""One network on every installed target: the same answer, bit for bit, and what it costs on each.

    python examples/every_target.py

A target whose tool or device is missing is named with what to install, and skipped.
"""

import tempfile
from pathlib import Path

import towline

model, work = towline.digits(), Path(tempfile.mkdtemp())
towline.quantize(model.model, model.calibration(), work / "q.onnx", preprocessing=model.preprocessing)
(picture,) = model.write_pictures(work, 1)

for target in towline.targets():
    try:
        network = towline.compile(work / "q.onnx", target=target, output=work / f"{target}.tow")
        with towline.Session(network) as session:
            best = session.classify(picture, top=1)[0]
            counters = session.profile().total
    except towline.Error as error:
        print(f"{target:12}  skipped: {error} ({error.hint})")
        continue
    cost = ", ".join(f"{name} {value:,}" for name, value in counters.items() if isinstance(value, int))
    print(f"{target:12}  {picture.name} is {best.index}; {cost}")
