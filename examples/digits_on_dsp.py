"""Quantise a digit classifier, compile it for the Hexagon DSP, run it, and check every layer.

    python examples/digits_on_dsp.py

The DSP is emulated by qemu-hexagon. On a phone: `towline.Session(network, device="fastrpc")`.
"""

import tempfile
from pathlib import Path

import towline

model, work = towline.digits(), Path(tempfile.mkdtemp())
quantized, network = work / "q.onnx", work / "digits.tow"

towline.quantize(model.model, model.calibration(), quantized, preprocessing=model.preprocessing)
towline.compile(quantized, target="hexagon-v65", output=network)

with towline.Session(network) as session:
    for picture in model.write_pictures(work, 5):
        best = session.classify(picture, top=1)[0]
        print(f"{picture.name}: {best.index} ({best.score:.3f})")
    found = towline.check(session.artifact, session, session.prepare(picture))

print(f"{found.elements:,} elements of every layer against the reference, {found.mismatches} differ")
