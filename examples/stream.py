"""A network on a stream of frames at 20 Hz, with a fallback on the processor: a program for a car.

python examples/stream.py                     # an emulated bridge with an emulated card
python examples/stream.py usb                 # the card behind the bridge that is plugged in
"""

import sys
import tempfile
from pathlib import Path

import towline

device = sys.argv[1] if len(sys.argv) > 1 else "emulated"
model, work = towline.digits(), Path(tempfile.mkdtemp())
towline.quantize(model.model, model.calibration(), work / "q.onnx", preprocessing=model.preprocessing)
network = towline.compile(work / "q.onnx", target="amd-gfx1100")
spare = towline.compile(work / "q.onnx", target="c")
pictures = model.write_pictures(work, 40)

with towline.Session(network, device) as session, towline.Session(spare, "emulated") as fallback:
    frames = [session.prepare(picture) for picture in pictures]
    stream = towline.Stream(session, rate=20, deadline=0.045, fallback=fallback)
    for result in stream.run(frames):
        digit = "-" if result.outputs is None else session.rank(result.outputs, 1)[0].index
        print(f"frame {result.frame}: {digit}, {result.status} {result.cause}")
    summary = stream.summary()

print(", ".join(f"{count} {status}" for status, count in summary.frames.items()), f"{summary.lost} lost")
for one in summary.recoveries:
    print(f"frame {one.frame}: {one.cause}; {one.kind}, first result {1000 * one.first:.1f} ms later")
