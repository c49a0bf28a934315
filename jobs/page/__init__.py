"""The page of the report: its parts from rows, its text from a template. It knows no Spark."""
