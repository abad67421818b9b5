//! PostgreSQL at SERIALIZABLE, durable. Hand-written like the other clients: the extended protocol with prepared
//! statements, one Sync per round trip.
//!
//! A transaction begins and reads its rows in one round trip, updates and commits in a second one. Updates are in key
//! order, as in an engine that avoids deadlocks.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rustix::process::Signal;
use tribunal_bench::error::BenchError;
use tribunal_bench::options::Shape;
use tribunal_bench::plan::{Change, Plan};

use crate::key;
use crate::process::{Place, Process, command};
use crate::session::{Client, Outcome, Session};
use crate::talk::Talk;

/// Debian's folder of the server's programs.
const BIN: &str = "/usr/lib/postgresql/15/bin";
/// The server's user: it refuses to run as root.
const USER: &str = "postgres";

/// Creates a database and starts its server.
///
/// # Errors
/// If PostgreSQL 15 is missing or does not start.
pub fn start(parent: &Path) -> Result<Process, BenchError> {
    let place = Place::find("postgres", parent)?;
    let user = rustix::process::getuid().is_root().then_some(USER);
    if let Some(user) = user {
        let owned = Command::new("chown").arg(user).arg(place.folder.path()).status();
        owned.map_err(BenchError::io("hand a folder to the user postgres"))?;
    }
    let data = place.path("data");
    let mut init = command(&PathBuf::from(BIN).join("initdb"), user);
    init.args(["--auth=trust", "--encoding=UTF8", "--locale=C", "--username=postgres", "-D"]).arg(&data);
    init.current_dir(place.folder.path());
    let made = init.output().map_err(BenchError::io("run initdb"))?;
    if !made.status.success() {
        let answer = String::from_utf8_lossy(&made.stderr).trim().to_owned();
        return Err(BenchError::Refused { what: "initdb".to_owned(), answer });
    }
    let mut server = command(&PathBuf::from(BIN).join("postgres"), user);
    server.arg("-D").arg(&data).current_dir(place.folder.path());
    for setting in [
        format!("port={}", place.addr.port()),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        "fsync=on".to_owned(),
        "synchronous_commit=on".to_owned(),
        "default_transaction_isolation=serializable".to_owned(),
        "max_connections=600".to_owned(),
        "shared_buffers=1GB".to_owned(),
        "max_wal_size=4GB".to_owned(),
        "checkpoint_timeout=15min".to_owned(),
        "max_pred_locks_per_transaction=256".to_owned(),
        // Aborts are counted here, not logged there.
        "log_min_messages=fatal".to_owned(),
        "log_min_error_statement=fatal".to_owned(),
    ] {
        server.args(["-c", &setting]);
    }
    Process::start("postgres", server, Signal::INT, place)
}

/// Writes every row, and one counter for each hot row.
///
/// # Errors
/// If the server does not accept them.
pub fn load(process: &Process, shape: &Shape) -> Result<(), BenchError> {
    let mut talk = greet(process)?;
    let bytes = shape.value_bytes;
    for sql in [
        "CREATE TABLE row (k text COLLATE \"C\" PRIMARY KEY, v text NOT NULL) WITH (fillfactor = 80)".to_owned(),
        "CREATE TABLE hot (k text COLLATE \"C\" PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 20)".to_owned(),
        format!(
            "INSERT INTO row SELECT 'row/' || lpad(i::text, 7, '0'), \
             left(md5(i::text) || md5((i + 1)::text) || md5((i + 2)::text) || repeat(md5((i + 3)::text), {}), {bytes}) \
             FROM generate_series(0, {}) i",
            bytes / 32 + 1,
            shape.rows - 1
        ),
        format!(
            "INSERT INTO hot SELECT 'hot/' || lpad(i::text, 7, '0'), 0 FROM generate_series(0, {}) i",
            shape.hot_rows - 1
        ),
        "VACUUM ANALYZE".to_owned(),
        "CHECKPOINT".to_owned(),
    ] {
        let mut out = Vec::new();
        frame(&mut out, b'Q', |body| text(body, &sql));
        if let Some(code) = answered(&talk.exchange(&out, ready_end)?)?.error {
            return Err(refused(&sql, &code));
        }
    }
    Ok(())
}

