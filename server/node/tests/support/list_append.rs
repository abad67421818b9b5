//! Checks histories of transactions that read lists and append to them, like Elle (Kingsbury and Alvaro, VLDB 2020).
//!
//! An element is appended once, so a list reveals the writer of each of its versions, and their order. The dependencies
//! between transactions follow: overwrites (ww), reads of writes (wr), overwrites of reads (rw), and, by the clients'
//! clock, transactions that ended before others began. A cycle of them is an anomaly; the edges that it needs determine
//! its kind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The client received the commit at this time.
    Committed(u64),
    /// The client received no verdict. A later query of its id returned that it committed.
    CommittedUnseen,
    Aborted,
}

/// One transaction.
#[derive(Clone, Debug)]
pub struct Txn {
    /// Its name in reports.
    pub name: String,
    /// When it was submitted, by the same clock as its end. Without it, the transaction may read arbitrarily old state.
    pub begun: Option<u64>,
    pub ending: Ending,
    /// The lists that it read, in their state before its own appends.
    pub reads: Vec<(String, Vec<u64>)>,
    /// Its appends.
    pub appends: Vec<(String, u64)>,
}

/// The kinds of anomalies in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// An element that no transaction appended, or one that occurs several times.
    Garbage,
    /// A list that is not a prefix of the final one: two orders of versions.
    TwoOrders,
    /// A committed append is missing from the final list.
    LostAppend,
    /// G1a: a write of an aborted transaction was read, or remained.
    AbortedRead,
    /// Two committed transactions wrote after the same version of a list.
    LostUpdate,
    /// A cycle of overwrites.
    G0,
    /// A cycle of overwrites and reads from each other.
    G1c,
    /// A cycle with one overwritten read: read skew, lost update.
    GSingle,
    /// A cycle with several overwritten reads: write skew.
    G2,
    /// A cycle only if real time counts: a stale state was read or appended to.
    RealTime,
}

/// An anomaly, with the transactions involved.
#[derive(Clone, Debug)]
pub struct Anomaly {
    pub kind: Kind,
    pub told: String,
}

/// The kinds of edges that a search follows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Edge {
    Ww,
    Wr,
    Rw,
    Time,
}

/// Returns the anomalies of a history with these final lists.
pub fn check(history: &[Txn], last: &BTreeMap<String, Vec<u64>>) -> Vec<Anomaly> {
    let mut found = Vec::new();
    let empty = Vec::new();
    let writers = writers(history);
    for (key, list) in last {
        let mut seen = BTreeSet::new();
        for element in list {
            if !seen.insert(element) || !writers.contains_key(&(key, *element)) {
                found.push(Anomaly { kind: Kind::Garbage, told: format!("{element} in {key}: {list:?}") });
            }
        }
    }
    for txn in history {
        let is_aborted = txn.ending == Ending::Aborted;
        for (key, element) in &txn.appends {
            if last.get(key).unwrap_or(&empty).contains(element) == is_aborted {
                let kind = if is_aborted { Kind::AbortedRead } else { Kind::LostAppend };
                found.push(Anomaly { kind, told: format!("{}: {element} in {key}, {:?}", txn.name, txn.ending) });
            }
        }
        for (key, list) in txn.reads.iter().filter(|_| !is_aborted) {
            for element in list {
                match writers.get(&(key, *element)).map(|at| &history[*at]) {
                    None => found.push(Anomaly { kind: Kind::Garbage, told: format!("{}: {key} {list:?}", txn.name) }),
                    Some(writer) if writer.ending == Ending::Aborted => found.push(Anomaly {
                        kind: Kind::AbortedRead,
                        told: format!("{} read {element} in {key} of {}", txn.name, writer.name),
                    }),
                    Some(_) => {}
                }
            }
            if !last.get(key).unwrap_or(&empty).starts_with(list) {
                found.push(Anomaly { kind: Kind::TwoOrders, told: format!("{} read {key}: {list:?}", txn.name) });
            }
        }
    }
    found.extend(lost_updates(history));
    found.extend(Graph::of(history, last, &writers).anomalies(history));
    found
}

/// Returns the transaction that appended each element.
fn writers(history: &[Txn]) -> BTreeMap<(&String, u64), usize> {
    let appends = history.iter().enumerate().flat_map(|(at, txn)| txn.appends.iter().map(move |append| (at, append)));
    appends.map(|(at, (key, element))| ((key, *element), at)).collect()
}

