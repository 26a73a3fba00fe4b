"""The host's side of a GPU behind an ASM2464PD bridge: USB transfers (`transport`), the bridge as a PCIe bus
(`bridge`, `pcie`), the driver of AMD cards (`amd`) and the compiler's target on it (`target`).

`flash` writes the bridge's firmware, and `conform` tests it.
"""
