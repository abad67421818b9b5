"""Client of Tribunal, concurrency control as a service.

A transaction collects its reads and writes, then requests a verdict. See README.md.
"""

from .aio import AsyncClient, AsyncLogReader, AsyncStateImage, AsyncTransaction
from .attempts import Attempt
from .client import Client, LogReader, StateImage, Transaction
from .consumers import ConsumerInfo, ConsumerOffset, Offset
from .errors import (
    ClientMistake,
    Misuse,
    OutcomeUnknown,
    ServerMisbehaved,
    TransactionAborted,
    TribunalError,
    Unavailable,
)
from .ids import uuid7
from .keys import Key
from .log import LogRecord, LogWrite
from .reads import KeyRange, RangeReads, RangeRows, RowReads, Unchanged
from .retry import RetryPolicy
from .service import Ran
from .stores import StoreInfo, StorePush
from .transaction import PreparedCommit, Row, RowPage
from .verdict import Aborted, Committed, Conflict, DryRun, Undecided, Verdict, WouldAbort, WouldCommit
from .wire.models import (
    CommitRequest,
    Problem,
    ProblemError,
    StoreDeclaration,
)
from .wire.models.consistency import Consistency
from .wire.models.isolation_level import IsolationLevel
from .wire.models.write_op import WriteOp
from .wire.types import Unset

# The class is generated: absent fields of `StoreDeclaration` and other types would print an address.
Unset.__repr__ = lambda _: "UNSET"  # type: ignore[method-assign]
# Copies, even in other processes, must be the one instance: the wire layer compares by identity.
Unset.__reduce__ = lambda self: "UNSET"  # type: ignore[method-assign]  # noqa: ARG005

__all__ = [
    "Aborted",
    "AsyncClient",
    "AsyncLogReader",
    "AsyncStateImage",
    "AsyncTransaction",
    "Attempt",
    "Client",
    "ClientMistake",
    "CommitRequest",
    "Committed",
    "Conflict",
    "Consistency",
    "ConsumerInfo",
    "ConsumerOffset",
    "DryRun",
    "IsolationLevel",
    "Key",
    "KeyRange",
    "LogReader",
    "LogRecord",
    "LogWrite",
    "Misuse",
    "Offset",
    "OutcomeUnknown",
    "PreparedCommit",
    "Problem",
    "ProblemError",
    "Ran",
    "RangeReads",
    "RangeRows",
    "RetryPolicy",
    "Row",
    "RowPage",
    "RowReads",
    "ServerMisbehaved",
    "StateImage",
    "StoreDeclaration",
    "StoreInfo",
    "StorePush",
    "Transaction",
    "TransactionAborted",
    "TribunalError",
    "Unavailable",
    "Unchanged",
    "Undecided",
    "Verdict",
    "WouldAbort",
    "WouldCommit",
    "WriteOp",
    "uuid7",
]
