//! SQL texts. They consist only of checked names; every value is a parameter.

use std::fmt::Write as _;

use tribunal_plugin_sdk::adaptor::{RecordId, SqlStatement};

use crate::column::Type;
use crate::mapping::{Column, Mapping, Table};

/// Parameters of [`add`] besides the key: delta, version, the whole key.
pub(crate) const ADD_COLUMNS: usize = 3;
/// Serializes the creation of tables.
const ADVISORY_LOCK: i64 = 0x7472_6962_756e_616c;

/// `"a", "b"`
fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    names.into_iter().collect::<Vec<_>>().join(", ")
}

/// `$1::bigint[], $2::text[]`
fn arrays(types: impl IntoIterator<Item = Type>) -> String {
    let arrays: Vec<_> = types.into_iter().zip(1..).map(|(kind, n)| format!("${n}::{}[]", kind.sql())).collect();
    arrays.join(", ")
}

fn names(columns: &[Column]) -> impl Iterator<Item = &str> {
    columns.iter().map(|column| column.name.as_str())
}

fn types(columns: &[Column]) -> impl Iterator<Item = Type> {
    columns.iter().map(|column| column.kind)
}

/// `t."a" = w.k1 AND t."b" = w.k2`
fn same_key(table: &Table) -> String {
    let same: Vec<_> = names(&table.key).zip(1..).map(|(name, n)| format!("t.{name} = w.k{n}")).collect();
    same.join(" AND ")
}

/// `k1, k2`
fn key_aliases(table: &Table) -> String {
    (1..=table.key.len()).map(|n| format!("k{n}")).collect::<Vec<_>>().join(", ")
}

/// ` ON CONFLICT ("a") DO UPDATE SET "v" = EXCLUDED."v", "version" = EXCLUDED."version"`
fn replacing(table: &Table) -> String {
    let set = names(table.value.columns()).chain([table.version.as_str()]);
    let set: Vec<_> = set.map(|name| format!("{name} = EXCLUDED.{name}")).collect();
    format!(" ON CONFLICT ({}) DO UPDATE SET {}", list(names(&table.key)), set.join(", "))
}

/// Creates or replaces rows.
pub(crate) fn upsert(table: &Table) -> String {
    let values = table.value.columns();
    let columns = list(names(&table.key).chain(names(values)).chain([table.version.as_str()]));
    let params = arrays(types(&table.key).chain(types(values)).chain([Type::Bigint]));
    format!("INSERT INTO {} ({columns}) SELECT * FROM unnest({params}) AS w{}", table.name, replacing(table))
}

/// Removes rows.
pub(crate) fn delete(table: &Table) -> String {
    let (params, aliases) = (arrays(types(&table.key)), key_aliases(table));
    let same = same_key(table);
    format!("DELETE FROM {} AS t USING unnest({params}) AS w({aliases}) WHERE {same}", table.name)
}

/// Adds to integers. A missing row, a non-integer value and a sum beyond the column's range are errors.
pub(crate) fn add(table: &Table, column: &Column) -> String {
    let (name, value, version) = (&table.name, &column.name, &table.version);
    let params = arrays(types(&table.key).chain([Type::Numeric, Type::Bigint, Type::Text]));
    let aliases = key_aliases(table);
    let keys = (1..=table.key.len()).map(|n| format!("w.k{n}")).collect::<Vec<_>>().join(", ");
    let columns = list(names(&table.key).chain([value.as_str(), version.as_str()]));
    let first_key = &table.key[0].name;
    let before = if column.kind == Type::Jsonb { format!("(t.{value}::text)::bigint") } else { format!("t.{value}") };
    // There is no row to fail on, so the message itself fails to parse as a number.
    let sum = format!(
        "CASE WHEN t.{first_key} IS NULL THEN ('row ' || w.label || ' is missing, nothing can be added to it')::bigint \
         ELSE ({before}::numeric + w.delta)::bigint END"
    );
    let sum = match column.kind {
        Type::Jsonb => format!("to_jsonb({sum})"),
        kind => format!("({sum})::{}", kind.sql()),
    };
    format!(
        "INSERT INTO {name} ({columns}) SELECT {keys}, {sum}, w.version \
         FROM unnest({params}) AS w({aliases}, delta, version, label) LEFT JOIN {name} AS t ON ({}){}",
        same_key(table),
        replacing(table)
    )
}

fn number(number: u64) -> Option<Vec<u8>> {
    Some(number.to_string().into_bytes())
}

