//! A projection for clusters of more nodes: three measured costs, and the growth of each with the number of nodes.
//!
//! A transaction costs the node that takes it `one`, and every other node `follows`. Each node's log has an entry for
//! every epoch, which costs each pair of nodes a share of their time, regardless of the number of transactions in it.

use std::fmt::Write as _;

use tribunal_bench::chart::round;

/// The measured costs: CPU time of the servers for a commit, as a run of one and of three nodes shows it, and the rate of the last.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Scaling {
    /// Of one node, us.
    #[arg(long)]
    one_us: f64,
    /// Of three nodes, with all clients at one of them, us.
    #[arg(long)]
    at_one_us: f64,
    /// Of three nodes, with clients at all of them, us.
    #[arg(long)]
    at_all_us: f64,
    /// Commits a second of these.
    #[arg(long)]
    at_all_rate: f64,
    /// Cores of each node.
    #[arg(long, default_value_t = 8.0)]
    cores: f64,
}

/// Number of nodes in the measurement.
const MEASURED: f64 = 3.0;

impl Scaling {
    /// Returns the cost for one further node to decide a transaction that another node has taken, us.
    fn follows_us(&self) -> f64 {
        (self.at_one_us - self.one_us) / (MEASURED - 1.0)
    }

    /// Returns the cores that each ordered pair of nodes costs for one node's entries at the other, regardless of their
    /// size.
    fn cores_a_pair(&self) -> f64 {
        (self.at_all_us - self.at_one_us).max(0.0) * 1e-6 * self.at_all_rate / (MEASURED * (MEASURED - 1.0))
    }

    /// Returns the commits per second that the cores of `nodes` nodes allow, with epochs `longer` times as long as
    /// measured.
    fn rate(&self, nodes: f64, longer: f64) -> f64 {
        let pairs = (nodes - 1.0) * self.cores_a_pair() / longer;
        let left = (self.cores - pairs).max(0.0) * nodes;
        left * 1e6 / (self.one_us + (nodes - 1.0) * self.follows_us())
    }

    /// Returns the share of a node's cores that other nodes' entries cost, regardless of their content.
    fn share_of_pairs(&self, nodes: f64, longer: f64) -> f64 {
        ((nodes - 1.0) * self.cores_a_pair() / longer / self.cores).min(1.0)
    }

    /// Prints the costs, and a table of clusters as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let alone = self.rate(1.0, 1.0);
        let mut table = format!(
            "A commit costs {:.1} us where it is taken and {:.1} us on each other node; a pair of nodes costs {:.3} cores. \
             {} cores a node.\n\n\
             | nodes | commits/s, against one node | share of CPU in entries | the same with epochs 10 times as long |\n|---|---|---|---|\n",
            self.one_us,
            self.follows_us(),
            self.cores_a_pair(),
            self.cores
        );
        for nodes in [1.0, 3.0, 5.0, 9.0, 25.0, 100.0] {
            let (rate, longer) = (self.rate(nodes, 1.0), self.rate(nodes, 10.0));
            let _ = writeln!(
                table,
                "| {nodes} | {} ({:.2} times) | {:.0} % | {} ({:.2} times), {:.0} % |",
                round(rate),
                rate / alone,
                100.0 * self.share_of_pairs(nodes, 1.0),
                round(longer),
                longer / alone,
                100.0 * self.share_of_pairs(nodes, 10.0)
            );
        }
        let _ = writeln!(
            table,
            "\nWithout the entries' share, no number of nodes commits more than {:.2} times what one does.",
            self.one_us / self.follows_us()
        );
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(at_one_us: f64, at_all_us: f64) -> Scaling {
        Scaling { one_us: 30.0, at_one_us, at_all_us, at_all_rate: 10_000.0, cores: 4.0 }
    }

    #[test]
    fn nodes_that_follow_as_dearly_as_they_take_add_nothing() {
        let scaling = costs(90.0, 90.0);
        assert!((scaling.rate(9.0, 1.0) - scaling.rate(1.0, 1.0)).abs() < 1e-6);
    }

    #[test]
    fn cheaper_followers_scale_up_to_the_ratio_of_both_costs() {
        let scaling = costs(40.0, 40.0);
        let times = |nodes| scaling.rate(nodes, 1.0) / scaling.rate(1.0, 1.0);
        assert!((times(3.0) - 2.25).abs() < 1e-9, "3 times the cores for 30 + 2 x 5 us in place of 30");
        assert!(times(100.0) > 5.0 && times(1e6) < 6.0);
    }

    #[test]
    fn entries_take_the_cores_of_large_clusters_unless_epochs_are_longer() {
        let scaling = costs(40.0, 100.0);
        // 0.6 cores for six pairs.
        assert!((scaling.cores_a_pair() - 0.1).abs() < 1e-9);
        assert!(scaling.rate(41.0, 1.0) < 1e-6 && scaling.rate(41.0, 10.0) > scaling.rate(9.0, 1.0));
        assert!((scaling.share_of_pairs(21.0, 1.0) - 0.5).abs() < 1e-9);
    }
}
