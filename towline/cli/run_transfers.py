"""`--verify-transfers`: what it costs to compare inputs and outputs with what is on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sdk.session import Session


def cost(session: Session) -> dict[str, Any] | None:
    """Bytes and seconds of an inference, measured now; None if nothing is compared."""
    from sdk.target import ComparesTransfers

    device = session.on_device
    found = device.verification() if isinstance(device, ComparesTransfers) else None
    if found is None:
        return None
    return {
        "inputs": found.inputs,
        "outputs": found.outputs,
        "seconds": found.seconds,
        "share": found.seconds / found.of,
    }


def line(document: dict[str, Any]) -> str:
    """`cost`'s document as a sentence."""
    return (
        f"transfers verified: {document['inputs']:,} bytes of inputs and {document['outputs']:,} of outputs; "
        f"that takes {document['seconds'] * 1e6:.1f} us, {document['share']:.1%} of the card's time for an "
        "inference; frames do not overlap"
    )
