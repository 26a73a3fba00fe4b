"""Floats, and integers and truth values beside them: what is not quantised, and what leads there and back."""