/// Finds committed transactions that appended to the same version of the same list.
fn lost_updates(history: &[Txn]) -> Vec<Anomaly> {
    let mut after: BTreeMap<(&String, &Vec<u64>), &Txn> = BTreeMap::new();
    let mut found = Vec::new();
    for txn in history.iter().filter(|txn| txn.ending != Ending::Aborted) {
        for (key, list) in txn.reads.iter().filter(|(key, _)| txn.appends.iter().any(|(of, _)| of == key)) {
            if let Some(other) = after.insert((key, list), txn) {
                let told = format!("{} and {} appended to {key} after {list:?}", other.name, txn.name);
                found.push(Anomaly { kind: Kind::LostUpdate, told });
            }
        }
    }
    found
}

/// The dependencies. Nodes with numbers from the number of transactions on are the times at which one of them ended.
struct Graph {
    edges: Vec<BTreeSet<(usize, Edge)>>,
}

impl Graph {
    fn of(history: &[Txn], last: &BTreeMap<String, Vec<u64>>, writers: &BTreeMap<(&String, u64), usize>) -> Graph {
        let mut graph = Graph { edges: vec![BTreeSet::new(); history.len()] };
        let writer = |key, element: Option<&u64>| {
            element.and_then(|element| writers.get(&(key, *element)).copied()).filter(|at| counts(&history[*at]))
        };
        for (key, list) in last {
            for pair in list.windows(2) {
                graph.add(writer(key, Some(&pair[0])), writer(key, Some(&pair[1])), Edge::Ww);
            }
        }
        for (at, txn) in history.iter().enumerate().filter(|(_, txn)| counts(txn)) {
            for (key, list) in &txn.reads {
                graph.add(writer(key, list.last()), Some(at), Edge::Wr);
                let next = last.get(key).and_then(|last| last.get(list.len()));
                graph.add(Some(at), writer(key, next), Edge::Rw);
            }
        }
        graph.add_times(history);
        graph
    }

    /// Adds real time: each end leads to a time, each time to the next one, and the last time before a begin to its
    /// transaction.
    fn add_times(&mut self, history: &[Txn]) {
        let ended = |txn: &Txn| if let Ending::Committed(at) = txn.ending { Some(at) } else { None };
        let mut ends: Vec<(u64, usize)> =
            history.iter().enumerate().filter_map(|(at, txn)| Some((ended(txn)?, at))).collect();
        ends.sort_unstable();
        let first = self.edges.len();
        self.edges.resize_with(first + ends.len(), BTreeSet::new);
        for (nth, (_, at)) in ends.iter().enumerate() {
            self.add(Some(*at), Some(first + nth), Edge::Time);
            if nth > 0 {
                self.add(Some(first + nth - 1), Some(first + nth), Edge::Time);
            }
        }
        for (at, txn) in history.iter().enumerate().filter(|(_, txn)| counts(txn)) {
            let Some(begun) = txn.begun else { continue };
            let before = ends.partition_point(|(end, _)| *end < begun);
            self.add(before.checked_sub(1).map(|nth| first + nth), Some(at), Edge::Time);
        }
    }

    fn add(&mut self, from: Option<usize>, to: Option<usize>, edge: Edge) {
        if let (Some(from), Some(to)) = (from, to)
            && from != to
        {
            self.edges[from].insert((to, edge));
        }
    }

    /// Returns one anomaly for each component with a cycle, of the kind that needs the fewest edges.
    fn anomalies(&self, history: &[Txn]) -> Vec<Anomaly> {
        let mut found = Vec::new();
        let mut explained = BTreeSet::new();
        let searches: [(Kind, &[Edge]); 5] = [
            (Kind::G0, &[Edge::Ww]),
            (Kind::G1c, &[Edge::Ww, Edge::Wr]),
            (Kind::GSingle, &[Edge::Ww, Edge::Wr]),
            (Kind::G2, &[Edge::Ww, Edge::Wr, Edge::Rw]),
            (Kind::RealTime, &[Edge::Ww, Edge::Wr, Edge::Rw, Edge::Time]),
        ];
        for (kind, follow) in searches {
            let cycles = if kind == Kind::GSingle { self.with_one_rw(follow) } else { self.cycles(follow) };
            for cycle in cycles {
                // A cycle of a kind with fewer edges explains it.
                if cycle.iter().any(|at| explained.contains(at)) {
                    continue;
                }
                explained.extend(cycle.iter().copied().filter(|at| *at < history.len()));
                let names = cycle.iter().filter_map(|at| history.get(*at)).map(|txn| format!("{txn:?}"));
                found.push(Anomaly { kind, told: names.collect::<Vec<_>>().join("\n  -> ") });
            }
        }
        found
    }

