"""Makes the HTML report from rows that `udfs.report` collected. No Spark here."""
