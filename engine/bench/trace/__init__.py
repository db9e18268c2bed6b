"""How an hour of records is kept and read, measured on a made-up run."""
