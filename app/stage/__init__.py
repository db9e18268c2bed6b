"""On stage: scenes that are told and shown one after another in the window, each a real run."""
