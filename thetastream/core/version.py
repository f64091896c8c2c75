"""The version of the package. A zip of its folder has no metadata of an installation that would tell it."""

VERSION = "0.1.0"
