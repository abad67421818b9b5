//! `/metrics` of a real process, as scrapers and operators read it.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use support::{Node, eventually};

/// Returns the content type and the text of `/metrics`, with this header `accept`.
fn scraped(node: &Node, accept: &str) -> (String, String) {
    let url = format!("{}/metrics", node.url);
    let mut response = ureq::get(url).header("accept", accept).call().expect("the node answers");
    let content_type = response.headers()["content-type"].to_str().expect("ASCII").to_owned();
    (content_type, response.body_mut().read_to_string().expect("text"))
}

/// Returns the value of a sample without labels.
fn figure(text: &str, name: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
    found.unwrap_or_else(|| panic!("{name} is missing:\n{text}"))
}

/// Returns the names of all samples, with their labels, and checks that each is announced by the family before it. The
/// suffix by which a counter's samples differ from its family is that of the format.
fn samples(text: &str, counter_suffix: &str) -> BTreeSet<String> {
    let (mut kinds, mut found) = (BTreeMap::new(), BTreeSet::new());
    let mut family = ("", "");
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "TYPE", name, kind] => {
                assert_eq!(kinds.insert(name, kind), None, "{name} is announced twice");
                family = (name, kind);
            }
            ["#", "HELP", ..] | ["#", "EOF"] => {}
            _ => {
                let (sample, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert!(value.parse::<f64>().is_ok(), "{line}");
                let name = sample.split('{').next().unwrap_or_default();
                let suffix = name.strip_prefix(family.0).unwrap_or_else(|| panic!("{line} after {family:?}"));
                let fits = match family.1 {
                    "counter" => suffix == counter_suffix && name.ends_with("_total"),
                    "histogram" => ["_sum", "_count", "_bucket"].contains(&suffix),
                    "gauge" => suffix.is_empty(),
                    _ => false,
                };
                assert!(fits, "{line} after {family:?}");
                found.insert(sample.to_owned());
            }
        }
    }
    found
}

#[test]
fn a_scraper_gets_the_format_that_it_prefers() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("k", 1);
    for accept in ["*/*", "text/plain;version=0.0.4", "text/plain, application/openmetrics-text;q=0.5", "image/png"] {
        let (content_type, text) = scraped(&node, accept);
        assert_eq!(content_type, "text/plain; version=0.0.4; charset=utf-8", "{accept}");
        assert!(!text.contains("# EOF"), "{accept}");
    }
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
    let (content_type, openmetrics) = scraped(&node, prometheus);
    assert_eq!(content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert!(openmetrics.ends_with("\n# EOF\n"), "{openmetrics}");
    let (_, text) = scraped(&node, "*/*");
    let (of_text, of_openmetrics) = (samples(&text, ""), samples(&openmetrics, "_total"));
    assert_eq!(of_text, of_openmetrics);
    for name in
        ["tribunal_txns_committed_total", "process_cpu_seconds_total", "tribunal_sync_seconds_bucket{le=\"+Inf\"}"]
    {
        assert!(of_text.contains(name), "{name}: {of_text:?}");
    }
}

#[test]
fn the_process_is_measured_as_the_system_does() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let of_system = |file: &str| std::fs::read_to_string(format!("/proc/{}/{file}", node.pid())).expect("it runs");
    let text = scraped(&node, "*/*").1;
    let resident = figure(&text, "process_resident_memory_bytes");
    let status = of_system("status");
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    let ratio = resident / (kib.expect("a size") * 1024.0);
    assert!((0.5..2.0).contains(&ratio), "{resident} {kib:?}");
    let limits = of_system("limits");
    let files = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let soft = files.split_whitespace().nth(3).expect("the soft limit").parse::<f64>();
    assert_eq!(soft, Ok(figure(&text, "process_max_fds")), "{files}");
    let listed = || std::fs::read_dir(format!("/proc/{}/fd", node.pid())).expect("it runs").count() as f64;
    // Connections come and go.
    eventually("the same number of descriptors", || {
        let open = figure(&scraped(&node, "*/*").1, "process_open_fds");
        ((listed() - open).abs() <= 2.0).then_some(())
    });
    let (begun, cpu) = (Instant::now(), || figure(&scraped(&node, "*/*").1, "process_cpu_seconds_total"));
    let before = cpu();
    assert!(before > 0.0);
    (0..200).for_each(|n| drop(node.put_row("k", n)));
    let used = cpu() - before;
    let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
    assert!(used > 0.0 && used <= (begun.elapsed() + Duration::from_secs(1)).as_secs_f64() * cores, "{used}");
}

#[test]
fn begins_and_reads_are_timed_and_the_disk_is_measured() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("k", 1);
    let counts = || {
        let text = scraped(&node, "*/*").1;
        ["tribunal_begin_seconds_count", "tribunal_read_seconds_count"].map(|name| figure(&text, name))
    };
    let before = counts();
    let more = |counts: [f64; 2]| [counts[0] - before[0], counts[1] - before[1]];
    let begun = node.post("/v1/txns", &serde_json::json!({"read": [{"store": "kv", "key": "k"}]}));
    assert_eq!(begun.status, 201, "{}", begun.body);
    assert_eq!(more(counts()), [1.0, 0.0], "a Begin's reads are its own");
    (0..2).for_each(|_| assert_eq!(node.get("/v1/stores/kv/rows/k").body["value"], 1));
    assert_ne!(node.post("/v1/txns", &serde_json::json!({"stores": ["absent"]})).status, 201);
    assert_eq!(more(counts()), [1.0, 2.0], "refused ones do not count");
    let text = scraped(&node, "*/*").1;
    let [free, total] = ["tribunal_data_free_bytes", "tribunal_data_total_bytes"].map(|name| figure(&text, name));
    assert!(0.0 < free && free <= total, "{free} of {total}");
}
