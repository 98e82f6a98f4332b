"""The layout of the kernels' results: the batch table, the spans of records and headers, the totals.

Laws: a batch is `TABLE_WIDTH` int64 in the table, a record `SPAN_WIDTH` int32 in its spans, a header
`HEADER_WIDTH` int32 in its own; every position is a byte in the region that holds the records. A length of -1 is
null. The numbers are plain module constants because compiled kernels import them into C variables.
"""

from __future__ import annotations

from typing import Final

#: Limits of numbers; by name, because a compiled kernel makes objects of numbers this large that stand in its text.
INT32_LIMIT: Final = 1 << 31
UINT32_LIMIT: Final = 1 << 32
INT64_MAX: Final = (1 << 63) - 1
#: The latest and, negated, the earliest time in milliseconds that is a time in microseconds, too.
LAST_MICROSECOND_MS: Final = INT64_MAX // 1000

#: One row of the batch table. `POSITION` and `END` are bytes of the fetched buffer, `BODY` and `BODY_END` bytes of
#: the region that the records are read from: the same buffer, or what the batch decompressed to.
TABLE_WIDTH: Final = 13
POSITION: Final = 0
END: Final = 1
BODY: Final = 2
BODY_END: Final = 3
BASE_OFFSET: Final = 4
LAST_OFFSET: Final = 5
RECORD_COUNT: Final = 6
ATTRIBUTES: Final = 7
BASE_TIMESTAMP: Final = 8
MAX_TIMESTAMP: Final = 9
LEADER_EPOCH: Final = 10
CRC: Final = 11
#: Written when the records were scanned: the row behind the batch's last one.
ROW_STOP: Final = 12

#: The spans of one record.
SPAN_WIDTH: Final = 6
KEY: Final = 0
KEY_LENGTH: Final = 1
VALUE: Final = 2
VALUE_LENGTH: Final = 3
HEADERS: Final = 4
HEADER_COUNT: Final = 5

#: The spans of one header.
HEADER_WIDTH: Final = 4
HEADER_KEY: Final = 0
HEADER_KEY_LENGTH: Final = 1
HEADER_VALUE: Final = 2
HEADER_VALUE_LENGTH: Final = 3
