"""What the engine tells its trace: the records of steps and prompts, in order."""
