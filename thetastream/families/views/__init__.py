"""Groups over a join, which units fold into views."""
