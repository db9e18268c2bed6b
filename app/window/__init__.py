"""The one window: its pages, actions, notices, dialogs, saved runs and pictures.

Its first import decides the language: modules that are imported after it may look words up as they are imported."""

from app.preferences import choose_language

choose_language()
