"""How Java and Spark run where a virtual machine lives for seconds."""

from __future__ import annotations

from typing import Final

#: It starts in less than half the time if it neither optimises for hours nor looks through classes that are known.
SHORT_LIVED: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
#: What a session is set to whose queries have a few rows: to compile a query takes longer than these.
FEW_ROWS: Final = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}
