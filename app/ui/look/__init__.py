"""How things look: theme and style sheet, fonts, motion, and what an audience does not see."""
