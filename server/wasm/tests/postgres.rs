//! The PostgreSQL adaptor's requests, and how it classifies replies. The node's tests run them against a real
//! PostgreSQL.

use WriteKind::{Add, Delete, Insert, Put, Update};
use tribunal_types::{
    Ack, Command, Csn, Epoch, Lsn, RecordBatch, RecordHead, RecordId, RecordWrite, Span, SqlStatement, StorageReply,
    StoreId, TxnId, Version, WriteKind,
};
use tribunal_wasm::{Builtin, PluginEngine, PluginLimits, WasmAdaptor, World};

const TABLES: &str = r#"{"endpoint": "the host's own", "store": "shop", "store_id": 4, "log": "1.7", "tables": [
    {"table": "account", "prefix": "a/", "key": [{"column": "id", "type": "bigint"}],
     "columns": [{"field": "owner", "type": "text"}, {"field": "cents", "type": "bigint"}]},
    {"table": "counter", "prefix": "n/", "value": {"column": "n", "type": "bigint"}},
    {"table": "docs"}]}"#;

type Row<'a> = (WriteKind, &'a str, &'a str);

/// Returns records from LSN `first` on, one per transaction.
fn records(first: u64, txns: &[&[Row<'_>]]) -> RecordBatch {
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

fn adaptor(config: &str) -> WasmAdaptor {
    let engine = PluginEngine::new(PluginLimits { instances_max: 2, ..PluginLimits::default() }).expect("starts");
    let postgres = Builtin::find(World::LogAdaptor, "postgres").expect("is built in");
    WasmAdaptor::new(postgres.load(&engine, config).expect("loads"), "shop").expect("has every function")
}

fn statements(command: &Command) -> &[SqlStatement] {
    match command {
        Command::Sql(statements) => statements,
        other => panic!("no SQL: {other:?}"),
    }
}

fn bound(statement: &SqlStatement) -> Vec<String> {
    let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone().expect("not null")).expect("text");
    statement.params.iter().map(text).collect()
}

#[test]
fn a_request_moves_the_watermark_first_and_binds_every_value() {
    let batch = records(
        5,
        &[
            &[(Put, "a/1", r#"{"owner": "'; DROP", "cents": 5}"#), (Insert, "n/x", "1"), (Put, "d", "[1]")],
            &[
                (Update, "a/2", r#"{"cents": -1, "owner": ""}"#),
                (Add, "n/x", "4"),
                (Add, "n/y", "-2"),
                (Delete, "d", ""),
            ],
        ],
    );
    let requests = adaptor(TABLES).encode(&batch).expect("encodes");
    assert_eq!(requests.len(), 1);
    assert_eq!((requests[0].first, requests[0].last), (Lsn(5), Lsn(6)));
    let statements = statements(&requests[0].command);
    assert!(statements[0].text.starts_with(r#"UPDATE "tribunal_watermark" SET lsn = $5"#), "{}", statements[0].text);
    let record = format!("6 6 {}", "06".repeat(16));
    assert_eq!(bound(&statements[0]), ["shop", r#""account","counter","docs""#, "1.7 shop#4", "4", "6", &record]);
    assert!(statements[1].text.starts_with("DO ") && statements[1].params.is_empty(), "{}", statements[1].text);
    let (first, last) = (Version::new(Epoch(5), 0).expect("fits"), Version::new(Epoch(6), 0).expect("fits"));
    let rows: Vec<_> =
        statements[2..].iter().map(|s| (s.text.split(' ').take(3).collect::<Vec<_>>().join(" "), bound(s))).collect();
    let texts = |values: &[&str]| values.iter().map(|&value| value.to_owned()).collect::<Vec<_>>();
    assert_eq!(
        rows,
        [
            (
                r#"INSERT INTO "account""#.to_owned(),
                texts(&["{1,2}", r#"{"'; DROP",""}"#, "{5,-1}", &format!("{{{first},{last}}}")])
            ),
            (r#"INSERT INTO "counter""#.to_owned(), texts(&[r#"{"x"}"#, "{5}", &format!("{{{last}}}")])),
            (r#"INSERT INTO "counter""#.to_owned(), texts(&[r#"{"y"}"#, "{-2}", &format!("{{{last}}}"), r#"{"n/y"}"#])),
            (r#"DELETE FROM "docs""#.to_owned(), texts(&[r#"{"d"}"#])),
        ]
    );
    for statement in statements {
        assert!(!statement.text.contains("DROP") && !statement.text.contains("shop"), "{}", statement.text);
    }
}

#[test]
fn the_watermark_is_read_with_the_log_and_store_that_it_is_of() {
    let adaptor = adaptor(TABLES);
    let request = adaptor.watermark().expect("asks");
    let texts: Vec<_> = statements(&request.command).iter().map(|statement| statement.text.as_str()).collect();
    assert!(
        texts[1].contains(r#"CREATE TABLE "account" ("id" bigint NOT NULL, "owner" text NOT NULL"#),
        "{}",
        texts[1]
    );
    assert!(texts[1].contains(r#"CREATE TABLE "docs" ("key" text COLLATE "C" NOT NULL, "value" jsonb NOT NULL"#));
    let read = |cell: Option<&str>| {
        adaptor.read_watermark(&StorageReply::Sql { affected: 1, cell: cell.map(str::to_owned), error: None })
    };
    assert_eq!(read(Some("1.7 shop#4 41")), Ok(Lsn(41)));
    for (cell, reason) in [
        (Some("1.8 shop#4 41"), "another log (1.8; this one is 1.7)"),
        (Some("1.8 41"), "another log (1.8; this one is 1.7)"),
        (Some("1.8 shop#4 41"), "lost no record up to LSN 41: UPDATE"),
        (Some("1.8 shop#4 41"), "AND log = '1.8 shop#4'"),
        (Some("1.8 41"), "if the rows are this store's, and this log is the other one, salvaged"),
        (Some("1.8 41"), "AND log = '1.8'"),
        (Some("1.8 shop#5 41"), "the store `shop#5` of another log (1.8; this one is 1.7); this one is `shop#4`"),
        (Some("1.7 41"), "the store `shop` of the namespace `default`, of this log, or an earlier release"),
        (
            Some("1.7 41"),
            "SET log = '1.7 shop#4' WHERE store = 'shop' AND tables = '\"account\",\"counter\",\"docs\"' AND log = '1.7'",
        ),
        (Some("1.7 shop#5 41"), "the store `shop#5` of this log; this one is `shop#4`"),
        (Some("taken by store `b`, tables \"docs\", log and store 1.7 b#5"), "row of store `b`, tables \"docs\""),
        (
            Some("taken by store `shop`, tables \"docs\", log and store 1.7"),
            "SET log = '1.7 shop#4' WHERE store = 'shop' AND tables = '\"docs\"' AND log = '1.7'",
        ),
        (Some("1.7 shop#4 x"), "no position"),
        (None, "gone"),
    ] {
        let said = read(cell).expect_err(reason).to_string();
        assert!(said.contains(reason), "{said}");
    }
    assert!(adaptor.read_watermark(&StorageReply::Raw(vec![1])).is_err());

    let last = |line: &str| {
        let cell = Some(format!("1.7 shop#4 41{line}"));
        adaptor.last_record(&StorageReply::Sql { affected: 1, cell, error: None })
    };
    let record = RecordId { lsn: Lsn(41), csn: Csn(7), txn_id: TxnId([0xab; 16]) };
    assert_eq!(last(&format!("\n41 7 {}", "ab".repeat(16))), Ok(Some(record)));
    for unknown in ["", "\n", "\n41", "\n41 7 ab"] {
        assert_eq!(last(unknown), Ok(None), "{unknown:?}");
    }
}

#[test]
fn replies_are_classified() {
    let adaptor = adaptor(TABLES);
    let said = |state: &str| {
        let error = Some((state.to_owned(), "text".to_owned()));
        adaptor.classify(&StorageReply::Sql { affected: 0, cell: None, error })
    };
    assert_eq!(adaptor.classify(&StorageReply::Sql { affected: 0, cell: None, error: None }), Ack::Ok);
    assert!(matches!(said("02000"), Ack::Moved(_)));
    for passing in ["40001", "40P01", "53100", "53300", "57P01", "57014", "08006", "55P03", "25006", "58030"] {
        assert_eq!(said(passing), Ack::Retry(format!("{passing}: text")));
    }
    for fatal in ["23505", "23502", "22P02", "22021", "42703", "42P01", "42501", "XX000", ""] {
        assert!(matches!(said(fatal), Ack::Fatal(text) if text.starts_with(fatal)), "{fatal}");
    }
    assert!(matches!(adaptor.classify(&StorageReply::Raw(vec![0])), Ack::Fatal(_)));
}

#[test]
fn the_largest_batches_fit_into_fuel_and_memory() {
    let adaptor = adaptor(TABLES);
    // One record with the maximum number of rows of a transaction.
    let keys: Vec<String> = (0..10_000).map(|n| format!("a/{}", n * 7919 % 10_007)).collect();
    let rows: Vec<Row<'_>> = keys.iter().map(|key| (Put, key.as_str(), r#"{"cents":1,"owner":"x"}"#)).collect();
    assert_eq!(adaptor.encode(&records(1, &[&rows])).expect("encodes").len(), 1);
    // Values whose quoted form is as long as possible.
    let quotes = format!("\"{}\"", "\\\\".repeat(400_000));
    let rows: Vec<[Row<'_>; 1]> = (0..11).map(|_| [(Put, "doc", quotes.as_str())]).collect();
    let txns: Vec<&[Row<'_>]> = rows.iter().map(|rows| rows.as_slice()).collect();
    let requests = adaptor.encode(&records(1, &txns)).expect("encodes");
    let bounds: Vec<_> = requests.iter().map(|request| (request.first.0, request.last.0)).collect();
    assert_eq!(bounds, [(1, 5), (6, 10), (11, 11)]);
    // The maximum number of small records that a push reads at once.
    let keys: Vec<String> = (0..8192).map(|n| format!("n/{}", n % 100)).collect();
    let rows: Vec<[Row<'_>; 1]> = keys.iter().map(|key| [(Add, key.as_str(), "1")]).collect();
    let txns: Vec<&[Row<'_>]> = rows.iter().map(|rows| rows.as_slice()).collect();
    assert_eq!(adaptor.encode(&records(1, &txns)).expect("encodes").len(), 1);
}

#[test]
fn rows_that_do_not_fit_a_table_are_rejected_by_name() {
    let adaptor = adaptor(TABLES);
    for (row, reason) in [
        ((Put, "a/x", "{}"), "row `a/x`: key column \"id\": `x` is no bigint"),
        ((Put, "a/1", "{\"owner\": \"x\"}"), "field `cents` is missing"),
        ((Add, "a/1", "1"), "`add` needs a table whose whole value is one column of integers"),
        ((Put, "n/1", "1.5"), "column \"n\": 1.5 is no integer"),
    ] {
        let said = adaptor.encode(&records(1, &[&[row]])).expect_err(reason).to_string();
        assert!(said.contains(reason), "{said}");
    }
}
