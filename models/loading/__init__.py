"""Networks from files, packages and factories."""
