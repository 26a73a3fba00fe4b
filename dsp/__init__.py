"""Targets for the processors inside a phone: the Hexagon DSP, and (planned) the Adreno GPU."""
