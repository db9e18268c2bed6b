"""What is kept of what happened: the log, errors that nobody expected, crashes. None of it leaves this machine."""
