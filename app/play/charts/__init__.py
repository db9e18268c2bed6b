"""The live charts: throughput, waits, what runs, what is used."""
