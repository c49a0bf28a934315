"""Chooses the bounded rows that the report and the summary show, and balances the books."""
