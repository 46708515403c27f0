"""Results to tables, figures, arrays and pages."""
