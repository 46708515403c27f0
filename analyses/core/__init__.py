"""The ground floor of every analysis: results, inference, batches, parallel work, caching, statistics."""
