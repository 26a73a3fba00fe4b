"""Campaigns: damaged files, hostile clients, faults and kills against everything that takes them, in numbers.

A surface (surfaces.py) is a place where something from outside comes in. A case is drawn from the surface's
name, a seed and the case's number, so each can be repeated alone. The slow tests run a few seconds of each
surface; a long campaign is one command, and goes on where it was interrupted:

    python -m tests.campaigns                               list the surfaces
    python -m tests.campaigns artifact --cases 10000
    python -m tests.campaigns artifact --first 4711 --cases 1 --inline     one case, with its traceback
"""
