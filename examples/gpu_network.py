"""A network on the plugged GPU: what card it is, an inference, and what the card's sensors say after it.

python examples/gpu_network.py                # an emulated bridge with an emulated card
python examples/gpu_network.py usb            # the card behind the bridge that is plugged in
"""

import sys
import tempfile
from pathlib import Path

import towline

device = sys.argv[1] if len(sys.argv) > 1 else None
model, work = towline.digits(), Path(tempfile.mkdtemp())
towline.quantize(model.model, model.calibration(), work / "q.onnx", preprocessing=model.preprocessing)

with towline.open_gpu(device) as gpu:
    card = gpu.info()
print(f"{card.chip}: {card.compute_units} compute units, {card.vram >> 20:,} MiB, {card.link}")

network = towline.compile(work / "q.onnx", target=f"amd-{card.chip}", output=work / "digits.tow")
with towline.Session(network, device=device) as session:
    for picture in model.write_pictures(work, 3):
        print(picture.name, session.classify(picture, top=1)[0].index)

with towline.open_gpu(device) as gpu:
    metrics = gpu.metrics()
print(f"{metrics.power} W, {metrics.temperatures['EDGE']} degrees Celsius, {metrics.clocks['GFXCLK']} MHz")
