"""Long runs open at once: what the window knows of a whole run is kept in the app's data, made in the background."""
