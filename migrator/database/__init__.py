"""The database of the old saves: read, cut over in one transaction, proved, and rolled back.

PostgreSQL and SQLite through SQLAlchemy, which is needed only once something connects.
"""

from migrator.database.connection import Database, connect
from migrator.database.model import Assignment, Change, Conversation, Counts, Schema, SkillRow

__all__ = [
    "Assignment",
    "Change",
    "Conversation",
    "Counts",
    "Database",
    "Schema",
    "SkillRow",
    "connect",
]
