//! The SQL transport against a real PostgreSQL: transactions are atomic, time out, and may have an unknown outcome.

#[path = "../../../examples/tpcc/src/postgres_server.rs"]
#[expect(dead_code, reason = "engines ask for more than a transport does")]
mod postgres_server;

use std::time::Duration;

use postgres_server::{DATABASE, PostgresServer, ROLE};
use tribunal_push::{EgressPolicy, Password, SqlOptions, SqlTransport, StorageDurability, Transport, TransportError};
use tribunal_types::{Command, SqlStatement, StorageReply};

fn server(settings: &[&str]) -> Option<PostgresServer> {
    match PostgresServer::start(settings) {
        Ok(server) => Some(server),
        Err(text) if text.contains("is not installed") => {
            println!("SKIPPED: {text}");
            None
        }
        Err(text) => panic!("{text}"),
    }
}

fn options(server: &PostgresServer) -> SqlOptions {
    let options = SqlOptions::new(server.address(), DATABASE, ROLE, EgressPolicy::loopback());
    SqlOptions { password: Some(Password::Text(server.password().to_owned())), ..options }
}

fn statement(text: &str, params: &[Option<&str>]) -> SqlStatement {
    let params = params.iter().map(|value| value.map(|text| text.as_bytes().to_vec())).collect();
    SqlStatement { text: text.to_owned(), params }
}

type Answer = Result<(u64, Option<String>), String>;

async fn run(transport: &SqlTransport, statements: &[SqlStatement]) -> Answer {
    match transport.send(Command::Sql(statements.to_vec())).await.expect("an answer") {
        StorageReply::Sql { affected, cell, error: None } => Ok((affected, cell)),
        StorageReply::Sql { error: Some((state, text)), .. } => Err(format!("{state} {text}")),
        other => panic!("no SQL: {other:?}"),
    }
}

async fn one(transport: &SqlTransport, text: &str) -> Answer {
    run(transport, &[statement(text, &[])]).await
}

