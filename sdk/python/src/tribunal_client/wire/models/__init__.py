"""Contains all the data models used in inputs/outputs"""

from .ack import Ack
from .attach_request import AttachRequest
from .batch_commit_request import BatchCommitRequest
from .batch_commit_response import BatchCommitResponse
from .batch_txn import BatchTxn
from .batch_txn_snapshots import BatchTxnSnapshots
from .begin_request import BeginRequest
from .begin_response import BeginResponse
from .begin_response_snapshots import BeginResponseSnapshots
from .checkpoint_request import CheckpointRequest
from .commit_request import CommitRequest
from .commit_request_snapshots import CommitRequestSnapshots
from .conflict import Conflict
from .consumer import Consumer
from .consumer_list import ConsumerList
from .consumer_position import ConsumerPosition
from .import_result import ImportResult
from .isolation_level import IsolationLevel
from .log_page import LogPage
from .log_record import LogRecord
from .log_write import LogWrite
from .problem import Problem
from .problem_error import ProblemError
from .push_info import PushInfo
from .push_kind import PushKind
from .push_request import PushRequest
from .range_ import Range
from .read import Read
from .row import Row
from .row_page import RowPage
from .skip_list import SkipList
from .skip_request import SkipRequest
from .skipped_record import SkippedRecord
from .snapshot import Snapshot
from .store_declaration import StoreDeclaration
from .store_declaration_adaptor_config import StoreDeclarationAdaptorConfig
from .store_existence import StoreExistence
from .store_info import StoreInfo
from .store_info_adaptor_config import StoreInfoAdaptorConfig
from .store_list import StoreList
from .store_push import StorePush
from .txn_outcome import TxnOutcome
from .txn_outcome_lsn import TxnOutcomeLsn
from .txn_state import TxnState
from .write import Write
from .write_op import WriteOp

__all__ = (
    "Ack",
    "AttachRequest",
    "BatchCommitRequest",
    "BatchCommitResponse",
    "BatchTxn",
    "BatchTxnSnapshots",
    "BeginRequest",
    "BeginResponse",
    "BeginResponseSnapshots",
    "CheckpointRequest",
    "CommitRequest",
    "CommitRequestSnapshots",
    "Conflict",
    "Consumer",
    "ConsumerList",
    "ConsumerPosition",
    "ImportResult",
    "IsolationLevel",
    "LogPage",
    "LogRecord",
    "LogWrite",
    "Problem",
    "ProblemError",
    "PushInfo",
    "PushKind",
    "PushRequest",
    "Range",
    "Read",
    "Row",
    "RowPage",
    "SkipList",
    "SkippedRecord",
    "SkipRequest",
    "Snapshot",
    "StoreDeclaration",
    "StoreDeclarationAdaptorConfig",
    "StoreExistence",
    "StoreInfo",
    "StoreInfoAdaptorConfig",
    "StoreList",
    "StorePush",
    "TxnOutcome",
    "TxnOutcomeLsn",
    "TxnState",
    "Write",
    "WriteOp",
)
