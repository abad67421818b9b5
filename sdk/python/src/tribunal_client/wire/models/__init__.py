"""Contains all the data models used in inputs/outputs"""

from .abort_reason import AbortReason
from .ack import Ack
from .attach_request import AttachRequest
from .batch_commit_request import BatchCommitRequest
from .batch_commit_response import BatchCommitResponse
from .batch_txn import BatchTxn
from .batch_txn_snapshots import BatchTxnSnapshots
from .begin_request import BeginRequest
from .begin_response import BeginResponse
from .begin_response_lsn import BeginResponseLsn
from .begin_response_snapshots import BeginResponseSnapshots
from .commit_request import CommitRequest
from .commit_request_snapshots import CommitRequestSnapshots
from .conflict import Conflict
from .conflict_op import ConflictOp
from .conflict_stage import ConflictStage
from .consistency import Consistency
from .consumer_info import ConsumerInfo
from .consumer_list import ConsumerList
from .consumer_offset import ConsumerOffset
from .import_result import ImportResult
from .isolation_level import IsolationLevel
from .log_page import LogPage
from .log_record import LogRecord
from .log_write import LogWrite
from .offset_request import OffsetRequest
from .problem import Problem
from .problem_error import ProblemError
from .push_info import PushInfo
from .push_kind import PushKind
from .push_request import PushRequest
from .range_ import Range
from .range_read import RangeRead
from .read import Read
from .read_range import ReadRange
from .read_request import ReadRequest
from .read_response import ReadResponse
from .read_row import ReadRow
from .row import Row
from .row_page import RowPage
from .row_read import RowRead
from .skip_list import SkipList
from .skip_request import SkipRequest
from .skipped_record import SkippedRecord
from .snapshot import Snapshot
from .storage_durability import StorageDurability
from .store_declaration import StoreDeclaration
from .store_declaration_adaptor_config import StoreDeclarationAdaptorConfig
from .store_existence import StoreExistence
from .store_info import StoreInfo
from .store_info_adaptor_config import StoreInfoAdaptorConfig
from .store_list import StoreList
from .store_push import StorePush
from .store_push_state import StorePushState
from .txn_outcome import TxnOutcome
from .txn_outcome_lsn import TxnOutcomeLsn
from .txn_state import TxnState
from .webhook_state import WebhookState
from .write import Write
from .write_op import WriteOp

__all__ = (
    "AbortReason",
    "Ack",
    "AttachRequest",
    "BatchCommitRequest",
    "BatchCommitResponse",
    "BatchTxn",
    "BatchTxnSnapshots",
    "BeginRequest",
    "BeginResponse",
    "BeginResponseLsn",
    "BeginResponseSnapshots",
    "CommitRequest",
    "CommitRequestSnapshots",
    "Conflict",
    "ConflictOp",
    "ConflictStage",
    "Consistency",
    "ConsumerInfo",
    "ConsumerList",
    "ConsumerOffset",
    "ImportResult",
    "IsolationLevel",
    "LogPage",
    "LogRecord",
    "LogWrite",
    "OffsetRequest",
    "Problem",
    "ProblemError",
    "PushInfo",
    "PushKind",
    "PushRequest",
    "Range",
    "RangeRead",
    "Read",
    "ReadRange",
    "ReadRequest",
    "ReadResponse",
    "ReadRow",
    "Row",
    "RowPage",
    "RowRead",
    "SkipList",
    "SkippedRecord",
    "SkipRequest",
    "Snapshot",
    "StorageDurability",
    "StoreDeclaration",
    "StoreDeclarationAdaptorConfig",
    "StoreExistence",
    "StoreInfo",
    "StoreInfoAdaptorConfig",
    "StoreList",
    "StorePush",
    "StorePushState",
    "TxnOutcome",
    "TxnOutcomeLsn",
    "TxnState",
    "WebhookState",
    "Write",
    "WriteOp",
)
