//! A throw-away cluster is there, comes back after a crash, and leaves nothing behind.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use onward_testing::{Error, PostgresCluster};

fn is_reachable(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_cluster_is_reachable_crashes_comes_back_and_is_gone() {
    let cluster = PostgresCluster::start().unwrap();
    let (port, folder) = (cluster.port(), cluster.base_dir().to_owned());
    let first = cluster.create_database().unwrap();
    assert_eq!(first, format!("postgres://onward@127.0.0.1:{port}/test_1"));
    assert_ne!(cluster.create_database().unwrap(), first);

    let pid = cluster.server_pid().unwrap();
    assert!(Path::new(&format!("/proc/{pid}")).exists());
    cluster.stop_immediately().unwrap();
    assert!(!is_reachable(port));
    assert!(matches!(cluster.server_pid(), Err(Error::Stopped)));
    cluster.restart_server().unwrap();
    assert!(is_reachable(port));

    drop(cluster);
    assert!(!is_reachable(port));
    assert!(!folder.exists());
}

#[test]
fn a_cluster_that_is_down_can_be_dropped() {
    let cluster =
        PostgresCluster::start_with_durability(onward_testing::ClusterDurability::Unsynced)
            .unwrap();
    let folder = cluster.base_dir().to_owned();
    cluster.stop_immediately().unwrap();
    drop(cluster);
    assert!(!folder.exists());
}

#[test]
fn tests_of_a_process_share_a_cluster_while_one_holds_it() {
    let one = PostgresCluster::shared_cluster().unwrap();
    let other = PostgresCluster::shared_cluster().unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert_ne!(
        one.create_database().unwrap(),
        other.create_database().unwrap()
    );
}
