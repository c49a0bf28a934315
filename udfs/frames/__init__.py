"""What rooms share: a derivation of frames from frames, an engine that runs it, columns, rows with names."""
