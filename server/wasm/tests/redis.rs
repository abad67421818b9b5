//! The Redis adaptor against a real Redis: rows, watermark and index move together or not at all.
//!
//! Starts its own `redis-server` on a socket in a temporary folder. If the machine has no such program, the tests print
//! that they are skipped.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use WriteKind::{Add, Delete, Insert, Put, Update};
use tribunal_types::{
    Ack, Command, Csn, Epoch, Lsn, PushRequest, RecordBatch, RecordHead, RecordWrite, RespPipeline, RespValue, Span,
    StorageReply, StoreId, TxnId, Version, WriteKind,
};
use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, WasmAdaptor, World};

struct Server {
    process: Child,
    stream: BufReader<UnixStream>,
    _folder: tempfile::TempDir,
}

impl Server {
    /// Starts a server; `None` if the machine has no `redis-server`.
    fn start() -> Option<Server> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("redis.sock");
        let process = Process::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .spawn();
        let process = match process {
            Ok(process) => process,
            Err(e) => {
                println!("SKIPPED: redis-server cannot be started: {e}");
                return None;
            }
        };
        let stream = BufReader::new(connect(&socket));
        Some(Server { process, stream, _folder: folder })
    }

    fn ask(&mut self, words: &[&str]) -> RespValue {
        let mut pipeline = RespPipeline::default();
        for word in words {
            pipeline.args.extend_from_slice(word.as_bytes());
            pipeline.arg_ends.push(pipeline.args.len() as u32);
        }
        pipeline.command_ends.push(words.len() as u32);
        let StorageReply::Resp(mut values) = self.send(&Command::Resp(pipeline)) else { panic!("no RESP") };
        values.remove(0)
    }

    fn text(&mut self, words: &[&str]) -> Option<String> {
        match self.ask(words) {
            RespValue::Nil => None,
            RespValue::Text(text) => Some(String::from_utf8(text).expect("UTF-8")),
            RespValue::Int(number) => Some(number.to_string()),
            RespValue::Error(error) => panic!("{words:?}: {error}"),
        }
    }

    fn send(&mut self, command: &Command) -> StorageReply {
        let Command::Resp(pipeline) = command else { panic!("no RESP") };
        let mut wire = Vec::new();
        let (mut argument, mut byte) = (0, 0);
        for &end in &pipeline.command_ends {
            write!(wire, "*{}\r\n", end as usize - argument).expect("memory");
            for &arg_end in &pipeline.arg_ends[argument..end as usize] {
                let arg = &pipeline.args[byte..arg_end as usize];
                write!(wire, "${}\r\n", arg.len()).expect("memory");
                wire.extend_from_slice(arg);
                wire.extend_from_slice(b"\r\n");
                byte = arg_end as usize;
            }
            argument = end as usize;
        }
        self.stream.get_mut().write_all(&wire).expect("sent");
        StorageReply::Resp(pipeline.command_ends.iter().map(|_| self.value()).collect())
    }

    fn value(&mut self) -> RespValue {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("a line");
        let line = line.trim_end();
        match line.split_at(1) {
            ("+", text) => RespValue::Text(text.as_bytes().to_vec()),
            ("-", text) => RespValue::Error(text.to_owned()),
            (":", number) => RespValue::Int(number.parse().expect("an integer")),
            ("$", "-1") => RespValue::Nil,
            ("$", len) => {
                let mut text = vec![0; len.parse::<usize>().expect("a length") + 2];
                self.stream.read_exact(&mut text).expect("a string");
                text.truncate(text.len() - 2);
                RespValue::Text(text)
            }
            _ => panic!("unexpected {line}"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn connect(socket: &Path) -> UnixStream {
    for _ in 0..4_800 {
        if let Ok(stream) = UnixStream::connect(socket) {
            return stream;
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    panic!("redis-server does not listen")
}

type Row = (WriteKind, &'static str, &'static str);

/// Returns records from LSN `first` on, one per transaction.
fn records(first: u64, txns: &[&[Row]]) -> RecordBatch {
    let mut batch = RecordBatch { store: StoreId(1), ..RecordBatch::default() };
    for (lsn, rows) in (first..).zip(txns) {
        for &(kind, key, value) in *rows {
            let key = Span::push(&mut batch.bytes, key.as_bytes());
            let value = Span::push(&mut batch.bytes, value.as_bytes());
            batch.writes.push(RecordWrite { kind, key, value });
        }
        batch.records.push(RecordHead {
            lsn: Lsn(lsn),
            epoch: Epoch(lsn),
            csn: Csn(lsn),
            version: Version::new(Epoch(lsn), 0).expect("fits"),
            txn_id: TxnId([lsn as u8; 16]),
            writes_end: batch.writes.len() as u32,
            traceparent: Span::default(),
        });
    }
    batch
}

fn version(lsn: u64) -> u64 {
    Version::new(Epoch(lsn), 0).expect("fits").bits()
}

fn adaptor() -> WasmAdaptor {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let redis = Builtin::find(World::LogAdaptor, "redis").expect("is built in");
    assert!(redis.load(&engine, r##"{"prefix": "#x"}"##).is_err(), "rows would meet the adaptor's own keys");
    let module = redis.load(&engine, r#"{"prefix": "shop:", "endpoint": "the host's own"}"#).expect("loads");
    WasmAdaptor::new(module, "shop").expect("has every function")
}

struct Pushing {
    server: Server,
    adaptor: WasmAdaptor,
}

impl Pushing {
    /// Encodes records that fit into one request, sends it, and returns the adaptor's classification of the reply.
    fn push(&mut self, records: &RecordBatch) -> Ack {
        let requests = self.adaptor.encode(records).expect("encodes");
        assert_eq!(requests.len(), 1);
        self.send(&requests[0])
    }

    fn send(&mut self, request: &PushRequest) -> Ack {
        let reply = self.server.send(&request.command);
        self.adaptor.classify(&reply)
    }

    fn watermark(&mut self) -> Lsn {
        let request = self.adaptor.watermark().expect("asks");
        let reply = self.server.send(&request.command);
        self.adaptor.read_watermark(&reply).expect("a watermark")
    }

    fn row(&mut self, key: &str) -> Option<String> {
        self.server.text(&["GET", &format!("shop:{key}")])
    }

    fn indexed(&mut self) -> String {
        self.server.text(&["ZCARD", "#index:shop:"]).expect("an integer")
    }
}

#[test]
fn rows_and_watermark_move_together_or_not_at_all() {
    let Some(server) = Server::start() else { return };
    let mut at = Pushing { server, adaptor: adaptor() };
    assert_eq!(at.watermark(), Lsn(0));

    let first =
        records(1, &[&[(Insert, "a", "1"), (Put, "b", r#"{"x": "ä y"}"#)], &[(Insert, "n", "9007199254740993")]]);
    assert_eq!(at.push(&first), Ack::Ok);
    assert_eq!(at.watermark(), Lsn(2));
    assert_eq!(at.row("b"), Some(format!(r#"{} {{"x": "ä y"}}"#, version(1))));
    assert_eq!(at.indexed(), "3");

    assert!(matches!(at.push(&first), Ack::Moved(text) if text.contains("watermark is 2")), "a replay moves nothing");

    // Beyond the integers of a double, twice in one request, after an update, and again after a delete.
    let sums = records(
        3,
        &[
            &[(Add, "n", "2"), (Add, "a", "-5")],
            &[(Add, "n", "9000000000000000000")],
            &[(Update, "a", "9223372036854775800"), (Delete, "b", "")],
            &[(Add, "a", "7"), (Put, "b", "0")],
            &[(Add, "b", "3")],
        ],
    );
    assert_eq!(at.push(&sums), Ack::Ok);
    assert_eq!(at.watermark(), Lsn(7));
    assert_eq!(at.row("n"), Some(format!("{} 9009007199254740995", version(4))));
    assert_eq!(at.row("a"), Some(format!("{} 9223372036854775807", version(6))));
    assert_eq!(at.row("b"), Some(format!("{} 3", version(7))));
    assert_eq!(at.server.text(&["EXISTS", "#scratch:shop:"]).as_deref(), Some("0"));

    for bad in [("a", "1"), ("missing", "1"), ("b", "1.5"), ("b", "x")] {
        let rows = [(Put, "never", "1"), (Delete, "n", ""), (Add, bad.0, bad.1)];
        let ack = at.push(&records(8, &[&rows]));
        assert!(matches!(&ack, Ack::Fatal(text) if text.contains("NOTANUMBER")), "{bad:?}: {ack:?}");
        assert_eq!((at.watermark(), at.row("never")), (Lsn(7), None), "nothing of a failing request stays");
        assert_eq!(at.server.text(&["EXISTS", "#scratch:shop:"]).as_deref(), Some("0"));
    }

    let cleared = records(8, &[&[(Delete, "a", ""), (Delete, "b", "")], &[(Delete, "n", ""), (Put, "last", "[]")]]);
    assert_eq!(at.push(&cleared), Ack::Ok);
    assert_eq!((at.row("a"), at.row("n"), at.indexed()), (None, None, "1".to_owned()));
    let last = at.server.ask(&["ZSCORE", "#index:shop:", "last"]);
    assert_eq!(last, RespValue::Text(b"0".to_vec()));

    at.server.text(&["SET", "#index:shop:", "spoilt"]);
    let ack = at.push(&records(10, &[&[(Put, "never", "1")]]));
    assert!(matches!(&ack, Ack::Fatal(text) if text.starts_with("WRONGTYPE")), "{ack:?}");
    assert_eq!((at.watermark(), at.row("never")), (Lsn(9), None));
}

#[test]
fn a_negative_zero_is_zero() {
    let Some(server) = Server::start() else { return };
    let mut at = Pushing { server, adaptor: adaptor() };
    let zeros =
        records(1, &[&[(Put, "a", "-0"), (Put, "b", "5")], &[(Add, "a", "1"), (Add, "b", "-0"), (Add, "b", "-0")]]);
    assert_eq!(at.push(&zeros), Ack::Ok);
    assert_eq!(at.push(&records(3, &[&[(Put, "c", "-0")]])), Ack::Ok);
    assert_eq!(at.push(&records(4, &[&[(Add, "c", "-0"), (Add, "a", "-1")]])), Ack::Ok);
    let rows = ["a", "b", "c"].map(|key| at.row(key).expect("a row"));
    assert_eq!(rows, [(4, 0), (2, 5), (4, 0)].map(|(lsn, value)| format!("{} {value}", version(lsn))));
}

/// Returns the adaptor of a store of the log `ab`.
fn adaptor_of(store: &str, number: u64) -> WasmAdaptor {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let redis = Builtin::find(World::LogAdaptor, "redis").expect("is built in");
    let config = format!(r#"{{"prefix": "shop:", "log": "ab", "store": "{store}", "store_id": {number}}}"#);
    WasmAdaptor::new(redis.load(&engine, &config).expect("loads"), store).expect("has every function")
}

#[test]
fn two_stores_of_one_log_do_not_share_a_prefix() {
    let Some(server) = Server::start() else { return };
    let (one, other) = (adaptor_of("one", 4), adaptor_of("other", 9));
    let mut at = Pushing { server, adaptor: one };
    let refusal = |at: &mut Pushing, adaptor: &WasmAdaptor| {
        let request = adaptor.watermark().expect("asks");
        adaptor.read_watermark(&at.server.send(&request.command)).expect_err("it is another store's").to_string()
    };
    let rows: Vec<Vec<Row>> = (0..7).map(|_| vec![(Put, "a", "1")]).collect();
    let rows: Vec<&[Row]> = rows.iter().map(Vec::as_slice).collect();
    assert_eq!(at.push(&records(1, &rows[..5])), Ack::Ok);
    assert_eq!(at.server.text(&["GET", "#watermark:shop:"]).as_deref(), Some("ab 5"));
    // The other one began before there was a watermark, or mistakes the position for its own.
    for batch in [records(1, &rows), records(6, &rows[5..])] {
        let requests = other.encode(&batch).expect("encodes");
        let reply = at.server.send(&requests[0].command);
        assert!(matches!(other.classify(&reply), Ack::Moved(text) if text == "watermark is ab 5"));
    }
    let said = refusal(&mut at, &other);
    assert!(said.contains("`one#4`; this one is `other#9`") && said.contains("a `prefix` of its own"), "{said}");
    assert_eq!((at.watermark(), at.row("a")), (Lsn(5), Some(format!("{} 1", version(5)))));
    // A store of the same name in another namespace.
    assert!(refusal(&mut at, &adaptor_of("one", 5)).contains("`one#4`; this one is `one#5`"));

    // Watermarks of earlier releases have no store next to them. The store that continues first adds its name.
    at.server.text(&["DEL", "#store:shop:"]);
    let asked = other.watermark().expect("asks");
    assert_eq!(other.read_watermark(&at.server.send(&asked.command)), Ok(Lsn(5)));
    assert_eq!(at.watermark(), Lsn(5));
    assert_eq!(at.push(&records(6, &rows[5..6])), Ack::Ok);
    assert_eq!(at.server.text(&["GET", "#watermark:shop:"]).as_deref(), Some("ab 6"));
    assert_eq!(at.server.text(&["GET", "#store:shop:"]).as_deref(), Some("one#4"));
    let late = other.encode(&records(6, &rows[5..])).expect("encodes");
    let reply = at.server.send(&late[0].command);
    assert!(matches!(other.classify(&reply), Ack::Moved(_)), "{reply:?}");
    assert!(refusal(&mut at, &other).contains("filled by another store"));
    at.server.text(&["SET", "#watermark:shop:", "cd 5"]);
    assert!(refusal(&mut at, &other).contains("filled by another log (cd; this one is ab)"));
    // A store without a watermark does not count: its rows were removed to hand the prefix over.
    at.server.text(&["DEL", "#watermark:shop:"]);
    let first = other.encode(&records(1, &rows)).expect("encodes");
    let reply = at.server.send(&first[0].command);
    assert_eq!(other.classify(&reply), Ack::Ok);
    assert_eq!(at.server.text(&["GET", "#store:shop:"]).as_deref(), Some("other#9"));
}

#[test]
fn the_last_record_is_kept_beside_the_watermark() {
    let Some(server) = Server::start() else { return };
    let mut at = Pushing { server, adaptor: adaptor_of("one", 4) };
    let rows: [&[Row]; 3] = [&[(Put, "a", "1")]; 3];
    let last = |at: &mut Pushing| {
        let request = at.adaptor.watermark().expect("asks");
        let reply = at.server.send(&request.command);
        (at.adaptor.read_watermark(&reply).expect("a watermark"), at.adaptor.last_record(&reply).expect("no fault"))
    };
    assert_eq!(last(&mut at), (Lsn(0), None));
    let batch = records(1, &rows);
    assert_eq!(at.push(&batch), Ack::Ok);
    assert_eq!(last(&mut at), (Lsn(3), Some(batch.records[2].id())));
    let kept = format!("3 3 {}", "03".repeat(16));
    assert_eq!(at.server.text(&["GET", "#record:shop:"]), Some(kept.clone()));
    // What does not move the watermark leaves the record as it is; an earlier release moves the watermark alone.
    assert!(matches!(at.push(&batch), Ack::Moved(_)));
    assert_eq!(at.server.text(&["GET", "#record:shop:"]), Some(kept));
    at.server.text(&["SET", "#watermark:shop:", "ab 5"]);
    assert_eq!(last(&mut at), (Lsn(5), Some(batch.records[2].id())));
    let next = records(6, &rows[..1]);
    assert_eq!(at.push(&next), Ack::Ok);
    assert_eq!(last(&mut at), (Lsn(6), Some(next.records[0].id())));
    for broken in ["", "6", "6 6 06", "x"] {
        at.server.text(&["SET", "#record:shop:", broken]);
        assert_eq!(last(&mut at), (Lsn(6), None), "{broken}");
    }
}

#[test]
fn a_user_who_may_not_use_the_key_of_the_record_pushes_without_it() {
    let Some(server) = Server::start() else { return };
    let mut at = Pushing { server, adaptor: adaptor_of("one", 4) };
    let user = ["ACL", "SETUSER", "pusher", "on", ">word", "+@all", "~shop:*", "~#watermark:shop:", "~#index:shop:"];
    at.server.text(&[&user[..], &["~#scratch:shop:", "~#store:shop:"]].concat());
    at.server.text(&["AUTH", "pusher", "word"]);
    assert!(matches!(at.server.ask(&["GET", "#record:shop:"]), RespValue::Error(text) if text.starts_with("NOPERM")));
    let batch = records(1, &[&[(Put, "a", "1")], &[(Add, "a", "2")]]);
    assert_eq!(at.push(&batch), Ack::Ok);
    assert_eq!((at.watermark(), at.row("a")), (Lsn(2), Some(format!("{} 3", version(2)))));
    let request = at.adaptor.watermark().expect("asks");
    assert_eq!(at.adaptor.last_record(&at.server.send(&request.command)), Ok(None));
}

#[test]
fn large_batches_are_split_between_records() {
    let Some(server) = Server::start() else { return };
    let mut at = Pushing { server, adaptor: adaptor() };
    let big: &'static str = Box::leak(format!("\"{}\"", "v".repeat(200_000)).into_boxed_str());
    let rows: [Row; 2] = [(Put, "k1", big), (Put, "k2", big)];
    let txns: Vec<&[Row]> = vec![&rows; 9];
    let requests = at.adaptor.encode(&records(1, &txns)).expect("encodes");
    let bounds: Vec<_> = requests.iter().map(|request| (request.first.0, request.last.0)).collect();
    assert_eq!(bounds, [(1, 2), (3, 4), (5, 6), (7, 8), (9, 9)]);
    for request in &requests {
        assert_eq!(at.send(request), Ack::Ok);
    }
    assert_eq!(at.watermark(), Lsn(9));
    assert!(matches!(at.send(&requests[1]), Ack::Moved(_)));
}

#[test]
fn replies_are_classified() {
    let adaptor = adaptor();
    let said = |error: &str| adaptor.classify(&StorageReply::Resp(vec![RespValue::Error(error.to_owned())]));
    for passing in
        ["LOADING Redis is loading", "READONLY You can't write", "BUSY running a script", "OOM command", "ERR timeout"]
    {
        assert_eq!(said(passing), Ack::Retry(passing.to_owned()));
    }
    assert!(matches!(said("MOVED 12"), Ack::Moved(text) if text == "watermark is 12"));
    for fatal in ["WRONGTYPE Operation", "ERR syntax error", "NOAUTH Authentication required."] {
        assert_eq!(said(fatal), Ack::Fatal(fatal.to_owned()));
    }
    assert!(matches!(adaptor.classify(&StorageReply::Resp(vec![])), Ack::Fatal(_)));
    assert!(matches!(adaptor.classify(&StorageReply::Raw(vec![0])), Ack::Fatal(_)));
    assert!(adaptor.read_watermark(&StorageReply::Resp(vec![RespValue::Text(b"x".to_vec())])).is_err());
}
