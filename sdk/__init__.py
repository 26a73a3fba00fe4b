"""The network side of Towline: graph, importers, quantisation, reference semantics, artefact, targets, CLI."""
