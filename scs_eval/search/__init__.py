"""Which exponent p, and which learning rate, train best? The trials of a search, in tables and figures."""

from scs_eval.search.result import SearchResult as SearchResult
