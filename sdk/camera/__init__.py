"""Cameras: the format of their frames, a camera in front of a network, and where frames come from."""
