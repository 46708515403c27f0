"""The papers' tables, as data."""
