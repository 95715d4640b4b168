"""Compares training runs of `elastiquant train`: tables, findings in words, plots."""
