"""Contains all the data models used in inputs/outputs"""

from .abort_count import AbortCount
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
from .distribution import Distribution
from .health import Health
from .import_line import ImportLine
from .import_result import ImportResult
from .isolation_level import IsolationLevel
from .key_created import KeyCreated
from .key_info import KeyInfo
from .key_list import KeyList
from .key_request import KeyRequest
from .log_event import LogEvent
from .log_page import LogPage
from .log_record import LogRecord
from .log_write import LogWrite
from .plugin_activate import PluginActivate
from .plugin_activate_config import PluginActivateConfig
from .plugin_activation import PluginActivation
from .plugin_activation_config import PluginActivationConfig
from .plugin_check import PluginCheck
from .plugin_faults import PluginFaults
from .plugin_health import PluginHealth
from .plugin_info import PluginInfo
from .plugin_list import PluginList
from .plugin_miss import PluginMiss
from .plugin_rollback import PluginRollback
from .plugin_slot import PluginSlot
from .plugin_upload import PluginUpload
from .plugin_version import PluginVersion
from .problem import Problem
from .problem_error import ProblemError
from .push_body import PushBody
from .push_info import PushInfo
from .push_kind import PushKind
from .push_request import PushRequest
from .range_ import Range
from .read import Read
from .readiness import Readiness
from .row import Row
from .row_page import RowPage
from .skip_list import SkipList
from .skip_request import SkipRequest
from .skipped_record import SkippedRecord
from .snapshot import Snapshot
from .state_kind import StateKind
from .state_line import StateLine
from .stats import Stats
from .store_declaration import StoreDeclaration
from .store_declaration_adaptor_config import StoreDeclarationAdaptorConfig
from .store_existence import StoreExistence
from .store_info import StoreInfo
from .store_info_adaptor_config import StoreInfoAdaptorConfig
from .store_list import StoreList
from .store_push import StorePush
from .timing import Timing
from .txn_outcome import TxnOutcome
from .txn_outcome_lsn import TxnOutcomeLsn
from .txn_state import TxnState
from .version_info import VersionInfo
from .write import Write
from .write_op import WriteOp

__all__ = (
    "AbortCount",
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
    "Distribution",
    "Health",
    "ImportLine",
    "ImportResult",
    "IsolationLevel",
    "KeyCreated",
    "KeyInfo",
    "KeyList",
    "KeyRequest",
    "LogEvent",
    "LogPage",
    "LogRecord",
    "LogWrite",
    "PluginActivate",
    "PluginActivateConfig",
    "PluginActivation",
    "PluginActivationConfig",
    "PluginCheck",
    "PluginFaults",
    "PluginHealth",
    "PluginInfo",
    "PluginList",
    "PluginMiss",
    "PluginRollback",
    "PluginSlot",
    "PluginUpload",
    "PluginVersion",
    "Problem",
    "ProblemError",
    "PushBody",
    "PushInfo",
    "PushKind",
    "PushRequest",
    "Range",
    "Read",
    "Readiness",
    "Row",
    "RowPage",
    "SkipList",
    "SkippedRecord",
    "SkipRequest",
    "Snapshot",
    "StateKind",
    "StateLine",
    "Stats",
    "StoreDeclaration",
    "StoreDeclarationAdaptorConfig",
    "StoreExistence",
    "StoreInfo",
    "StoreInfoAdaptorConfig",
    "StoreList",
    "StorePush",
    "Timing",
    "TxnOutcome",
    "TxnOutcomeLsn",
    "TxnState",
    "VersionInfo",
    "Write",
    "WriteOp",
)
