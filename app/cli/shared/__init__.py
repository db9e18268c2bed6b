"""What several commands share: options, lanes, progress, columns and the bill of memory."""
