"""Builds and reads Arrow and numpy buffers. Knows nothing of captures, TCP or MSMQ, and imports no other room."""
