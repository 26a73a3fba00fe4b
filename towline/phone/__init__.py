"""A network on a phone that has no Python: a static program is sent there, and runs it.

build  the program, of runner/*.c, for arm64
job    the plan that it is given, and the result that it writes
link   adb and ssh: commands on the phone, files to it and from it
refusals what its DSP refused, in words
device the phone as a device that a `Session` runs networks on

Not yet run on a phone.
"""
