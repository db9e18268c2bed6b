"""The one window: its pages, actions, notices, dialogs, saved runs and pictures."""