/// Connects one client and prepares its statements.
///
/// # Errors
/// If the address does not listen or a statement is refused.
pub fn client(process: &Process, shape: &Shape, seed: u64) -> Result<Client, BenchError> {
    let mut talk = greet(process)?;
    let mut out = Vec::new();
    for (name, sql) in [
        ("begin", "BEGIN"),
        ("read", "SELECT k, v FROM row WHERE k = ANY($1::text[])"),
        ("scan", "SELECT k, v FROM row WHERE k >= $1 ORDER BY k LIMIT $2"),
        ("insert", "INSERT INTO row VALUES ($1, $2)"),
        ("update", "UPDATE row SET v = $2 WHERE k = $1"),
        ("add", "UPDATE hot SET n = n + 1 WHERE k = $1"),
        ("commit", "COMMIT"),
    ] {
        frame(&mut out, b'P', |body| {
            text(body, name);
            text(body, sql);
            body.extend_from_slice(&0_u16.to_be_bytes());
        });
    }
    frame(&mut out, b'S', |_| {});
    if let Some(code) = answered(&talk.exchange(&out, ready_end)?)?.error {
        return Err(refused("the statements", &code));
    }
    let session = PostgresSession {
        value_bytes: shape.value_bytes,
        rng: SmallRng::seed_from_u64(seed),
        plan: Plan::default(),
        step: Step::Idle,
    };
    Ok(Client { stream: talk.into_stream(), session: Box::new(session), slots: 1 })
}

fn refused(what: &str, code: &str) -> BenchError {
    BenchError::Refused { what: what.to_owned(), answer: format!("SQLSTATE {code}") }
}

fn greet(process: &Process) -> Result<Talk, BenchError> {
    let mut body = 196_608_u32.to_be_bytes().to_vec();
    for word in ["user", "postgres", "database", "postgres", ""] {
        text(&mut body, word);
    }
    let mut hello = u32::try_from(body.len() + 4).expect("short").to_be_bytes().to_vec();
    hello.extend_from_slice(&body);
    // It accepts connections slightly before it accepts sessions.
    for _ in 0..100 {
        let mut talk = Talk::connect(process.addr())?;
        match talk.exchange(&hello, greeting_end) {
            Ok(_) => return Ok(talk),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(100)),
        }
    }
    Err(BenchError::TooLate("postgres lets nobody in".to_owned()))
}

/// Finds the end like [`ready_end`], but an error ends the connection.
fn greeting_end(bytes: &[u8]) -> Result<Option<usize>, BenchError> {
    if bytes.first() == Some(&b'E') {
        return Err(BenchError::Reply("postgres is not ready yet"));
    }
    ready_end(bytes)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    Reading,
    Committing,
    RollingBack(&'static str),
}

struct PostgresSession {
    value_bytes: usize,
    rng: SmallRng,
    plan: Plan,
    step: Step,
}

impl PostgresSession {
    fn write(&mut self, out: &mut Vec<u8>) {
        let mut writes = std::mem::take(&mut self.plan.writes);
        writes.sort_unstable_by_key(|(row, _)| *row);
        for (row, change) in writes {
            if change == Change::AddOne {
                execute(out, "add", &[&key::hot(row)]);
            } else {
                let mut value = Vec::with_capacity(self.value_bytes);
                key::text(&mut value, self.value_bytes, &mut self.rng);
                let statement = if change == Change::Insert { "insert" } else { "update" };
                execute(out, statement, &[&key::row(row), &value]);
            }
        }
        execute(out, "commit", &[]);
        frame(out, b'S', |_| {});
        self.step = Step::Committing;
    }

    fn scan(&mut self, out: &mut Vec<u8>) {
        for scan in &self.plan.scans {
            execute(out, "scan", &[&key::row(scan.start), scan.count.to_string().as_bytes()]);
        }
    }

    fn read(&mut self, out: &mut Vec<u8>) {
        let mut keys = String::from("{");
        for row in &self.plan.reads {
            let comma = if keys.len() > 1 { "," } else { "" };
            write!(keys, "{comma}{}", String::from_utf8_lossy(&key::row(*row))).expect("a String takes everything");
        }
        keys.push('}');
        execute(out, "read", &[keys.as_bytes()]);
    }
}

impl Session for PostgresSession {
    fn begin(&mut self, _slot: usize, plan: Plan, out: &mut Vec<u8>) {
        self.plan = plan;
        execute(out, "begin", &[]);
        if !self.plan.reads.is_empty() {
            self.read(out);
        }
        self.scan(out);
        let reads_nothing = self.plan.reads.is_empty() && self.plan.scans.is_empty();
        if reads_nothing || self.plan.writes.is_empty() {
            self.write(out);
        } else {
            frame(out, b'S', |_| {});
            self.step = Step::Reading;
        }
    }

    fn receive(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        done: &mut Vec<(usize, Outcome)>,
    ) -> Result<usize, BenchError> {
        let Some(end) = ready_end(bytes)? else { return Ok(0) };
        let answer = answered(&bytes[..end])?;
        let reason = answer.error.as_deref().map(|code| match code {
            "40001" => Ok("serialization_failure"),
            "40P01" => Ok("deadlock"),
            other => Err(refused("a transaction", other)),
        });
        let reason = reason.transpose()?;
        let outcome = match (self.step, reason) {
            (Step::Idle, _) => return Err(BenchError::Reply("PostgreSQL speaks unasked")),
            (Step::Reading, None) => {
                self.write(out);
                return Ok(end);
            }
            (Step::RollingBack(reason), _) => Outcome::Aborted(reason),
            (_, Some(reason)) if answer.in_transaction => {
                frame(out, b'Q', |body| text(body, "ROLLBACK"));
                self.step = Step::RollingBack(reason);
                return Ok(end);
            }
            (_, Some(reason)) => Outcome::Aborted(reason),
            (Step::Committing, None) => Outcome::Committed,
        };
        self.step = Step::Idle;
        done.push((0, outcome));
        Ok(end)
    }
}

/// Appends one message; its length includes itself but not the tag.
fn frame(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - at).expect("messages are short");
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// Binds a prepared statement to parameters in text form and executes it.
fn execute(out: &mut Vec<u8>, statement: &str, parameters: &[&[u8]]) {
    frame(out, b'B', |body| {
        text(body, "");
        text(body, statement);
        body.extend_from_slice(&0_u16.to_be_bytes());
        body.extend_from_slice(&u16::try_from(parameters.len()).expect("few").to_be_bytes());
        for parameter in parameters {
            body.extend_from_slice(&u32::try_from(parameter.len()).expect("short").to_be_bytes());
            body.extend_from_slice(parameter);
        }
        body.extend_from_slice(&0_u16.to_be_bytes());
    });
    frame(out, b'E', |body| {
        text(body, "");
        body.extend_from_slice(&0_u32.to_be_bytes());
    });
}

/// The server's output until it is ready again.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answer {
    error: Option<String>,
    in_transaction: bool,
}

