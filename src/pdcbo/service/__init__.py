"""The HTTP service around durable studies, and its live page; no numerics here."""