fn cell(text: &str) -> Answer {
    Ok((1, Some(text.to_owned())))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_takes_effect_as_a_whole_and_on_its_condition() {
    let Some(server) = server(&[]) else { return };
    let transport = SqlTransport::new(options(&server));
    assert_eq!(transport.connect().await, Ok(StorageDurability::Always));
    let create = "CREATE TABLE t (k text PRIMARY KEY, n bigint)";
    // Tables are created and used in one transaction, although no statement could be prepared before it.
    let first = [
        statement("SELECT 1", &[]),
        statement(create, &[]),
        statement(
            "INSERT INTO t SELECT * FROM unnest($1::text[], $2::bigint[])",
            &[Some(r#"{a,"b \"q\""}"#), Some("{1,NULL}")],
        ),
        statement("SELECT k FROM t WHERE n IS NULL", &[]),
    ];
    assert_eq!(run(&transport, &first).await, cell("b \"q\""));

    let guarded = |from: &str, to: &str, value: Option<&str>| {
        [
            statement("UPDATE t SET n = $2::bigint WHERE k = 'a' AND n = $1::bigint", &[Some(from), Some(to)]),
            statement("UPDATE t SET n = $1::bigint WHERE k LIKE 'b%'", &[value]),
        ]
    };
    let sum = "SELECT string_agg(coalesce(n::text, '-'), ' ' ORDER BY k) FROM t";
    // Twice each: the first time, statements are prepared one by one; the second time, they are pipelined.
    for (from, to) in [("1", "2"), ("2", "3")] {
        assert_eq!(run(&transport, &guarded(from, to, Some("7"))).await, Ok((1, None)));
        assert_eq!(one(&transport, sum).await, cell(&format!("{to} 7")));
        let elsewhere = run(&transport, &guarded("99", "100", Some("8"))).await.expect_err("the condition fails");
        assert!(elsewhere.starts_with("02000"), "{elsewhere}");
        let failed = run(&transport, &guarded(to, "4", Some("x"))).await.expect_err("no number");
        assert!(failed.starts_with("22P02"), "{failed}");
        assert_eq!(one(&transport, sum).await, cell(&format!("{to} 7")), "neither statement took effect");
    }
    // A failed condition takes precedence over later failures.
    let both = run(&transport, &guarded("99", "4", Some("x"))).await.expect_err("both fail");
    assert!(both.starts_with("02000"), "{both}");
    assert_eq!(run(&transport, &guarded("3", "4", None)).await, Ok((1, None)));
    assert_eq!(one(&transport, sum).await, cell("4 -"));

    let deferred = [
        statement("SELECT true", &[]),
        statement("CREATE TABLE d (k int UNIQUE DEFERRABLE INITIALLY DEFERRED)", &[]),
        statement("INSERT INTO d VALUES (1), (1)", &[]),
    ];
    let failed = run(&transport, &deferred).await.expect_err("the commit fails");
    assert!(failed.starts_with("23505"), "{failed}");
    assert_eq!(one(&transport, "SELECT to_regclass('d') IS NULL").await, cell("true"));
    // Replace the table by another one of the same name.
    let again = [statement("SELECT 1", &[]), statement("DROP TABLE t", &[]), statement(create, &[])];
    assert_eq!(run(&transport, &again).await, Ok((0, None)));
    assert_eq!(run(&transport, &first[2..]).await, cell("b \"q\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_reported_and_forbidden_addresses_are_not_connected_to() {
    let Some(server) = server(&["fsync=off"]) else { return };
    let transport = SqlTransport::new(options(&server));
    let unconnected = transport.send(Command::Sql(vec![statement("SELECT 1", &[])])).await;
    assert!(matches!(unconnected, Err(TransportError::Broken(_))), "{unconnected:?}");
    assert_eq!(transport.connect().await, Ok(StorageDurability::None));
    for command in [Command::Raw(vec![1]), Command::Sql(Vec::new())] {
        let refused = transport.send(command).await;
        assert!(matches!(refused, Err(TransportError::WrongCommand(_))), "{refused:?}");
    }
    for (text, state) in [("SELECT $1::text", "07001"), ("SELEKT", "42601"), ("SELECT * FROM nowhere", "42P01")] {
        let said = one(&transport, text).await.expect_err(text);
        assert!(said.starts_with(state), "{said}");
        assert_eq!(one(&transport, "SELECT 5").await, cell("5"), "the connection is still usable");
    }
    let wrong = |change: fn(&mut SqlOptions)| {
        let mut options = options(&server);
        change(&mut options);
        async move { SqlTransport::new(options).connect().await }
    };
    let refused = wrong(|options| options.password = Some(Password::Text("guessed".to_owned()))).await;
    assert!(matches!(&refused, Err(TransportError::Broken(text)) if text.starts_with("28P01")), "{refused:?}");
    let refused = wrong(|options| options.password = None).await;
    assert!(matches!(&refused, Err(TransportError::Broken(_))), "{refused:?}");
    let refused = wrong(|options| options.database = "none".to_owned()).await;
    assert!(matches!(&refused, Err(TransportError::Broken(text)) if text.starts_with("3D000")), "{refused:?}");
    let refused = wrong(|options| options.egress = EgressPolicy::default()).await;
    assert!(matches!(refused, Err(TransportError::Refused(_))), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_stalls_times_out_and_is_rolled_back() {
    let Some(mut server) = server(&["synchronous_commit=off"]) else { return };
    let mut bounded = options(&server);
    (bounded.connect_timeout, bounded.reply_timeout) = (Duration::from_secs(5), Duration::from_secs(3));
    let transport = SqlTransport::new(bounded);
    assert_eq!(transport.connect().await, Ok(StorageDurability::EverySecond));
    let make = [statement("SELECT 1", &[]), statement("CREATE TABLE t (n int)", &[])];
    assert_eq!(run(&transport, &make).await, Ok((0, None)));
    let slow = [statement("INSERT INTO t VALUES (1)", &[]), statement("SELECT pg_sleep(60)", &[])];
    match transport.send(Command::Sql(slow.to_vec())).await {
        // The server's timeout or our own, whichever fires first.
        Err(TransportError::Timeout { ms: 3000 }) => {}
        Ok(StorageReply::Sql { error: Some((state, _)), .. }) => assert_eq!(state, "57014"),
        other => panic!("{other:?}"),
    }
    transport.connect().await.expect("it is up");
    assert_eq!(one(&transport, "SELECT count(*) FROM t").await, cell("0"));

    server.pause(true);
    let stalled = transport.send(Command::Sql(slow[..1].to_vec())).await;
    assert_eq!(stalled, Err(TransportError::Timeout { ms: 3000 }));
    assert_eq!(transport.connect().await, Err(TransportError::Timeout { ms: 5000 }));
    server.pause(false);
    server.kill();
    let dead = transport.connect().await;
    assert!(matches!(dead, Err(TransportError::Broken(_))), "{dead:?}");
    server.restart().expect("it comes back");
    transport.connect().await.expect("it is up");
    server.kill();
    let cut = transport.send(Command::Sql(vec![statement("SELECT 1", &[])])).await;
    assert!(matches!(cut, Err(TransportError::Broken(_))), "{cut:?}");
}
