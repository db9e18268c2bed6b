"""Submissions on their way in: prompts encoded within a time limit, checked, and made requests."""

from engine.core.intake.intake import Intake, Prepared
