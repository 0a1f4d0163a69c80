"""What decides in a feed, without input or output: its frames, its ledger, the steps of a Spark
partition, and what becomes of calls that fail."""