fn text(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

/// Moves the watermark from the position `from` to the record `to`. The first statement affects no row if the watermark is
/// elsewhere.
pub(crate) fn move_watermark(mapping: &Mapping, from: u64, to: &RecordId) -> [SqlStatement; 2] {
    let Mapping { watermark, store, table_names, .. } = mapping;
    let moved = format!(
        "UPDATE {watermark} SET lsn = $5::bigint WHERE store = $1::text AND tables = $2::text AND log = $3::text \
         AND lsn = $4::bigint RETURNING octet_length(concat(set_config('tribunal.store', $1::text, true), \
         set_config('tribunal.tables', $2::text, true), set_config('tribunal.record', $6::text, true)))"
    );
    let (mark, record) = (mapping.mark(), to.to_string());
    let params = vec![text(store), text(table_names), text(&mark), number(from), number(to.lsn), text(&record)];
    // The column may be absent or not granted, so the statement that names it must not be parsed before that is known.
    let keep = format!(
        "DO $tribunal$ BEGIN IF {} THEN UPDATE {watermark} AS w SET last_record = current_setting('tribunal.record') \
         WHERE {OWN}; END IF; END $tribunal$",
        keeps_records(mapping)
    );
    [SqlStatement { text: moved, params }, SqlStatement { text: keep, params: Vec::new() }]
}

/// Whether the table of watermarks has the column of the last record, and `also` holds for it. Tables that earlier
/// releases created lack it until it is added.
fn has_record_column(mapping: &Mapping, also: &str) -> String {
    format!(
        "EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('{}') AND attname = 'last_record' \
         AND NOT attisdropped{also})",
        mapping.watermark
    )
}

/// Whether there is this column, and the role may use it: privileges may have been granted for the other columns only.
fn keeps_records(mapping: &Mapping) -> String {
    has_record_column(
        mapping,
        " AND has_column_privilege(attrelid, attnum, 'SELECT') AND has_column_privilege(attrelid, attnum, 'UPDATE')",
    )
}

/// Prefix of the response to [`read_watermark`] if another store or log fills one of the tables. The rest names it.
pub(crate) const TAKEN: &str = "taken by ";

/// The mapping's own watermark row.
const OWN: &str = "w.store = current_setting('tribunal.store') AND w.tables = current_setting('tribunal.tables')";
/// Another watermark row of this store that covers one of the mapping's tables.
const OVERLAPS: &str = "w.tables <> current_setting('tribunal.tables') AND w.store = current_setting('tribunal.store') \
                        AND w.log = current_setting('tribunal.mark') \
                        AND string_to_array(w.tables, ',') && string_to_array(current_setting('tribunal.names'), ',')";
/// A watermark row of another store or log that covers one of the mapping's tables.
const TAKES: &str = "(w.store <> current_setting('tribunal.store') OR (w.tables <> current_setting('tribunal.tables') \
                     AND w.log <> current_setting('tribunal.mark'))) \
                     AND string_to_array(w.tables, ',') && string_to_array(current_setting('tribunal.names'), ',')";
/// The names by which rows of other stores may cover the mapping's tables, `$2`: with and without a schema.
const NAMES: &str = "SELECT string_agg(named, ',') FROM (SELECT unnest(string_to_array($2::text, ',')) AS named \
                     UNION SELECT unnest(ARRAY['\"' || n.nspname || '\".\"' || c.relname || '\"', \
                     CASE WHEN pg_table_is_visible(c.oid) THEN '\"' || c.relname || '\"' END]) \
                     FROM unnest(string_to_array($2::text, ',')) AS t JOIN pg_class AS c ON c.oid = to_regclass(t) \
                     JOIN pg_namespace AS n ON n.oid = c.relnamespace) AS names";

/// Creates missing objects at the first contact, and reads the watermark as `<log> <lsn>`, with the last record on a second
/// line if it is kept; or the owner of the tables.
pub(crate) fn read_watermark(mapping: &Mapping) -> Vec<SqlStatement> {
    let lock = format!(
        "SELECT pg_advisory_xact_lock({ADVISORY_LOCK}), set_config('tribunal.store', $1::text, true), \
         set_config('tribunal.tables', $2::text, true), set_config('tribunal.mark', $3::text, true), \
         set_config('tribunal.names', ({NAMES}), true)"
    );
    let named = vec![text(&mapping.store), text(&mapping.table_names), text(&mapping.mark())];
    let told = "SELECT nullif(current_setting('tribunal.read'), '')".to_owned();
    vec![
        SqlStatement { text: lock, params: named },
        SqlStatement { text: begin(mapping), params: Vec::new() },
        SqlStatement { text: read(mapping), params: Vec::new() },
        SqlStatement { text: told, params: Vec::new() },
    ]
}

/// Reads the watermark into the setting `tribunal.read`: a block returns nothing, but may choose the columns.
fn read(mapping: &Mapping) -> String {
    let watermark = &mapping.watermark;
    let reading = |record: &str| {
        format!(
            "PERFORM set_config('tribunal.read', coalesce((SELECT '{TAKEN}store `' || w.store || '`, tables ' || w.tables || \
             ', log and store ' || w.log FROM {watermark} AS w WHERE {TAKES} ORDER BY w.store, w.tables LIMIT 1), \
             (SELECT w.log || ' ' || w.lsn::text{record} FROM {watermark} AS w WHERE {OWN}), ''), true);"
        )
    };
    format!(
        "DO $tribunal$ BEGIN IF {} THEN {} ELSE {} END IF; END $tribunal$",
        keeps_records(mapping),
        reading(" || coalesce(E'\\n' || w.last_record, '')"),
        reading("")
    )
}

/// Unless the tables are taken, initializes the watermark at the first contact, and removes this store's other
/// watermark rows that share a table with it. Creates missing tables, except those that were filled before: an empty
/// table next to a watermark would be a silent loss.
fn begin(mapping: &Mapping) -> String {
    let watermark = &mapping.watermark;
    let mut tables = String::new();
    for table in &mapping.tables {
        let name = &table.name;
        write!(tables, "IF to_regclass('{name}') IS NULL THEN {}; END IF; ", ddl_table(table))
            .expect("writing to a string");
    }
    format!(
        "DO $tribunal$ BEGIN IF to_regclass('{watermark}') IS NULL THEN {}; END IF; {} \
         IF NOT EXISTS (SELECT FROM {watermark} AS w WHERE {TAKES}) THEN \
         IF NOT EXISTS (SELECT FROM {watermark} AS w WHERE {OWN}) THEN {tables}\
         INSERT INTO {watermark} (store, tables, log, lsn) VALUES (current_setting('tribunal.store'), \
         current_setting('tribunal.tables'), current_setting('tribunal.mark'), 0) \
         ON CONFLICT (store, tables) DO NOTHING; END IF; \
         DELETE FROM {watermark} AS w WHERE {OVERLAPS}; END IF; END $tribunal$",
        ddl_watermark(mapping),
        add_record_column(mapping)
    )
}

/// Adds the column of the last record to a table that an earlier release created. Without the privilege, or while another
/// transaction uses the table, the push works without the column; the next query of the watermark tries again. It does
/// not wait for its lock: readers would queue after it.
fn add_record_column(mapping: &Mapping) -> String {
    format!(
        "IF NOT {} THEN BEGIN LOCK TABLE {watermark} IN ACCESS EXCLUSIVE MODE NOWAIT; \
         ALTER TABLE {watermark} ADD COLUMN last_record text; EXCEPTION WHEN OTHERS THEN NULL; END; END IF;",
        has_record_column(mapping, ""),
        watermark = mapping.watermark
    )
}

fn ddl_watermark(mapping: &Mapping) -> String {
    format!(
        "CREATE TABLE {} (store text NOT NULL, tables text NOT NULL, log text NOT NULL, lsn bigint NOT NULL, \
         last_record text, PRIMARY KEY (store, tables))",
        mapping.watermark
    )
}

fn ddl_table(table: &Table) -> String {
    let mut columns = String::new();
    for key in &table.key {
        // Ordered by bytes, as Tribunal orders keys.
        let collation = if key.kind == Type::Text { " COLLATE \"C\"" } else { "" };
        write!(columns, "{} {}{collation} NOT NULL, ", key.name, key.kind.sql()).expect("writing to a string");
    }
    for column in table.value.columns() {
        let null = if column.nullable { "" } else { " NOT NULL" };
        write!(columns, "{} {}{null}, ", column.name, column.kind.sql()).expect("writing to a string");
    }
    format!(
        "CREATE TABLE {} ({columns}{} bigint NOT NULL, PRIMARY KEY ({}))",
        table.name,
        table.version,
        list(names(&table.key))
    )
}

/// Returns the statements that another role must run if this one lacks the privilege.
pub(crate) fn ddl(mapping: &Mapping) -> String {
    let tables = mapping.tables.iter().map(ddl_table);
    [ddl_watermark(mapping)].into_iter().chain(tables).map(|ddl| ddl + ";").collect::<Vec<_>>().join(" ")
}
