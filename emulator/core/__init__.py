"""What every block builds on: virtual time and the bus. Nothing here knows a chip or a CPU."""
