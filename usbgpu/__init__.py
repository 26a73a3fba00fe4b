"""The host's side of the USB bridge: so far its transport."""
