"""Releases: what is published, its file, and inference from its rows alone."""

from dpstats.releases.archive import load
from dpstats.releases.release import Release

__all__ = ["Release", "load"]
