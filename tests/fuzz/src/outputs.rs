//! What plugins answer: a guest whose answers are the input's bytes, wherever they point. The host takes what is shaped
//! as it must be, and calls everything else a fault of the plugin, each time the same.

use std::sync::OnceLock;

use tribunal_core::policy::{
    ConflictRule, NO_WITNESS, RangeColumns, ReadColumns, TxnColumns, Validator, ValidatorColumns, WriteColumns,
};
use tribunal_types::{
    Ack, Command, Csn, Epoch, Isolation, Lsn, NodeId, PushRequest, Reason, RecordBatch, RecordHead, RecordWrite,
    RespValue, Span, StorageReply, StoreId, TxnId, Version, WriteKind,
};
use tribunal_wasm::{
    Fault, Module, PluginEngine, PluginLimits, WasmAdaptor, WasmRule, WasmValidator, WasmValidators, World, encode,
};

/// Bytes of an answer that a guest is given.
const ANSWER_BYTES_MAX: usize = 4096;
/// Bytes of the longest fault, its kind included.
const FAULT_BYTES_MAX: usize = 8192;

/// A guest: its configuration is its answer, two letters a byte. The first byte says at which address within eight the
/// answer begins, so that answers may be misaligned.
const GUEST: &str = r#"
    (memory (export "memory") 4)
    (global $top (mut i32) (i32.const 0x18000))
    (global $answer (mut i32) (i32.const 0x8000))
    (data (i32.const 16) "\40\00\00\00\04\00\00\00\40\00\00\00\04\00\00\00\40\00\00\00\04\00\00\00")
    (data (i32.const 64) "echo")
    (func (export "cabi_realloc") (param i32 i32 i32) (param $size i32) (result i32) (local $at i32)
        (local.set $at (i32.and (i32.add (global.get $top) (i32.const 7)) (i32.const -8)))
        (global.set $top (i32.add (local.get $at) (local.get $size)))
        (if (i32.gt_u (global.get $top) (i32.const 0x40000)) (then (unreachable)))
        (local.get $at))
    (func $nibble (param $at i32) (result i32) (i32.and (i32.sub (i32.load8_u (local.get $at)) (i32.const 97)) (i32.const 15)))
    (func (export "tribunal:plugin/lifecycle@1.0.0#describe") (result i32) (i32.const 16))
    (func (export "tribunal:plugin/lifecycle@1.0.0#init") (param $at i32) (param $len i32) (result i32)
        (local $to i32) (local $end i32)
        (local.set $end (i32.add (local.get $at) (local.get $len)))
        (if (i32.ge_u (local.get $len) (i32.const 2))
            (then (global.set $answer
                (i32.add (i32.const 0x8000) (i32.and (call $nibble (i32.add (local.get $at) (i32.const 1))) (i32.const 7))))))
        (local.set $at (i32.add (local.get $at) (i32.const 2)))
        (local.set $to (i32.const 0x8000))
        (block $done (loop $more
            (br_if $done (i32.ge_u (i32.add (local.get $at) (i32.const 1)) (local.get $end)))
            (i32.store8 (local.get $to)
                (i32.or (i32.shl (call $nibble (local.get $at)) (i32.const 4))
                        (call $nibble (i32.add (local.get $at) (i32.const 1)))))
            (local.set $at (i32.add (local.get $at) (i32.const 2)))
            (local.set $to (i32.add (local.get $to) (i32.const 1)))
            (br $more)))
        (i32.const 128))
"#;

const RULE: &str = r#"
    (func (export "tribunal:plugin/rule@1.0.0#needs") (result i32) (i32.const 1))
    (func (export "tribunal:plugin/rule@1.0.0#rank")
        (param i32 i64 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $answer))
"#;

const VALIDATOR: &str = r#"
    (func (export "tribunal:plugin/validator@1.0.0#needs") (result i32) (i32.const 31))
    (func (export "tribunal:plugin/validator@1.0.0#validate") (param i32) (result i32) (global.get $answer))
"#;

const ADAPTOR: &str = r#"
    (func (export "tribunal:plugin/adaptor@1.0.0#takes") (result i32) (i32.const 31))
    (func (export "tribunal:plugin/adaptor@1.0.0#watermark") (result i32) (global.get $answer))
    (func (export "tribunal:plugin/adaptor@1.0.0#read-watermark")
        (param i32 i64 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $answer))
    (func (export "tribunal:plugin/adaptor@1.0.0#encode") (param i32) (result i32) (global.get $answer))
    (func (export "tribunal:plugin/adaptor@1.0.0#classify")
        (param i32 i64 i32 i32 i32 i32 i32 i32 i32 i32) (result i32) (global.get $answer))
"#;

struct Guests {
    rule: Module,
    validator: Module,
    adaptor: Module,
}

fn guests() -> &'static Guests {
    static GUESTS: OnceLock<Guests> = OnceLock::new();
    GUESTS.get_or_init(|| {
        let limits = PluginLimits { instances_max: 2, ..PluginLimits::default() };
        let engine = PluginEngine::new(limits).expect("the engine starts");
        let load = |world, functions: &str| {
            let module = wat::parse_str(format!("(module {GUEST} {functions})")).expect("the guest parses");
            let component = encode::encode(&module, world).expect("it is a component");
            Module::load(&engine, world, &component, "").expect("it loads")
        };
        Guests {
            rule: load(World::ConflictRule, RULE),
            validator: load(World::IsolationValidator, VALIDATOR),
            adaptor: load(World::LogAdaptor, ADAPTOR),
        }
    })
}

