"""What comes before the first step: memory shared out, runners warmed up, the machine measured."""
