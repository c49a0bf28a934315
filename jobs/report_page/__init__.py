"""Makes the HTML report from rows that `jobs.transforms.report` chose. No Spark here."""
