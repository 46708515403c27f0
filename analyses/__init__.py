"""One module per question; each returns a result that tabulates and plots itself."""
