"""Record columns as Arrow: the only package that imports pyarrow.

Laws: no Python object is made per record; the columns' buffers are shared, not copied.
"""

from __future__ import annotations

from kohort.columnar.arrow import DEFAULT_COLUMNS, SCHEMA, schema_of, to_record_batch

__all__ = ["DEFAULT_COLUMNS", "SCHEMA", "schema_of", "to_record_batch"]
