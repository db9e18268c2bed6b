"""The timeline: slots over time, what each step computed, and what held it up."""
