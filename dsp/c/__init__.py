"""The C target: portable C11 for any processor, and the export of a network as a folder of C."""
