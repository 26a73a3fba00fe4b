"""The protocol between a host and the bridge's firmware: vendor requests, command lists and their codec.

The chip knows nothing of it. The host's driver, our firmware's header, the conformance tests and the
documentation read it from here; docs/protocol.md is made from it and from the prose in protocol.md.
"""
