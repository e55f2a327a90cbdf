//! A temporary cluster starts, restarts after a crash, and is removed completely.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use onward_testing::{ClusterDurability, Error, PostgresCluster};

fn is_reachable(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn a_cluster_can_be_reached_stopped_restarted_and_dropped() {
    let cluster = PostgresCluster::start().unwrap();
    let (port, folder) = (cluster.port(), cluster.base_dir().to_owned());
    let first = cluster.create_database().unwrap();
    let prefix = format!("postgres://onward@127.0.0.1:{port}/test_");
    assert!(first.starts_with(&prefix), "{first}");
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
fn a_stopped_cluster_can_be_dropped() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let folder = cluster.base_dir().to_owned();
    cluster.stop_immediately().unwrap();
    drop(cluster);
    assert!(!folder.exists());
}

#[test]
fn tests_of_a_process_share_a_cluster_while_one_uses_it() {
    let one = PostgresCluster::shared_cluster(ClusterDurability::Unsynced).unwrap();
    let other = PostgresCluster::shared_cluster(ClusterDurability::Unsynced).unwrap();
    assert!(Arc::ptr_eq(&one, &other));
    assert_ne!(
        one.create_database().unwrap(),
        other.create_database().unwrap()
    );
}

#[test]
fn a_command_is_run_with_clusters_that_are_stopped_after_it() {
    let program = env!("CARGO_BIN_EXE_with-clusters");
    let script = "test -e \"$ONWARD_TEST_POSTGRES/data/postmaster.pid\" && \
                  test -e \"$ONWARD_TEST_POSTGRES_UNSYNCED/data/postmaster.pid\" && \
                  echo \"$ONWARD_TEST_POSTGRES\"; exit 7";
    let output = Command::new(program)
        .args(["sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let folder = String::from_utf8(output.stdout).unwrap();
    assert!(folder.trim_end().starts_with('/'), "{folder}");
    assert!(!Path::new(folder.trim_end()).exists());
}
