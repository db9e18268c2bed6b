"""The Runs page: every run and race that was kept, found again, compared, put in order."""
