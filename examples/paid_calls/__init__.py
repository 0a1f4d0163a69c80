"""Pipelines of calls that cost money: limits, services that ask for time, answers to wait for."""
