"""A run or a race as one HTML file, and a run as a notebook shows it. No torch."""

from engine.export.report.page import report, write_report