/// Yields tag, body and end of each complete message.
fn messages(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8], usize)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let length = bytes.get(at + 1..at + 5)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let end = at + 1 + length.max(4);
        let message = (bytes[at], bytes.get(at + 5..end)?, end);
        at = end;
        Some(message)
    })
}

/// Returns the end of the message with which the server reports that it is ready.
fn ready_end(bytes: &[u8]) -> Result<Option<usize>, BenchError> {
    Ok(messages(bytes).find(|(tag, ..)| *tag == b'Z').map(|(.., end)| end))
}

fn answered(bytes: &[u8]) -> Result<Answer, BenchError> {
    let mut answer = Answer::default();
    for (tag, body, _) in messages(bytes) {
        match tag {
            b'E' => {
                let code = body.split(|byte| *byte == 0).find_map(|field| field.strip_prefix(b"C"));
                let code = code.ok_or(BenchError::Reply("an error of PostgreSQL without a code"))?;
                answer.error.get_or_insert_with(|| String::from_utf8_lossy(code).into_owned());
            }
            b'Z' => answer.in_transaction = body.first().is_some_and(|status| *status != b'I'),
            _ => {}
        }
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_ends_with_ready_for_query() {
        let mut bytes = Vec::new();
        frame(&mut bytes, b'E', |body| ["SERROR", "C40001", "Mno", ""].iter().for_each(|field| text(body, field)));
        assert_eq!(ready_end(&bytes).unwrap(), None);
        frame(&mut bytes, b'Z', |body| body.push(b'E'));
        assert_eq!(ready_end(&bytes).unwrap(), Some(bytes.len()));
        assert_eq!(ready_end(&bytes[..bytes.len() - 1]).unwrap(), None);
        let expected = Answer { error: Some("40001".to_owned()), in_transaction: true };
        assert_eq!(answered(&bytes).unwrap(), expected);
    }

    #[test]
    fn a_failed_update_is_rolled_back_and_a_failed_commit_is_not() {
        let rng = SmallRng::seed_from_u64(1);
        let mut session = PostgresSession { value_bytes: 3, rng, plan: Plan::default(), step: Step::Idle };
        let (mut out, mut done) = (Vec::new(), Vec::new());
        for (status, rolls_back) in [(b'E', true), (b'I', false)] {
            session.begin(0, Plan { writes: vec![(8, Change::Text)], ..Plan::default() }, &mut out);
            let mut failed = Vec::new();
            frame(&mut failed, b'E', |body| ["C40001", ""].iter().for_each(|field| text(body, field)));
            frame(&mut failed, b'Z', |body| body.push(status));
            out.clear();
            assert_eq!(session.receive(&failed, &mut out, &mut done).unwrap(), failed.len());
            assert_eq!(out.starts_with(b"Q"), rolls_back);
            if rolls_back {
                let mut rolled_back = Vec::new();
                frame(&mut rolled_back, b'Z', |body| body.push(b'I'));
                session.receive(&rolled_back, &mut out, &mut done).unwrap();
            }
            assert_eq!(std::mem::take(&mut done), [(0, Outcome::Aborted("serialization_failure"))]);
        }
    }
}
