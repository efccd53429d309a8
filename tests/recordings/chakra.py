"""Recordings of ."""

from cases import Case, Recording, Refuses, Says

CASES = []
