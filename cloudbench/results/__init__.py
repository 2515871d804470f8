"""What the logs amount to: a run's throughput, and the rows of a summary. Pure."""
