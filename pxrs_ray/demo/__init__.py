"""`pxrs demo`: Spark feeds payments, consumers keep balances, and one consumer is killed."""
