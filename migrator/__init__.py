"""Brings a storage from an old layout to the present one, once, in downtime. Not built yet."""
