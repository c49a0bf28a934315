"""Decodes packets into messages, acknowledgments, handshakes and session acks; what does not decode is quarantined."""
