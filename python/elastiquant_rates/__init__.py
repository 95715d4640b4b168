"""Draws what `elastiquant analyze --json` measured: error against bits, a line a codec."""
