"""Measures time and CPU of whole runs beside tshark. No command and no test imports it."""
