"""The registry in a SQL database: one store, three dialects (SQLite, PostgreSQL, Oracle)."""
