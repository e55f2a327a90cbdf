//! Configuration of a server: the precedence of file, environment and command line.

use serde_json::{Value, json};

use crate::{onward, text};

#[test]
fn settings_come_from_file_environment_and_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onward.toml");
    std::fs::write(
        &file,
        "store = \"postgres://me:secret@db/onward\"\nlease-ms = 7000\nlisten = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    let show = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = onward(
            &[
                &["config", "show", "--config", file.to_str().unwrap()],
                args,
            ]
            .concat(),
        );
        command.envs(environment.iter().copied()).output().unwrap()
    };
    let output = show(
        &["--json", "--listen", "127.0.0.1:3"],
        &[
            ("ONWARD_LISTEN", "127.0.0.1:2"),
            ("ONWARD_LEASE_MS", "8000"),
        ],
    );
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        shown["listen"],
        json!({ "value": "127.0.0.1:3", "from": "command-line" })
    );
    assert_eq!(
        shown["lease-ms"],
        json!({ "value": 8000, "from": "environment" })
    );
    assert_eq!(
        shown["store"],
        json!({ "value": "postgres://me:***@db/onward", "from": "file" })
    );
    assert_eq!(
        shown["tls-in-front"],
        json!({ "value": false, "from": "default" })
    );
    assert!(!text(&show(&[], &[]).stdout).contains("secret"));
    let invalid = show(&[], &[("ONWARD_LISTEN", "nowhere")]);
    assert!(
        text(&invalid.stderr).contains("invalid environment variable ONWARD_LISTEN"),
        "{}",
        text(&invalid.stderr)
    );
    std::fs::write(&file, "lissten = \"127.0.0.1:1\"\n").unwrap();
    let invalid = show(&[], &[]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(
        text(&invalid.stderr).contains("unknown field `lissten`"),
        "{}",
        text(&invalid.stderr)
    );
}
