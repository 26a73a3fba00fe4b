"""What a device and the work on it report: `metrics` has the figures, the rest publishes them.

One process at a time owns a device, so another one that wants to see its figures reads what the owner
publishes: JSON lines on a socket in the user's runtime directory. `places` has the directory and who may use
it, `publisher` the owner's side, `reader` the other one. Only Unix has such sockets.
"""
