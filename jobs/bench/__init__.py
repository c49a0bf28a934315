"""Measures time and CPU of whole runs beside tshark, and beside a day's work with it. No command imports it."""
