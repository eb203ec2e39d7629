"""A run of a few seconds of every benchmark."""