    /// Returns a cycle of each strongly connected component.
    fn cycles(&self, follow: &[Edge]) -> Vec<Vec<usize>> {
        let components = Tarjan::run(self, follow);
        let cyclic = components.into_iter().filter(|component| component.len() > 1);
        cyclic.filter_map(|component| self.cycle_in(&component.into_iter().collect(), follow)).collect()
    }

    /// Returns the cycles with one rw edge and otherwise only the followed edges.
    fn with_one_rw(&self, follow: &[Edge]) -> Vec<Vec<usize>> {
        let mut all = follow.to_vec();
        all.push(Edge::Rw);
        let components = Tarjan::run(self, &all);
        let mut found = Vec::new();
        for component in components.into_iter().filter(|component| component.len() > 1) {
            let within: BTreeSet<usize> = component.into_iter().collect();
            for from in &within {
                let overwritten =
                    self.edges[*from].iter().filter(|(to, edge)| *edge == Edge::Rw && within.contains(to));
                found.extend(overwritten.filter_map(|(to, _)| self.path(*to, *from, &within, follow)));
            }
        }
        found
    }

    fn cycle_in(&self, within: &BTreeSet<usize>, follow: &[Edge]) -> Option<Vec<usize>> {
        let from = *within.first()?;
        let next = self.edges[from].iter().filter(|(to, edge)| within.contains(to) && follow.contains(edge));
        next.filter_map(|(to, _)| self.path(*to, from, within, follow)).min_by_key(Vec::len)
    }

    /// Returns a shortest path, including both ends.
    fn path(&self, from: usize, to: usize, within: &BTreeSet<usize>, follow: &[Edge]) -> Option<Vec<usize>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = vec![to];
                while path.last() != Some(&from) {
                    path.push(before[path.last().expect("not empty")]);
                }
                path.reverse();
                return Some(path);
            }
            for (next, _) in self.edges[at].iter().filter(|(next, edge)| within.contains(next) && follow.contains(edge))
            {
                before.entry(*next).or_insert_with(|| {
                    queue.push_back(*next);
                    at
                });
            }
        }
        None
    }
}

/// Returns whether a transaction took effect.
fn counts(txn: &Txn) -> bool {
    txn.ending != Ending::Aborted
}

/// Tarjan's strongly connected components, without recursion: histories are long.
struct Tarjan {
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    on_stack: Vec<bool>,
    stack: Vec<usize>,
    next: usize,
    found: Vec<Vec<usize>>,
}

impl Tarjan {
    fn run(graph: &Graph, follow: &[Edge]) -> Vec<Vec<usize>> {
        let count = graph.edges.len();
        let (index, low, on_stack) = (vec![None; count], vec![0; count], vec![false; count]);
        let mut tarjan = Tarjan { index, low, on_stack, stack: Vec::new(), next: 0, found: Vec::new() };
        let successors: Vec<Vec<usize>> = graph
            .edges
            .iter()
            .map(|edges| edges.iter().filter(|(_, edge)| follow.contains(edge)).map(|(to, _)| *to).collect())
            .collect();
        for root in 0..count {
            if tarjan.index[root].is_none() {
                tarjan.visit(root, &successors);
            }
        }
        tarjan.found
    }

    fn open(&mut self, at: usize) {
        (self.index[at], self.low[at], self.on_stack[at]) = (Some(self.next), self.next, true);
        self.next += 1;
        self.stack.push(at);
    }

    fn visit(&mut self, root: usize, successors: &[Vec<usize>]) {
        let mut calls = vec![(root, 0)];
        self.open(root);
        while let Some((at, nth)) = calls.pop() {
            match successors[at].get(nth) {
                Some(next) => {
                    calls.push((at, nth + 1));
                    match self.index[*next] {
                        None => {
                            self.open(*next);
                            calls.push((*next, 0));
                        }
                        Some(index) if self.on_stack[*next] => self.low[at] = self.low[at].min(index),
                        Some(_) => {}
                    }
                }
                None => {
                    if let Some((caller, _)) = calls.last() {
                        self.low[*caller] = self.low[*caller].min(self.low[at]);
                    }
                    if Some(self.low[at]) == self.index[at] {
                        self.close(at);
                    }
                }
            }
        }
    }

    fn close(&mut self, root: usize) {
        let from = self.stack.iter().rposition(|at| *at == root).expect("it is open");
        let component = self.stack.split_off(from);
        component.iter().for_each(|at| self.on_stack[*at] = false);
        self.found.push(component);
    }
}
