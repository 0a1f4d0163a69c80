"""What becomes of loops, threads and processes that fail, hang or are frozen."""
