//! A throw-away cluster is there, comes back after a crash, and leaves nothing behind.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use onward_testing::{Cluster, Error};

fn is_reachable(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_cluster_is_reachable_crashes_comes_back_and_is_gone() {
    let cluster = Cluster::start().unwrap();
    let (port, folder) = (cluster.port(), cluster.folder().to_owned());
    let first = cluster.database().unwrap();
    assert_eq!(first, format!("postgres://onward@127.0.0.1:{port}/test_1"));
    assert_ne!(cluster.database().unwrap(), first);

    let pid = cluster.pid().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    cluster.kill().unwrap();
    assert!(!is_reachable(port));
    assert!(matches!(cluster.pid(), Err(Error::Stopped)));
    cluster.restart().unwrap();
    assert!(is_reachable(port));

    drop(cluster);
    assert!(!is_reachable(port));
    assert!(!folder.exists());
}

#[test]
fn a_cluster_that_is_down_can_be_dropped() {
    let cluster = Cluster::start_with(onward_testing::Durability::Careless).unwrap();
    let folder = cluster.folder().to_owned();
    cluster.kill().unwrap();
    drop(cluster);
    assert!(!folder.exists());
}

#[test]
fn tests_of_a_process_share_a_cluster_while_one_holds_it() {
    let one = Cluster::shared().unwrap();
    let other = Cluster::shared().unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert_ne!(one.database().unwrap(), other.database().unwrap());
}
