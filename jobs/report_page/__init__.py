"""Makes the HTML report from rows that `jobs.reporting` collected. No Spark here."""
