"""Draws what `elastiquant theory` computed: variance against bits, a line a family of levels."""
