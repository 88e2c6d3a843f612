"""Releases: what is published, its file, and inference from its rows alone."""

from dpstats.releases.release import Release, load

__all__ = ["Release", "load"]
