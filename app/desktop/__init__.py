"""What a program owes the desktop it lives on: settings, keys, a welcome, its log and its crashes, its entry."""