/// Lets the guest whom the first byte names answer with the rest; tells whether the host took the answer.
pub fn run(data: &[u8]) -> bool {
    let Some((which, answer)) = data.split_first() else { return false };
    let answer = &answer[..answer.len().min(ANSWER_BYTES_MAX)];
    let config: String = answer.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|n| char::from(b'a' + n)).collect();
    let configured = |module: &Module| module.with_config(&config).expect("any configuration is taken");
    let guests = guests();
    match which % 6 {
        0 => rank(configured(&guests.rule)),
        1 => validate(configured(&guests.validator)),
        which => adapt(which, configured(&guests.adaptor)),
    }
}

fn three() -> TxnColumns {
    TxnColumns {
        csn: vec![30, 10, 20],
        epoch: 7,
        start: vec![7; 3],
        origin: vec![1, 2, 3],
        priority: vec![100; 3],
        reads: vec![1; 3],
        writes: vec![1; 3],
        first_attempt: vec![1; 3],
    }
}

fn rank(module: Module) -> bool {
    let rule = WasmRule::new(module).expect("it says what it needs");
    let ranked = rule.rank(&three());
    assert_eq!(ranked, rule.rank(&three()), "the same each time");
    match ranked {
        Ok(ranks) => {
            assert_eq!((ranks.hi.len(), ranks.lo.len()), (3, 3));
            true
        }
        Err(fault) => told(&fault.0),
    }
}

fn validate(module: Module) -> bool {
    let ends = vec![1, 2, 3];
    let columns = ValidatorColumns {
        txns: three(),
        snapshot: vec![6; 3],
        current_from: vec![0; 3],
        current_until: vec![u64::MAX; 3],
        multi_version: vec![0; 3],
        reads: ReadColumns { ends: ends.clone(), seen: vec![5; 3], latest: vec![5; 3] },
        writes: WriteColumns { ends, kind: vec![2; 3], flags: vec![1; 3], latest: vec![5; 3] },
        ranges: RangeColumns { ends: vec![0; 3], changed: Vec::new() },
    };
    let validator = WasmValidator::new(module).expect("it says what it needs");
    let validators = WasmValidators::new([(); 4].map(|()| validator.clone()));
    let judged = validators.validate(Isolation::Serializable, &columns);
    assert_eq!(judged, validators.validate(Isolation::Serializable, &columns), "the same each time");
    match judged {
        Ok(judged) => {
            assert_eq!((judged.code.len(), judged.witness.len()), (3, 3));
            for (code, witness) in judged.code.iter().zip(&judged.witness).filter(|(code, _)| **code != 0) {
                assert!(Reason::from_code(*code).is_some() && (*witness < 2 || *witness == NO_WITNESS));
            }
            true
        }
        Err(fault) => told(&fault.0),
    }
}

/// Two records of one row each.
fn records() -> RecordBatch {
    let mut records = RecordBatch { store: StoreId(1), ..RecordBatch::default() };
    for n in 1..=2_u32 {
        let (key, value) = (Span::push(&mut records.bytes, b"key"), Span::push(&mut records.bytes, b"1"));
        records.writes.push(RecordWrite { kind: WriteKind::Put, key, value });
        records.records.push(RecordHead {
            lsn: Lsn(u64::from(n)),
            epoch: Epoch(7),
            csn: Csn::new(u64::from(n), NodeId(1)),
            version: Version::new(Epoch(7), n).expect("a version"),
            txn_id: TxnId([n as u8; 16]),
            writes_end: n,
            traceparent: Span::default(),
        });
    }
    records
}

fn adapt(which: u8, module: Module) -> bool {
    let adaptor = WasmAdaptor::new(module, "kv").expect("it has all functions");
    let reply = StorageReply::Resp(vec![RespValue::Int(7), RespValue::Error("no".into())]);
    match which {
        2 => requested(adaptor.watermark().map(|request| vec![request]), None),
        3 => {
            let read = adaptor.read_watermark(&reply);
            assert_eq!(read, adaptor.read_watermark(&reply), "the same each time");
            read.map_or_else(|fault| told(&fault.to_string()), |_| true)
        }
        4 => requested(adaptor.encode(&records()), records().bounds()),
        _ => {
            let ack = adaptor.classify(&reply);
            assert_eq!(ack, adaptor.classify(&reply), "the same each time");
            ack == Ack::Ok
        }
    }
}

/// Requests cover the records without a gap, and their columns lie within one another.
fn requested(requests: Result<Vec<PushRequest>, Fault>, cover: Option<(Lsn, Lsn)>) -> bool {
    let requests = match requests {
        Ok(requests) => requests,
        Err(fault) => return told(&fault.to_string()),
    };
    if let Some((first, last)) = cover {
        let ends: Vec<Lsn> = requests.iter().map(|request| request.last).collect();
        assert_eq!((requests[0].first, ends.last()), (first, Some(&last)));
        assert!(requests.windows(2).all(|pair| pair[1].first == pair[0].last.next()));
    }
    for request in requests {
        if let Command::Resp(pipeline) = request.command {
            assert!(pipeline.arg_ends.iter().all(|end| *end as usize <= pipeline.args.len()));
            assert!(pipeline.command_ends.iter().all(|end| *end as usize <= pipeline.arg_ends.len()));
        }
    }
    true
}

/// Checks the text of a fault.
fn told(text: &str) -> bool {
    assert!(!text.is_empty() && text.len() <= FAULT_BYTES_MAX, "{} bytes of reason", text.len());
    false
}

/// Makes the engine and the guests.
pub fn warm_up() {
    let _ = guests();
}
