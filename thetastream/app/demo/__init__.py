"""``thetastream demo`` runs a year of New York departures through a join without any equality."""

from thetastream.app.demo.run import run

__all__ = ["run"]
