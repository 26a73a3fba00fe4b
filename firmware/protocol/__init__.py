"""The protocol between a host and the bridge's firmware: vendor requests, command lists and their codec.

The protocol is the firmware's, not the chip's. The host's driver, our firmware's header, the conformance
tests and the documentation read it from here; docs/protocol.md is made from it and the prose in protocol.md.
"""
