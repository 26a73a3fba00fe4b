"""Targets for the processors of a phone (the Hexagon DSP, the Adreno GPU), and portable C for any other."""
