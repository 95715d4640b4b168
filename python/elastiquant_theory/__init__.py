"""Draws what `elastiquant theory` computed: variance against bits, families of levels."""
