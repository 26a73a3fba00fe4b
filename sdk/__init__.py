"""The network side of Towline.

Graph, importers, quantisation, reference semantics, artefact, target registry, CLI.
"""
