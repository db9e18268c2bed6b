"""The language that the window speaks: `tr` and `trn` around its words, a catalog for each language. No Qt in here."""

from app.language.catalog import DOMAIN, FOLDER, digits, languages, shipped, speak, spoken, tr, trn
