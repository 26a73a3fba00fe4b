"""The bridge with no board on the desk, and a fault: the USB link drops while the host talks to the card.

    python examples/cable_pulled.py

First the board is a plain USB device, driven by pyusb: request E4 reads a register of the bridge. Then a card
is opened behind a second board, whose link drops for good.
"""

import usb.core

import towline

board = towline.emulated_board()
bridge = usb.core.find(backend=board.backend())
print(f"{bridge.product}: link state {bridge.ctrl_transfer(0xC0, 0xE4, 0x9100, 0, 1)[0]}")
board.close()

shaky = towline.emulated_board(gpu="gfx1100", faults=["link-drop@300ms"])
try:
    with towline.open_gpu(shaky) as gpu:
        buffer = gpu.allocate(1 << 20)
        while True:
            gpu.upload(buffer, bytes(1 << 20))
except towline.Error as error:
    print(f"{type(error).__name__}: {error}")
    print(f"what to do: {error.hint}")
