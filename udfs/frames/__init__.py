"""Holds what rooms share: derivations of frames, the engine that runs them, columns, rows with names."""
