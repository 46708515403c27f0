"""Attribution methods, and what is measured on their maps."""
